import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Base64;

/**
 * Reads and writes messages with Kafka's own classes, of the version on the class path.
 *
 * Reads requests from standard input, one a line, fields apart by tabs; prints one answer a line. Bytes and JSON texts
 * are in base64. An answer that was an exception is "refused". By reflection throughout: the classes moved.
 *
 *     parse   CLASS  VERSION  BYTES   a generated class's reading, as JSON; what it writes again, or "unwritable":
 *                                     of tags that it does not know it reads any, and writes them only if they rise
 *     pack    CLASS  VERSION  JSON    what a generated class writes
 *     struct  CLASS  SCHEMA   BYTES   the same as parse before there was JSON; SCHEMA is a field that holds a schema,
 *                                     or SCHEMAS[number]
 */
public class KafkaPayloads {
    private static final String PROTOCOL = "org.apache.kafka.common.protocol.";

    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, false, "UTF-8");
        System.setOut(System.err);
        BufferedReader requests =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            String answer;
            try {
                answer = answer(line.split("\t", -1));
            } catch (InvocationTargetException refused) {
                answer = "refused";
            }
            out.println(answer);
        }
        out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static String answer(String[] request) throws Exception {
        Class<?> type = Class.forName(request[1]);
        byte[] content = Base64.getDecoder().decode(request[3]);
        switch (request[0]) {
            case "parse":
                return parse(type, Short.parseShort(request[2]), content);
            case "pack":
                return pack(type, Short.parseShort(request[2]), content);
            case "struct":
                return struct(schema(type, request[2]), ByteBuffer.wrap(content));
            default:
                throw new IllegalArgumentException(request[0]);
        }
    }

    private static String parse(Class<?> type, short version, byte[] content) throws Exception {
        Constructor<?> constructor = type.getConstructor(Class.forName(PROTOCOL + "Readable"), short.class);
        Object message = constructor.newInstance(accessor(ByteBuffer.wrap(content)), version);
        Object json = converter(type, "write", type, short.class).invoke(null, message, version);
        String again;
        try {
            again = written(message, version);
        } catch (InvocationTargetException refused) {
            again = "unwritable";
        }
        return base64(json.toString().getBytes(StandardCharsets.UTF_8)) + " " + again;
    }

    private static String pack(Class<?> type, short version, byte[] content) throws Exception {
        Object mapper = Class.forName("com.fasterxml.jackson.databind.ObjectMapper").getConstructor().newInstance();
        Object node = mapper.getClass().getMethod("readTree", byte[].class).invoke(mapper, (Object) content);
        Class<?> nodes = Class.forName("com.fasterxml.jackson.databind.JsonNode");
        return written(converter(type, "read", nodes, short.class).invoke(null, node, version), version);
    }

    private static Method converter(Class<?> type, String name, Class<?>... parameters) throws Exception {
        return Class.forName(type.getName() + "JsonConverter").getMethod(name, parameters);
    }

    private static Object accessor(ByteBuffer buffer) throws Exception {
        return Class.forName(PROTOCOL + "ByteBufferAccessor").getConstructor(ByteBuffer.class).newInstance(buffer);
    }

    private static String written(Object message, short version) throws Exception {
        Class<?> caches = Class.forName(PROTOCOL + "ObjectSerializationCache");
        Object cache = caches.getConstructor().newInstance();
        Method size = Class.forName(PROTOCOL + "Message").getMethod("size", caches, short.class);
        ByteBuffer buffer = ByteBuffer.allocate((Integer) size.invoke(message, cache, version));
        message.getClass().getMethod("write", Class.forName(PROTOCOL + "Writable"), caches, short.class)
            .invoke(message, accessor(buffer), cache, version);
        return base64(buffer.array());
    }

    private static Object schema(Class<?> type, String name) throws Exception {
        int bracket = name.indexOf('[');
        Field field = type.getDeclaredField(bracket < 0 ? name : name.substring(0, bracket));
        field.setAccessible(true);
        Object found = field.get(null);
        return bracket < 0 ? found
            : ((Object[]) found)[Integer.parseInt(name.substring(bracket + 1, name.length() - 1))];
    }

    private static String struct(Object schema, ByteBuffer content) throws Exception {
        Object struct = schema.getClass().getMethod("read", ByteBuffer.class).invoke(schema, content);
        ByteBuffer buffer = ByteBuffer.allocate((Integer) struct.getClass().getMethod("sizeOf").invoke(struct));
        StringBuilder json = new StringBuilder();
        append(json, struct);
        struct.getClass().getMethod("writeTo", ByteBuffer.class).invoke(struct, buffer);
        return base64(json.toString().getBytes(StandardCharsets.UTF_8)) + " " + base64(buffer.array());
    }

    private static void append(StringBuilder json, Object value) throws Exception {
        if (value == null || value instanceof Number) {
            json.append(value);
        } else if (value instanceof String) {
            quote(json, (String) value);
        } else if (value instanceof ByteBuffer) {
            byte[] content = new byte[((ByteBuffer) value).remaining()];
            ((ByteBuffer) value).duplicate().get(content);
            quote(json, base64(content));
        } else if (value instanceof Object[]) {
            String before = "[";
            for (Object element : (Object[]) value) {
                json.append(before);
                append(json, element);
                before = ",";
            }
            json.append(before.equals("[") ? "[]" : "]");
        } else {
            appendFields(json, value);
        }
    }

    private static void appendFields(StringBuilder json, Object struct) throws Exception {
        Object schema = struct.getClass().getMethod("schema").invoke(struct);
        String before = "{";
        for (Object bound : (Object[]) schema.getClass().getMethod("fields").invoke(schema)) {
            Object definition = bound.getClass().getField("def").get(bound);
            String name = (String) definition.getClass().getField("name").get(definition);
            json.append(before);
            quote(json, name);
            json.append(":");
            append(json, struct.getClass().getMethod("get", String.class).invoke(struct, name));
            before = ",";
        }
        json.append("}");
    }

    /** Every character as its escape: shorter to write than the rules for which need one. */
    private static void quote(StringBuilder json, String text) {
        json.append('"');
        for (char unit : text.toCharArray()) {
            json.append(String.format("\\u%04x", (int) unit));
        }
        json.append('"');
    }

    private static String base64(byte[] content) {
        return Base64.getEncoder().encodeToString(content);
    }
}
