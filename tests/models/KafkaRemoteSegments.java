import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.Iterator;
import java.util.NavigableMap;
import java.util.Optional;
import java.util.TreeMap;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.server.log.remote.metadata.storage.RemoteLogMetadataCache;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentId;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadataUpdate;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentState;

/**
 * Replays records about remote segments with Kafka's own class, of the version on the class path.
 *
 * One history a line from standard input, fields apart by tabs: the records, apart by blanks, each "add:id:start:end:epochs"
 * or "set:id:state"; the leader epochs of the log; its log end offset. Epochs are "epoch,start", apart by semicolons.
 * Prints for each leader epoch of the log its highest offset and its segments, "id/state/within". By reflection: the
 * methods are not public, and RemoteLogManager moved.
 */
public class KafkaRemoteSegments {
    private static final TopicIdPartition PARTITION = new TopicIdPartition(new Uuid(7, 7), new TopicPartition("orders", 3));

    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, false, "UTF-8");
        System.setOut(System.err);
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        for (String request = requests.readLine(); request != null; request = requests.readLine()) {
            out.println(answer(request.split("\t", -1)));
        }
        out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static String answer(String[] request) throws Exception {
        RemoteLogMetadataCache cache = new RemoteLogMetadataCache();
        for (String record : request[0].split(" ")) {
            apply(cache, record.split(":"));
        }
        NavigableMap<Integer, Long> epochs = epochs(request[1]);
        long end = Long.parseLong(request[2]);
        StringBuilder out = new StringBuilder();
        for (Integer epoch : epochs.keySet()) {
            Optional<?> highest = (Optional<?>) call(cache, "highestOffsetForEpoch", int.class, epoch);
            out.append(epoch).append('=').append(highest.isPresent() ? highest.get() : "none");
            Iterator<?> segments = (Iterator<?>) call(cache, "listRemoteLogSegments", int.class, epoch);
            while (segments.hasNext()) {
                RemoteLogSegmentMetadata each = (RemoteLogSegmentMetadata) segments.next();
                out.append(' ').append(each.remoteLogSegmentId().id().getLeastSignificantBits());
                out.append('/').append(each.state().id()).append('/').append(within(each, end, epochs));
            }
            out.append('\t');
        }
        return out.toString();
    }

    private static void apply(RemoteLogMetadataCache cache, String[] record) throws Exception {
        RemoteLogSegmentId id = new RemoteLogSegmentId(PARTITION, new Uuid(0, Long.parseLong(record[1])));
        if (record[0].equals("add")) {
            RemoteLogSegmentMetadata added = new RemoteLogSegmentMetadata(id, Long.parseLong(record[2]), Long.parseLong(record[3]),
                1000L, 1, 1000L, 10, epochs(record[4]));
            call(cache, "addCopyInProgressSegment", RemoteLogSegmentMetadata.class, added);
            return;
        }
        RemoteLogSegmentState state = RemoteLogSegmentState.forId(Byte.parseByte(record[2]));
        RemoteLogSegmentMetadataUpdate update = new RemoteLogSegmentMetadataUpdate(id, 1000L, Optional.empty(), state, 1);
        call(cache, "updateRemoteLogSegmentMetadata", RemoteLogSegmentMetadataUpdate.class, update);
    }

    private static NavigableMap<Integer, Long> epochs(String text) {
        NavigableMap<Integer, Long> found = new TreeMap<>();
        for (String each : text.split(";")) {
            String[] parts = each.split(",");
            found.put(Integer.parseInt(parts[0]), Long.parseLong(parts[1]));
        }
        return found;
    }

    private static boolean within(RemoteLogSegmentMetadata segment, long end, NavigableMap<Integer, Long> epochs) throws Exception {
        Class<?> manager;
        try {
            manager = Class.forName("org.apache.kafka.server.log.remote.storage.RemoteLogManager");
        } catch (ClassNotFoundException older) {
            manager = Class.forName("kafka.log.remote.RemoteLogManager");
        }
        Method method = manager.getDeclaredMethod("isRemoteSegmentWithinLeaderEpochs", RemoteLogSegmentMetadata.class, long.class,
            NavigableMap.class);
        method.setAccessible(true);
        return (boolean) method.invoke(null, segment, end, epochs);
    }

    private static Object call(Object target, String name, Class<?> type, Object argument) throws Exception {
        Method method = target.getClass().getDeclaredMethod(name, type);
        method.setAccessible(true);
        try {
            return method.invoke(target, argument);
        } catch (InvocationTargetException error) {
            throw new IllegalStateException(error.getCause());
        }
    }
}
