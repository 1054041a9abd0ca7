import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Constructor;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.CompressionType;
import org.apache.kafka.common.record.ControlRecordType;
import org.apache.kafka.common.record.DefaultRecordBatch;
import org.apache.kafka.common.record.EndTransactionMarker;
import org.apache.kafka.common.record.FileRecords;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.MemoryRecordsBuilder;
import org.apache.kafka.common.record.Record;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.kafka.common.record.Records;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.utils.ByteBufferOutputStream;
import org.apache.kafka.common.utils.Time;

/**
 * Has Kafka's own classes write, read and search record batches.
 *
 * Compiled against the version that is used; by reflection where a signature differs between versions. Reads
 * requests from standard input, one a line, fields apart by tabs; prints one answer a line. Bytes are "x" and
 * hexadecimal, null is "-". An answer that was an exception is "refused" and its class.
 */
public class KafkaRecords {
    private static final Map<String, FileRecords> opened = new HashMap<>();

    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, false, "UTF-8");
        System.setOut(System.err);
        BufferedReader requests =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            String answer;
            try {
                answer = answer(new Fields(line));
            } catch (InvocationTargetException refused) {
                answer = "refused " + refused.getCause().getClass().getSimpleName();
            } catch (RuntimeException | Error refused) {
                answer = "refused " + refused.getClass().getSimpleName();
            }
            out.println(answer);
        }
        out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static String answer(Fields args) throws Exception {
        String operation = args.next();
        switch (operation) {
            case "build":
                return build(args);
            case "empty":
                return empty(args);
            case "read":
                return shown(MemoryRecords.readableRecords(ByteBuffer.wrap(args.bytes())), args.flag());
            case "write file":
                return write(new File(args.next()), args);
            case "read file":
                try (FileRecords file = FileRecords.open(new File(args.next()), false)) {
                    return shown(file, args.flag());
                }
            case "recover":
                return recover(new File(args.next()), args.number(), args.next());
            case "search offset":
                return searchForOffset(open(args.next()), args.number(), (int) args.number());
            case "search timestamp":
                FileRecords.TimestampAndOffset found = open(args.next())
                    .searchForTimestamp(args.number(), (int) args.number(), args.number());
                return found == null ? "none"
                    : found.timestamp + " " + found.offset + " " + found.leaderEpoch.orElse(-1);
            default:
                throw new NoSuchMethodException(operation);
        }
    }

    /** What MemoryRecordsBuilder makes of records, or of an end transaction marker. */
    private static String build(Fields args) throws Exception {
        byte magic = (byte) args.number();
        CompressionType codec = CompressionType.forId((int) args.number());
        TimestampType timestampType = TimestampType.forName(args.next());
        long appendTime = args.number(), baseOffset = args.number();
        String lastOffset = args.next();
        int leaderEpoch = (int) args.number();
        long producerId = args.number();
        short producerEpoch = (short) args.number();
        int baseSequence = (int) args.number();
        boolean isTransactional = args.flag(), isControl = args.flag();
        String deleteHorizon = args.next();
        ByteBufferOutputStream out = new ByteBufferOutputStream(512);
        List<Object> fields = new ArrayList<>(Arrays.asList(out, magic, compression(codec), timestampType, baseOffset,
            appendTime, producerId, producerEpoch, baseSequence, isTransactional, isControl, leaderEpoch,
            Integer.MAX_VALUE));
        if (!deleteHorizon.equals("-")) {
            fields.add(Long.parseLong(deleteHorizon));
        }
        MemoryRecordsBuilder builder = builder(fields.toArray());
        while (args.hasNext()) {
            long offset = args.number(), timestamp = args.number();
            if (isControl) {
                ControlRecordType type = ControlRecordType.valueOf(args.next());
                builder.appendEndTxnMarker(timestamp, new EndTransactionMarker(type, (int) args.number()));
                continue;
            }
            byte[] key = args.bytes(), value = args.bytes();
            Header[] headers = new Header[(int) args.number()];
            for (int i = 0; i < headers.length; i++) {
                headers[i] = new RecordHeader(new String(args.bytes(), StandardCharsets.UTF_8), args.bytes());
            }
            builder.appendWithOffset(offset, timestamp, key, value, headers);
        }
        if (!lastOffset.equals("-")) {
            builder.overrideLastOffset(Long.parseLong(lastOffset));
        }
        MemoryRecords built = builder.build();
        return hex(built.buffer()) + "\t" + shown(built, true);
    }

    private static MemoryRecordsBuilder builder(Object[] fields) throws Exception {
        for (Constructor<?> constructor : MemoryRecordsBuilder.class.getConstructors()) {
            if (constructor.getParameterCount() == fields.length
                    && constructor.getParameterTypes()[0] == ByteBufferOutputStream.class) {
                return (MemoryRecordsBuilder) constructor.newInstance(fields);
            }
        }
        throw new UnsupportedOperationException("no delete horizon before 3.0");
    }

    /** The builder's argument for a codec: its type, or since 3.8 an object made for it. */
    private static Object compression(CompressionType codec) throws Exception {
        Class<?> compression;
        try {
            compression = Class.forName("org.apache.kafka.common.compress.Compression");
        } catch (ClassNotFoundException older) {
            return codec;
        }
        Object maker = compression.getMethod("of", CompressionType.class).invoke(null, codec);
        Method build = Class.forName("org.apache.kafka.common.compress.Compression$Builder").getMethod("build");
        return build.invoke(maker);
    }

    /** The header that compaction leaves of a batch without records. */
    private static String empty(Fields args) throws Exception {
        ByteBuffer out = ByteBuffer.allocate(DefaultRecordBatch.RECORD_BATCH_OVERHEAD);
        TimestampType timestampType = TimestampType.forName(args.next());
        long timestamp = args.number(), baseOffset = args.number(), lastOffset = args.number();
        int leaderEpoch = (int) args.number();
        DefaultRecordBatch.writeEmptyHeader(out, RecordBatch.MAGIC_VALUE_V2, args.number(), (short) args.number(),
            (int) args.number(), baseOffset, lastOffset, leaderEpoch, timestampType, timestamp, args.flag(),
            args.flag());
        out.flip();
        return hex(out) + "\t" + shown(MemoryRecords.readableRecords(out), true);
    }

    private static String write(File path, Fields args) throws IOException {
        try (FileRecords file = FileRecords.open(path)) {
            while (args.hasNext()) {
                file.append(MemoryRecords.readableRecords(ByteBuffer.wrap(args.bytes())));
            }
            return "" + file.sizeInBytes();
        }
    }

    /** Recovers the segment in a directory, of which only the log is there; the bytes that are cut. */
    private static String recover(File directory, long baseOffset, String indexInterval) throws Exception {
        Map<String, String> settings = new HashMap<>();
        settings.put("index.interval.bytes", indexInterval);
        Class<?> config = type("LogConfig"), segment = type("LogSegment"), producers = type("ProducerStateManager");
        Object configured = construct(config, settings, optional(config, "$lessinit$greater$default$2"));
        TopicPartition partition = new TopicPartition("t", 0);
        Object segments = segment.getMethod("open", File.class, long.class, config, Time.class, boolean.class, int.class,
            boolean.class, String.class).invoke(null, directory, baseOffset, configured, Time.SYSTEM, true, 0, false, "");
        Object states = producers.getConstructors()[0].getParameterCount() == 3
            ? construct(producers, partition, directory, 1000)
            : construct(producers, partition, directory, 1000, construct(type("ProducerStateManagerConfig"), 1000, false),
                Time.SYSTEM);
        for (Method method : segment.getMethods()) {
            if (method.getName().equals("recover")) {
                Object cut = method.invoke(segments, states, epochs(method.getParameterTypes()[1], partition, directory));
                segment.getMethod("close").invoke(segments);
                return "" + cut;
            }
        }
        throw new NoSuchMethodException("recover");
    }

    /** No leader epochs; since 4.0 they can't be left out. */
    private static Object epochs(Class<?> wanted, TopicPartition partition, File directory) throws Exception {
        if (wanted == Optional.class) {
            return Optional.empty();
        }
        if (wanted.getName().equals("scala.Option")) {
            return Class.forName("scala.None$").getField("MODULE$").get(null);
        }
        Class<?> failures = type("LogDirFailureChannel");
        Class<?> checkpoint = Class.forName("org.apache.kafka.storage.internals.checkpoint.LeaderEpochCheckpointFile");
        Class<?> scheduler = Class.forName("org.apache.kafka.server.util.Scheduler");
        Object idle = Proxy.newProxyInstance(KafkaRecords.class.getClassLoader(), new Class<?>[] {scheduler},
            (proxy, method, arguments) -> null);
        return construct(wanted, partition,
            construct(checkpoint, new File(directory, "leader-epoch-checkpoint"), construct(failures, 1)), idle);
    }

    private static Class<?> type(String name) throws ClassNotFoundException {
        try {
            return Class.forName("org.apache.kafka.storage.internals.log." + name);
        } catch (ClassNotFoundException older) {
            return Class.forName("kafka.log." + name);
        }
    }

    /** A new object, of as many arguments as a constructor takes. */
    private static Object construct(Class<?> type, Object... arguments) throws Exception {
        Object[] given = Arrays.stream(arguments).filter(argument -> argument != null).toArray();
        for (Constructor<?> constructor : type.getConstructors()) {
            if (constructor.getParameterCount() == given.length) {
                return constructor.newInstance(given);
            }
        }
        throw new NoSuchMethodException(type.getName());
    }

    /** What a static method returns, null if it does not exist. */
    private static Object optional(Class<?> type, String name) throws Exception {
        try {
            return type.getMethod(name).invoke(null);
        } catch (NoSuchMethodException absent) {
            return null;
        }
    }

    private static FileRecords open(String path) throws IOException {
        FileRecords file = opened.get(path);
        if (file == null) {
            file = FileRecords.open(new File(path), false);
            opened.put(path, file);
        }
        return file;
    }

    /** Position and size of a batch; its offset is the first one since 4.1, and the last one before. */
    private static String searchForOffset(FileRecords file, long target, int position) throws Exception {
        for (Method method : FileRecords.class.getMethods()) {
            if (method.getName().startsWith("searchForOffset")) {
                FileRecords.LogOffsetPosition found =
                    (FileRecords.LogOffsetPosition) method.invoke(file, target, position);
                return found == null ? "none" : found.position + " " + found.size;
            }
        }
        throw new NoSuchMethodException("searchForOffset...");
    }

    /**
     * All fields of all batches and records; a batch and each of its records apart by tabs. Ends with "refused" and
     * the class of the exception at the first batch that Kafka refuses.
     */
    private static String shown(Records records, boolean checksums) throws Exception {
        StringBuilder out = new StringBuilder();
        String refused = "";
        try {
            for (RecordBatch batch : records.batches()) {
                StringBuilder one = new StringBuilder();
                if (checksums) {
                    batch.ensureValid();
                }
                show(batch, one);
                out.append(one);
            }
        } catch (RuntimeException | Error thrown) {
            refused = "refused " + thrown.getClass().getSimpleName();
        }
        return (out + refused).trim();
    }

    private static void show(RecordBatch batch, StringBuilder out) throws Exception {
        join(out, "batch", batch.baseOffset(), batch.lastOffset(), batch.nextOffset(), batch.sizeInBytes(),
            batch.magic(), batch.compressionType().id, batch.timestampType().id, batch.maxTimestamp(),
            batch.partitionLeaderEpoch(), batch.producerId(), batch.producerEpoch(), batch.baseSequence(),
            batch.isTransactional(), batch.isControlBatch(), batch.countOrNull(), deleteHorizon(batch),
            batch.checksum());
        Iterator<Record> records = batch.iterator();
        while (records.hasNext()) {
            Record record = records.next();
            out.append('\t');
            join(out, record.offset(), record.timestamp(), hex(record.key()), hex(record.value()));
            for (Header header : record.headers()) {
                join(out, hex(header.key().getBytes(StandardCharsets.UTF_8)), hex(header.value()));
            }
            if (batch.isControlBatch()) {
                ControlRecordType type = ControlRecordType.parse(record.key());
                join(out, type);
                if (type == ControlRecordType.COMMIT || type == ControlRecordType.ABORT) {
                    join(out, EndTransactionMarker.deserialize(record).coordinatorEpoch());
                }
            }
        }
        out.append('\t');
    }

    private static Object deleteHorizon(RecordBatch batch) throws Exception {
        try {
            String found = RecordBatch.class.getMethod("deleteHorizonMs").invoke(batch).toString();
            return found.equals("OptionalLong.empty") ? "-" : found.replaceAll("[^-0-9]", "");
        } catch (NoSuchMethodException older) {
            return "?";
        }
    }

    private static void join(StringBuilder out, Object... fields) {
        for (Object field : fields) {
            if (out.length() > 0 && out.charAt(out.length() - 1) != '\t') {
                out.append(' ');
            }
            out.append(field == null ? "-" : field);
        }
    }

    private static String hex(byte[] bytes) {
        return bytes == null ? "-" : hex(ByteBuffer.wrap(bytes));
    }

    private static String hex(ByteBuffer bytes) {
        if (bytes == null) {
            return "-";
        }
        StringBuilder out = new StringBuilder("x");
        for (int i = bytes.position(); i < bytes.limit(); i++) {
            out.append(Character.forDigit(bytes.get(i) >> 4 & 15, 16)).append(Character.forDigit(bytes.get(i) & 15, 16));
        }
        return out.toString();
    }

    /** The fields of a request, one after the other. */
    private static class Fields {
        private final Iterator<String> fields;

        Fields(String line) {
            fields = Arrays.asList(line.split("\t", -1)).iterator();
        }

        boolean hasNext() {
            return fields.hasNext();
        }

        String next() {
            return fields.next();
        }

        long number() {
            return Long.parseLong(next());
        }

        boolean flag() {
            return Boolean.parseBoolean(next());
        }

        byte[] bytes() {
            String hex = next();
            if (hex.equals("-")) {
                return null;
            }
            byte[] bytes = new byte[hex.length() / 2];
            for (int i = 0; i < bytes.length; i++) {
                bytes[i] = (byte) Integer.parseInt(hex.substring(2 * i + 1, 2 * i + 3), 16);
            }
            return bytes;
        }
    }
}
