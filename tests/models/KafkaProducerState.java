import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.MutableRecordBatch;
import org.apache.kafka.common.utils.Time;

/**
 * Follows producers with Kafka's own class, of the version on the class path.
 *
 * One request a line from standard input, fields apart by tabs:
 *
 *   new DIRECTORY                 begin with nothing; snapshots go into the directory
 *   load FILE                     begin with the entries of a snapshot
 *   append ORIGIN VERSION HEX     append batches together, as Log.append does, at a version of transactions
 *   replay HEX                    take in batches one by one, as LogSegment.recover does
 *   watermark OFFSET              the high watermark is there now
 *   state PRODUCER...             the first undecided and the first unstable offset, the batches that are remembered,
 *                                 and the snapshot's path
 *
 * An append or a replay is answered with the entries of the transaction index, "duplicate" with what is known of it, or
 * the name of the exception. By reflection: the classes moved from Scala to Java.
 */
public class KafkaProducerState {
    private static Object state;
    private static File directory;
    private static long snapshots;

    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, false, "UTF-8");
        System.setOut(System.err);
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        for (String request = requests.readLine(); request != null; request = requests.readLine()) {
            try {
                out.println(answer(request.split("\t")));
            } catch (InvocationTargetException refused) {
                out.println(refused.getCause().getClass().getSimpleName());
            }
        }
        out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static String answer(String[] request) throws Exception {
        switch (request[0]) {
            case "new":
                directory = new File(request[1]);
                state = manager();
                return "ok";
            case "load":
                state = manager();
                Object entries = type("ProducerStateManager").getMethod("readSnapshot", File.class)
                    .invoke(null, new File(request[1]));
                Object iterator = call(entries, "iterator");
                while ((Boolean) call(iterator, "hasNext")) {
                    call(state, "loadProducerEntry", call(iterator, "next"));
                }
                return "ok";
            case "append":
                return append(request[1], Short.parseShort(request[2]), batches(request[3]));
            case "replay":
                StringBuilder found = new StringBuilder();
                for (MutableRecordBatch batch : batches(request[1])) {
                    List<MutableRecordBatch> one = new ArrayList<>();
                    one.add(batch);
                    found.append(append("replication", (short) 0, one));
                }
                return found.toString();
            case "watermark":
                call(state, "onHighWatermarkUpdated", Long.parseLong(request[1]));
                return "ok";
            default:
                return shown(request);
        }
    }

    private static String append(String origin, short transactionVersion, Iterable<MutableRecordBatch> batches)
            throws Exception {
        Map<Long, Object> updated = new LinkedHashMap<>();
        List<Object> completed = new ArrayList<>();
        for (MutableRecordBatch batch : batches) {
            if (!batch.hasProducerId()) {
                continue;
            }
            Long producerId = batch.producerId();
            Object last = value(call(state, "lastEntry", producerId));
            Object duplicate = origin.equals("client") && last != null
                ? value(call(last, "findDuplicateBatch", batch)) : null;
            if (duplicate != null) {
                return "duplicate " + get(duplicate, "firstOffset") + "," + get(duplicate, "lastOffset") + ","
                    + get(duplicate, "timestamp");
            }
            if (!updated.containsKey(producerId)) {
                updated.put(producerId, call(state, "prepareUpdate", producerId, origin(origin)));
            }
            Object done = value(appended(updated.get(producerId), batch, transactionVersion));
            if (done != null) {
                completed.add(done);
            }
        }
        for (Object info : updated.values()) {
            call(state, "update", info);
        }
        StringBuilder index = new StringBuilder();
        for (Object txn : completed) {
            Object lastStableOffset = call(state, "lastStableOffset", txn);
            if ((Boolean) get(txn, "isAborted")) {
                index.append(get(txn, "producerId")).append(",").append(get(txn, "firstOffset")).append(",")
                    .append(get(txn, "lastOffset")).append(",").append(lastStableOffset).append(" ");
            }
            call(state, "completeTxn", txn);
        }
        return index.toString();
    }

    /** Appends a batch; since 4.2 at a version of transactions. */
    private static Object appended(Object info, Object batch, short transactionVersion) throws Exception {
        for (Method method : info.getClass().getMethods()) {
            if (method.getName().equals("append") && method.getParameterCount() == 3) {
                return call(info, "append", batch, none(), transactionVersion);
            }
        }
        return call(info, "append", batch, none());
    }

    private static String shown(String[] request) throws Exception {
        call(state, "updateMapEndOffset", ++snapshots);
        call(state, "takeSnapshot");
        Object unstable = value(call(state, "firstUnstableOffset"));
        StringBuilder out = new StringBuilder();
        out.append(value(call(state, "firstUndecidedOffset"))).append("\t")
            .append(unstable == null ? null : get(unstable, "messageOffset"));
        for (int i = 1; i < request.length; i++) {
            Object entry = value(call(state, "lastEntry", Long.parseLong(request[i])));
            String batches = entry == null ? "" : call(entry, "batchMetadata").toString();
            out.append("\t").append(batches.replaceAll("[^0-9,-]", ""));
        }
        return out.append("\t").append(new File(directory, String.format("%020d.snapshot", snapshots))).toString();
    }

    private static Iterable<MutableRecordBatch> batches(String hex) {
        byte[] bytes = new byte[hex.length() / 2];
        for (int i = 0; i < bytes.length; i++) {
            bytes[i] = (byte) Integer.parseInt(hex.substring(2 * i, 2 * i + 2), 16);
        }
        return MemoryRecords.readableRecords(ByteBuffer.wrap(bytes)).batches();
    }

    private static boolean isScala() {
        return type("ProducerStateManager").getName().startsWith("kafka.");
    }

    private static Class<?> type(String name) {
        for (String place : new String[] {"org.apache.kafka.storage.internals.log.", "kafka.log."}) {
            try {
                return Class.forName(place + name);
            } catch (ClassNotFoundException elsewhere) {
                continue;
            }
        }
        throw new IllegalStateException(name);
    }

    private static Object manager() throws Exception {
        TopicPartition partition = new TopicPartition("orders", 3);
        Class<?> type = type("ProducerStateManager");
        if (isScala()) {
            return type.getConstructor(TopicPartition.class, File.class, int.class)
                .newInstance(partition, directory, Integer.MAX_VALUE);
        }
        Class<?> configType = type("ProducerStateManagerConfig");
        Object config = configType.getConstructor(int.class, boolean.class).newInstance(Integer.MAX_VALUE, false);
        return type.getConstructor(TopicPartition.class, File.class, int.class, configType, Time.class)
            .newInstance(partition, directory, 900000, config, Time.SYSTEM);
    }

    private static Object origin(String name) throws Exception {
        if (isScala()) {
            return name.equals("client");
        }
        return type("AppendOrigin").getField(name.toUpperCase(java.util.Locale.ROOT)).get(null);
    }

    private static Object none() throws Exception {
        return isScala() ? Class.forName("scala.None$").getField("MODULE$").get(null) : java.util.Optional.empty();
    }

    /** What a Java or Scala option holds; null for none. */
    private static Object value(Object option) throws Exception {
        boolean isThere = option.getClass().getName().startsWith("scala.")
            ? (Boolean) call(option, "isDefined") : (Boolean) call(option, "isPresent");
        if (!isThere) {
            return null;
        }
        return option instanceof java.util.OptionalLong ? ((java.util.OptionalLong) option).getAsLong()
            : call(option, "get");
    }

    /** What a method without arguments or a field says. */
    private static Object get(Object target, String name) throws Exception {
        for (Method method : target.getClass().getMethods()) {
            if (method.getName().equals(name) && method.getParameterCount() == 0) {
                return call(target, name);
            }
        }
        Field field = target.getClass().getField(name);
        return field.get(target);
    }

    private static Object call(Object target, String name, Object... arguments) throws Exception {
        List<Method> methods = new ArrayList<>(List.of(target.getClass().getMethods()));
        methods.addAll(List.of(target.getClass().getDeclaredMethods()));  // some are of the package since 4.3
        for (Method method : methods) {
            if (method.getName().equals(name) && fits(method.getParameterTypes(), arguments)) {
                method.setAccessible(true);
                return method.invoke(target, arguments);
            }
        }
        throw new NoSuchMethodException(target.getClass() + "." + name);
    }

    private static boolean fits(Class<?>[] wanted, Object[] given) {
        if (wanted.length != given.length) {
            return false;
        }
        for (int i = 0; i < wanted.length; i++) {
            if (!wanted[i].isPrimitive() && !wanted[i].isInstance(given[i])) {
                return false;
            }
        }
        return true;
    }
}
