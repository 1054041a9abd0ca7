import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Constructor;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.Map;
import org.apache.kafka.common.TopicPartition;

/**
 * Keeps leader epochs with Kafka's own class, of the version on the class path.
 *
 * One history a line from standard input, fields apart by tabs: the checkpoint, the log end offset, the steps, such as
 * "assign:3:17" or "truncateFromEnd:20", apart by blanks, the epochs whose ends are queried, and the offsets whose
 * epochs are. Prints the entries at the beginning and after each step, the ends, and the epochs (nothing in versions
 * that do not know them); or "refused". By reflection: the class moved from Scala to Java.
 */
public class KafkaLeaderEpochs {
    private static long logEndOffset;

    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, false, "UTF-8");
        System.setOut(System.err);
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        for (String request = requests.readLine(); request != null; request = requests.readLine()) {
            try {
                out.println(answer(request.split("\t", -1)));
            } catch (InvocationTargetException refused) {
                out.println("refused");
            }
        }
        out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static String answer(String[] request) throws Exception {
        logEndOffset = Long.parseLong(request[1]);
        Object cache = cache(new File(request[0]));
        StringBuilder out = new StringBuilder(entries(cache));
        for (String step : words(request[2])) {
            String[] parts = step.split(":");
            if (parts.length == 3) {
                call(cache, "assign", Integer.parseInt(parts[1]), Long.parseLong(parts[2]));
            } else if (has(cache, parts[0])) {
                call(cache, parts[0], Long.parseLong(parts[1]));
            } else {
                call(cache, parts[0] + "AsyncFlush", Long.parseLong(parts[1]));
            }
            out.append("\t").append(entries(cache));
        }
        for (String epoch : words(request[3])) {
            Object end = isScala() ? call(cache, "endOffsetFor", Integer.parseInt(epoch))
                : call(cache, "endOffsetFor", Integer.parseInt(epoch), logEndOffset);
            out.append("\t").append(end.toString().replaceAll("[()]", "").replace('=', ','));
        }
        for (String offset : words(request[4])) {
            out.append("\t");
            if (has(cache, "epochForOffset")) {
                out.append(call(cache, "epochForOffset", Long.parseLong(offset)).toString().replaceAll("[^0-9]", ""));
            }
        }
        return out.toString();
    }

    private static String[] words(String text) {
        return text.isEmpty() ? new String[0] : text.split(" ");
    }

    private static boolean isScala() throws Exception {
        return cacheType().getName().startsWith("kafka.");
    }

    private static Class<?> cacheType() throws Exception {
        try {
            return Class.forName("org.apache.kafka.storage.internals.epoch.LeaderEpochFileCache");
        } catch (ClassNotFoundException older) {
            return Class.forName("kafka.server.epoch.LeaderEpochFileCache");
        }
    }

    private static Object cache(File file) throws Exception {
        TopicPartition partition = new TopicPartition("orders", 3);
        for (Constructor<?> each : cacheType().getConstructors()) {
            Class<?>[] wanted = each.getParameterTypes();
            Object[] given = new Object[wanted.length];
            for (int i = 0; i < wanted.length; i++) {
                if (wanted[i] == TopicPartition.class) {
                    given[i] = partition;
                } else if (wanted[i].getName().contains("Checkpoint")) {
                    given[i] = checkpoint(file);
                } else {
                    // The log end offset as a Scala function, or the scheduler that writes the file.
                    given[i] = Proxy.newProxyInstance(wanted[i].getClassLoader(), new Class<?>[] {wanted[i]},
                        (proxy, method, arguments) -> {
                            for (Object argument : arguments == null ? new Object[0] : arguments) {
                                if (argument instanceof Runnable) {
                                    ((Runnable) argument).run();
                                    return null;
                                }
                            }
                            return logEndOffset;
                        });
                }
            }
            return each.newInstance(given);
        }
        throw new NoSuchMethodException("LeaderEpochFileCache");
    }

    private static Object checkpoint(File file) throws Exception {
        Class<?> type;
        try {
            type = Class.forName("org.apache.kafka.storage.internals.checkpoint.LeaderEpochCheckpointFile");
        } catch (ClassNotFoundException older) {
            type = Class.forName("kafka.server.checkpoints.LeaderEpochCheckpointFile");
        }
        for (Constructor<?> each : type.getConstructors()) {
            if (each.getParameterCount() == 2) {
                Object channel = each.getParameterTypes()[1].getConstructor(int.class).newInstance(10);
                return each.newInstance(file, channel);
            }
        }
        throw new NoSuchMethodException("LeaderEpochCheckpointFile");
    }

    private static String entries(Object cache) throws Exception {
        return call(cache, "epochEntries").toString().replaceAll("[^0-9,]", "").replaceAll("^,+|,+$", "");
    }

    private static boolean has(Object target, String name) {
        for (Method method : target.getClass().getMethods()) {
            if (method.getName().equals(name)) {
                return true;
            }
        }
        return false;
    }

    private static Object call(Object target, String name, Object... arguments) throws Exception {
        for (Method method : target.getClass().getMethods()) {
            if (method.getName().equals(name) && method.getParameterCount() == arguments.length) {
                method.setAccessible(true);
                return method.invoke(target, arguments);
            }
        }
        throw new NoSuchMethodException(target.getClass() + "." + name);
    }
}
