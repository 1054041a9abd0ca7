import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Constructor;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Base64;

import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.record.CompressionType;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.utils.Time;

/**
 * Gives a batch offsets with Kafka's own LogValidator, of the version on the class path.
 *
 * A request, fields apart by tabs: the batch in base64, the names of its codec and of the one that it is to have, the
 * log end offset, the leader epoch, CREATE_TIME or LOG_APPEND_TIME and the clock. The answer, apart by blanks: the
 * largest timestamp, the offset that a time index gets with it (-1 where that is not said), and the batch in base64.
 */
public class KafkaValidator {
    private static final String LOG = "org.apache.kafka.storage.internals.log.";

    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, false, "UTF-8");
        System.setOut(System.err);
        BufferedReader requests =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            out.println(validate(line.split("\t", -1)));
        }
        out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static String validate(String[] request) throws Exception {
        Object result;
        try {
            result = inJava(request);
        } catch (ClassNotFoundException scala) {
            result = inScala(request);
        }
        MemoryRecords records = (MemoryRecords) value(result, "validatedRecords");
        ByteBuffer left = records.buffer().duplicate();
        byte[] bytes = new byte[left.remaining()];
        left.get(bytes);
        String largest;
        try {
            largest = value(result, "maxTimestamp") + " " + value(result, "shallowOffsetOfMaxTimestamp");
        } catch (NoSuchFieldException since) {
            largest = value(result, "maxTimestampMs") + " -1";
        }
        return largest + " " + Base64.getEncoder().encodeToString(bytes);
    }

    private static Object inJava(String[] request) throws Exception {
        Constructor<?> constructor = Class.forName(LOG + "LogValidator").getConstructors()[0];
        Object[] all = {
            batch(request), new TopicPartition("t", 0), clock(Long.parseLong(request[6])),
            codec(request[1]), compression(request[2]), false, (byte) 2, TimestampType.valueOf(request[5]),
            Long.MAX_VALUE, Long.MAX_VALUE, Integer.parseInt(request[4]), constant(LOG + "AppendOrigin", "CLIENT"), null,
        };
        if (constructor.getParameterCount() == all.length) {
            Class<?> version = constructor.getParameterTypes()[all.length - 1];
            all[all.length - 1] = version.getMethod("latestProduction").invoke(null);
        }
        Object validator = constructor.newInstance(Arrays.copyOf(all, constructor.getParameterCount()));
        Class<?> recorder = Class.forName(LOG + "LogValidator$MetricsRecorder");
        InvocationHandler ignores = (proxy, called, values) -> null;
        Object counter = Class.forName("org.apache.kafka.common.utils.PrimitiveRef")
            .getMethod("ofLong", long.class).invoke(null, Long.parseLong(request[3]));
        return validation(validator.getClass()).invoke(validator, counter,
            Proxy.newProxyInstance(recorder.getClassLoader(), new Class<?>[] {recorder}, ignores),
            Class.forName("org.apache.kafka.common.utils.BufferSupplier").getMethod("create").invoke(null));
    }

    private static Object inScala(String[] request) throws Exception {
        Object validator = Class.forName("kafka.log.LogValidator$").getField("MODULE$").get(null);
        Method codec = Class.forName("kafka.message.CompressionCodec").getMethod("getCompressionCodec", int.class);
        long now = Long.parseLong(request[6]);
        return validation(validator.getClass()).invoke(validator,
            batch(request), new TopicPartition("t", 0),
            Class.forName("kafka.common.LongRef").getConstructor(long.class).newInstance(Long.parseLong(request[3])),
            Time.SYSTEM, now, codec.invoke(null, CompressionType.valueOf(request[1]).id),
            codec.invoke(null, CompressionType.valueOf(request[2]).id), false, (byte) 2,
            TimestampType.valueOf(request[5]), Long.MAX_VALUE, Integer.parseInt(request[4]), true,
            Class.forName("kafka.api.ApiVersion").getMethod("latestVersion").invoke(null),
            Class.forName("kafka.server.BrokerTopicStats").getConstructor().newInstance());
    }

    private static MemoryRecords batch(String[] request) {
        return MemoryRecords.readableRecords(ByteBuffer.wrap(Base64.getDecoder().decode(request[0])));
    }

    private static Method validation(Class<?> validator) {
        return Arrays.stream(validator.getMethods())
            .filter(each -> each.getName().equals("validateMessagesAndAssignOffsets")).findFirst().orElseThrow();
    }

    /** A value that was a method of a Scala class and is a field of a Java class. */
    private static Object value(Object target, String name) throws Exception {
        try {
            return target.getClass().getMethod(name).invoke(target);
        } catch (NoSuchMethodException field) {
            return target.getClass().getField(name).get(target);
        }
    }

    private static Object codec(String name) throws Exception {
        return constant("org.apache.kafka.common.record.CompressionType", name);
    }

    private static Object compression(String name) throws Exception {
        Class<?> type = Class.forName("org.apache.kafka.common.compress.Compression");
        Object builder = type.getMethod("of", Class.forName("org.apache.kafka.common.record.CompressionType"))
            .invoke(null, codec(name));
        Method build = Class.forName("org.apache.kafka.common.compress.Compression$Builder").getMethod("build");
        return build.invoke(builder);
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    private static Object constant(String type, String name) throws Exception {
        return Enum.valueOf((Class<Enum>) Class.forName(type), name);
    }

    /** The system's clock, but for the one requested time. */
    private static Time clock(long now) {
        InvocationHandler clock = (proxy, called, values) ->
            called.getName().equals("milliseconds") ? (Object) now : called.invoke(Time.SYSTEM, values);
        return (Time) Proxy.newProxyInstance(Time.class.getClassLoader(), new Class<?>[] {Time.class}, clock);
    }
}
