import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Constructor;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.util.Arrays;
import java.util.Map;

import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.utils.Time;

/**
 * Appends sets of batches to a new segment with Kafka's own LogSegment, of the version on the class path.
 *
 * A request, fields apart by tabs: directory, base offset, index.interval.bytes, a file of batches, and for each set
 * its size, last offset, largest timestamp and the offset of that, apart by blanks. The answer is how long the segment
 * has waited to be rolled for a record of 1,000,000 ms; it is closed then. By reflection where versions differ.
 */
public class KafkaSegments {
    private static final String[] LOG = {"org.apache.kafka.storage.internals.log.", "kafka.log."};

    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, false, "UTF-8");
        System.setOut(System.err);
        BufferedReader requests =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            out.println(append(line.split("\t", -1)));
        }
        out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static String append(String[] request) throws Exception {
        Object config = config(Map.of("index.interval.bytes", request[2]));
        Object segment = method(type("LogSegment"), "open", 8).invoke(null, new File(request[0]),
            Long.parseLong(request[1]), config, Time.SYSTEM, false, 0, false, "");
        Method append = Arrays.stream(segment.getClass().getMethods())
            .filter(each -> each.getName().equals("append")).findFirst().orElseThrow();
        ByteBuffer batches = ByteBuffer.wrap(Files.readAllBytes(new File(request[3]).toPath()));
        for (int i = 4; i < request.length; i++) {
            long[] set = Arrays.stream(request[i].split(" ")).mapToLong(Long::parseLong).toArray();
            batches.limit(batches.position() + (int) set[0]);
            MemoryRecords records = MemoryRecords.readableRecords(batches.slice());
            batches.position(batches.limit());
            if (append.getParameterCount() == 2) {
                append.invoke(segment, set[1], records);
            } else {
                append.invoke(segment, set[1], set[2], set[3], records);
            }
        }
        Object waited = method(segment.getClass(), "timeWaitedForRoll", 2).invoke(segment, 0L, 1_000_000L);
        method(segment.getClass(), "onBecomeInactiveSegment", 0).invoke(segment);
        method(segment.getClass(), "close", 0).invoke(segment);
        return "" + waited;
    }

    /** The class has a second argument in Scala, the names of the options that a topic overrides. */
    private static Object config(Map<String, String> options) throws Exception {
        Constructor<?>[] all = type("LogConfig").getConstructors();
        for (Constructor<?> constructor : all) {
            if (constructor.getParameterCount() == 1) {
                return constructor.newInstance(options);
            }
        }
        Object none = Class.forName("scala.collection.immutable.Set$EmptySet$").getField("MODULE$").get(null);
        for (Constructor<?> constructor : all) {
            if (constructor.getParameterCount() == 2) {
                return constructor.newInstance(options, none);
            }
        }
        throw new NoSuchMethodException("LogConfig");
    }

    private static Method method(Class<?> type, String name, int parameters) throws Exception {
        return Arrays.stream(type.getMethods())
            .filter(each -> each.getName().equals(name) && each.getParameterCount() == parameters)
            .findFirst().orElseThrow(() -> new NoSuchMethodException(name));
    }

    private static Class<?> type(String name) throws ClassNotFoundException {
        for (String prefix : LOG) {
            try {
                return Class.forName(prefix + name);
            } catch (ClassNotFoundException next) {
                continue;
            }
        }
        throw new ClassNotFoundException(name);
    }
}
