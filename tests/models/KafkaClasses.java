import java.io.File;
import java.io.FileInputStream;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Base64;
import java.util.Collection;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.TreeSet;

/**
 * Queries Kafka's own classes, of the version on the class path.
 *
 * Reads requests from standard input, one a line, fields apart by tabs; prints one answer a line. An answer that
 * was an exception is "refused". By reflection throughout: the classes moved from Scala to Java and between packages.
 */
public class KafkaClasses {
    private static final Map<String, Object> opened = new HashMap<>();
    private static final String[] LOG = {"org.apache.kafka.storage.internals.log.", "kafka.log."};
    private static final int LARGEST_INDEX = 10485760;
    private static final String[] CHECKPOINT =
        {"org.apache.kafka.storage.internals.checkpoint.", "kafka.server.checkpoints."};

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

    @SuppressWarnings("unchecked")
    private static String answer(String[] request) throws Exception {
        switch (request[0]) {
            case "directory":
                return directory(text(request[1]));
            case "offsets":
                return sorted(call(checkpoint("OffsetCheckpointFile", request[1]), "read"));
            case "epochs":
                return listed(call(checkpoint("LeaderEpochCheckpointFile", request[1]), "read"));
            case "topic-id":
                return "" + call(call(checkpoint("PartitionMetadataFile", request[1]), "read"), "topicId");
            case "topic-options":
                return String.join(" ", new TreeSet<>((Collection<String>) type(LOG, "LogConfig")
                    .getMethod("configNames").invoke(null)));
            case "properties":
                return properties(request[1]);
            default:
                return index(request);
        }
    }

    private static String index(String[] request) throws Exception {
        String kind = request[0], path = request[1], operation = request[3];
        long base = Long.parseLong(request[2]);
        if (operation.equals("truncate")) {
            Object index = open(kind, path, base, LARGEST_INDEX);
            index.getClass().getMethod("truncateTo", long.class).invoke(index, Long.parseLong(request[4]));
            return kind.equals("transaction") ? "" + new File(path).length() / 34 : "" + call(index, "entries");
        }
        if (operation.equals("append")) {
            return append(request);
        }
        Object index = opened.get(path);
        if (index == null) {
            opened.clear();
            index = open(kind, path, base, LARGEST_INDEX);
            opened.put(path, index);
        }
        switch (operation) {
            case "all":
                return transactions(call(index, "allAbortedTxns"));
            case "collect":
                Object found = index.getClass().getMethod("collectAbortedTxns", long.class, long.class)
                    .invoke(index, Long.parseLong(request[4]), Long.parseLong(request[5]));
                return (get(found, "isComplete") + " " + transactions(get(found, "abortedTransactions"))).trim();
            case "lookup":
                return pair(kind, index.getClass().getMethod("lookup", long.class)
                    .invoke(index, Long.parseLong(request[4])));
            case "upper":
                return upper(index, Integer.parseInt(request[4]), Integer.parseInt(request[5]));
            case "count":
                return "" + call(index, "entries");
            case "last":
                return kind.equals("time") ? pair(kind, call(index, "lastEntry"))
                    : "" + call(index, "lastOffset");
            case "check":
                call(index, "sanityCheck");
                return "sound";
            default:
                throw new IllegalArgumentException(operation);
        }
    }

    /** Appends entries to a new index; for each "x" if it was refused, else "."; then closes it, or leaves it open. */
    private static String append(String[] request) throws Exception {
        String kind = request[0];
        Object index = open(kind, request[1], Long.parseLong(request[2]), Integer.parseInt(request[5]));
        StringBuilder outcomes = new StringBuilder();
        for (int i = 6; i < request.length; i++) {
            long[] numbers = Arrays.stream(request[i].split(" ")).mapToLong(Long::parseLong).toArray();
            try {
                appendEntry(kind, index, numbers);
                outcomes.append('.');
            } catch (InvocationTargetException refused) {
                outcomes.append('x');
            }
        }
        call(index, request[4]);
        return outcomes.toString();
    }

    private static void appendEntry(String kind, Object index, long[] numbers) throws Exception {
        Class<?> type = index.getClass();
        if (kind.equals("offset")) {
            type.getMethod("append", long.class, int.class).invoke(index, numbers[0], (int) numbers[1]);
        } else if (kind.equals("time")) {
            type.getMethod("maybeAppend", long.class, long.class, boolean.class)
                .invoke(index, numbers[0], numbers[1], numbers[2] != 0);
        } else {
            Class<?> entry = type(LOG, "AbortedTxn");
            Object made = entry.getConstructor(long.class, long.class, long.class, long.class)
                .newInstance(numbers[0], numbers[1], numbers[2], numbers[3]);
            type.getMethod("append", entry).invoke(index, made);
        }
    }

    /** The entries of a Scala or a Java list of AbortedTxn. */
    private static String transactions(Object list) throws Exception {
        StringBuilder out = new StringBuilder();
        Object iterator = call(list, "iterator");
        while ((Boolean) call(iterator, "hasNext")) {
            Object entry = call(iterator, "next");
            for (String name : new String[] {"producerId", "firstOffset", "lastOffset", "lastStableOffset"}) {
                out.append(call(entry, name)).append(name.equals("lastStableOffset") ? " " : ":");
            }
        }
        return out.toString().trim();
    }

