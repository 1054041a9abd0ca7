import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;

/**
 * Reads producer snapshots with Kafka's own class, of the version on the class path.
 *
 * One path a line from standard input; prints the entries, fields apart by commas, or "refused". By reflection: the
 * classes moved from Scala to Java.
 */
public class KafkaProducerSnapshots {
    private static final String[] FIELDS = {
        "producerId", "producerEpoch", "lastSeq", "lastDataOffset", "lastOffsetDelta", "lastTimestamp",
        "coordinatorEpoch", "currentTxnFirstOffset"
    };

    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, false, "UTF-8");
        System.setOut(System.err);
        BufferedReader paths = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String path = paths.readLine(); path != null; path = paths.readLine()) {
            try {
                out.println(entries(path));
            } catch (InvocationTargetException refused) {
                out.println("refused");
            }
        }
        out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static String entries(String path) throws Exception {
        Object found = readSnapshot().invoke(null, new File(path));
        Object iterator = call(found, "iterator");
        StringBuilder out = new StringBuilder();
        while ((Boolean) call(iterator, "hasNext")) {
            Object entry = call(iterator, "next");
            for (String field : FIELDS) {
                out.append(number(call(entry, field))).append(field.equals(FIELDS[7]) ? " " : ",");
            }
        }
        return out.toString().trim();
    }

    private static Method readSnapshot() throws Exception {
        Class<?> type;
        try {
            type = Class.forName("org.apache.kafka.storage.internals.log.ProducerStateManager");
        } catch (ClassNotFoundException older) {
            type = Class.forName("kafka.log.ProducerStateManager");
        }
        return type.getMethod("readSnapshot", File.class);
    }

    /** A number, or the one in a Java or Scala option of it; -1 for none. */
    private static String number(Object value) throws Exception {
        String text = value.toString();
        if (text.equals("None") || text.endsWith(".empty")) {
            return "-1";
        }
        return text.replaceAll("[^0-9-]", "");
    }

    private static Object call(Object target, String name) throws Exception {
        Method method;
        try {
            method = target.getClass().getMethod(name);
        } catch (NoSuchMethodException notPublic) {  // since 4.3
            method = target.getClass().getDeclaredMethod(name);
        }
        method.setAccessible(true);
        return method.invoke(target);
    }
}