    private static Object open(String kind, String path, long base, int largest) throws Exception {
        if (kind.equals("transaction")) {
            return type(LOG, "TransactionIndex").getConstructor(long.class, File.class).newInstance(base, new File(path));
        }
        Class<?> type = type(LOG, kind.equals("time") ? "TimeIndex" : "OffsetIndex");
        for (Constructor<?> constructor : type.getConstructors()) {
            Object[] all = {new File(path), base, largest, true};
            int count = constructor.getParameterCount();
            if (count >= 3 && count <= 4) {
                return constructor.newInstance(Arrays.copyOf(all, count));
            }
        }
        throw new NoSuchMethodException(type.getName());
    }

    private static String upper(Object index, int position, int size) throws Exception {
        Object start = type(LOG, "OffsetPosition").getConstructors()[0].newInstance(0L, position);
        for (Method method : index.getClass().getMethods()) {
            if (method.getName().equals("fetchUpperBoundOffset")) {
                Object found = method.invoke(index, start, size);
                boolean empty = found.toString().equals("None") || found.toString().equals("Optional.empty");
                return empty ? "none" : pair("offset", call(found, "get"));
            }
        }
        return "unknown";
    }

    private static String directory(String name) throws Exception {
        for (String holder : new String[] {"LocalLog", "UnifiedLog", "Log"}) {
            try {
                Method method = type(LOG, holder).getMethod("parseTopicPartitionName", File.class);
                Object parsed = method.invoke(null, new File("/logs", name));
                return base64("" + call(parsed, "topic")) + " " + call(parsed, "partition");
            } catch (ClassNotFoundException | NoSuchMethodException next) {
                continue;
            }
        }
        throw new NoSuchMethodException("parseTopicPartitionName");
    }

    private static Object checkpoint(String name, String path) throws Exception {
        Class<?> type = type(CHECKPOINT, name);
        for (Constructor<?> constructor : type.getConstructors()) {
            if (constructor.getParameterCount() == 2) {
                Class<?> channel = constructor.getParameterTypes()[1];
                Constructor<?> made = channel.getConstructors()[0];
                return constructor.newInstance(new File(path), made.newInstance(10));
            }
        }
        return type.getConstructor(File.class).newInstance(new File(path));
    }

    private static String properties(String path) throws Exception {
        Properties properties = new Properties();
        try (FileInputStream in = new FileInputStream(path)) {
            properties.load(in);
        } catch (IllegalArgumentException refused) {
            return "refused";
        }
        StringBuilder out = new StringBuilder();
        for (Map.Entry<Object, Object> entry : new TreeMap<>(properties).entrySet()) {
            out.append(base64((String) entry.getKey())).append("=").append(base64((String) entry.getValue())).append(" ");
        }
        return out.toString().trim();
    }

    /** The entries of a Scala or a Java map of TopicPartition to offset. */
    private static String sorted(Object map) throws Exception {
        TreeMap<String, Object> entries = new TreeMap<>();
        if (map instanceof Map) {
            for (Map.Entry<?, ?> entry : ((Map<?, ?>) map).entrySet()) {
                entries.put(partition(entry.getKey()), entry.getValue());
            }
        } else {
            Object iterator = call(map, "iterator");
            while ((Boolean) call(iterator, "hasNext")) {
                Object entry = call(iterator, "next");
                entries.put(partition(call(entry, "_1")), call(entry, "_2"));
            }
        }
        StringBuilder out = new StringBuilder();
        entries.forEach((key, value) -> out.append(key).append(":").append(value).append(" "));
        return out.toString().trim();
    }

    private static String partition(Object topicPartition) throws Exception {
        return base64("" + call(topicPartition, "topic")) + ":" + call(topicPartition, "partition");
    }

    /** The entries of a Scala or a Java list of EpochEntry. */
    private static String listed(Object list) throws Exception {
        StringBuilder out = new StringBuilder();
        Object iterator = call(list, "iterator");
        while ((Boolean) call(iterator, "hasNext")) {
            Object entry = call(iterator, "next");
            out.append(field(entry, "epoch")).append(":").append(field(entry, "startOffset")).append(" ");
        }
        return out.toString().trim();
    }

    private static String pair(String kind, Object entry) throws Exception {
        return kind.equals("time") ? field(entry, "timestamp") + " " + field(entry, "offset")
            : field(entry, "offset") + " " + field(entry, "position");
    }

    private static Class<?> type(String[] packages, String name) throws ClassNotFoundException {
        for (String prefix : packages) {
            try {
                return Class.forName(prefix + name);
            } catch (ClassNotFoundException next) {
                continue;
            }
        }
        throw new ClassNotFoundException(name);
    }

    private static Object call(Object target, String name) throws Exception {
        Method method = target.getClass().getMethod(name);
        method.setAccessible(true);
        return method.invoke(target);
    }

    /** A value that was a method of a Scala class and is a field of a Java class. */
    private static Object get(Object target, String name) throws Exception {
        try {
            return call(target, name);
        } catch (NoSuchMethodException field) {
            return field(target, name);
        }
    }

    private static Object field(Object target, String name) throws Exception {
        Field field = target.getClass().getDeclaredField(name);
        field.setAccessible(true);
        return field.get(target);
    }

    private static String text(String base64) {
        return new String(Base64.getDecoder().decode(base64), StandardCharsets.UTF_8);
    }

    private static String base64(String text) {
        return Base64.getEncoder().encodeToString(text.getBytes(StandardCharsets.UTF_8));
    }
}
