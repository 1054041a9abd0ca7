import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ScheduledFuture;
import java.util.zip.CRC32;
import java.util.zip.CRC32C;

import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.record.internal.FileLogInputStream.FileChannelRecordBatch;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.CloseableIterator;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.Scheduler;
import org.apache.kafka.storage.internals.epoch.LeaderEpochFileCache;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.OffsetIndex;
import org.apache.kafka.storage.internals.log.OffsetPosition;
import org.apache.kafka.storage.internals.log.ProducerStateManager;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.TimeIndex;
import org.apache.kafka.storage.internals.log.TimestampOffset;
import org.apache.kafka.storage.internals.log.UnifiedLog;

/**
 * Measures of Kafka's own classes on prepared files.
 *
 *     KafkaPeer recover|append|decode|lookup-offset|lookup-time|find-time|find-times|crc|replay|replay-snapshot|open|open-unclean SEGMENT.log TARGETS
 *
 * A line `check` or `time` on stdin is answered by one JSON object on stdout. TARGETS is a file of
 * little-endian int64 that the lookups look for.
 */
public final class KafkaPeer {
    private static final int PIECE_BYTES = 16 * 1024;

    /** CRC-32 over numbers and bytes in little-endian order, as other readers compute it. */
    private static final class Column {
        private final CRC32 crc = new CRC32();
        private final ByteBuffer number = ByteBuffer.allocate(8).order(ByteOrder.LITTLE_ENDIAN);

        void addLong(long value) {
            crc.update(number.clear().putLong(value).flip());
        }

        void addInt(int value) {
            crc.update(number.clear().putInt(value).flip());
        }

        void addBytes(ByteBuffer bytes) {
            crc.update(bytes);
        }

        long value() {
            return crc.getValue();
        }
    }

    private static long crcOf(Path file) throws IOException {
        CRC32 crc = new CRC32();
        crc.update(Files.readAllBytes(file));
        return crc.getValue();
    }

    // ------------------------------------------------------------------ recovery

    /** LogSegment.recover of a hard link to the log, which rebuilds both indexes. */
    private static final class Recover implements Measure {
        private final File log;
        private final Path scratch;
        private LogSegment segment;
        private ProducerStateManager producers;
        private LeaderEpochFileCache epochs;

        Recover(File log) throws IOException {
            this.log = log;
            this.scratch = Files.createTempDirectory(log.getParentFile().getParentFile().getParentFile().toPath(), "recover-");
            Runtime.getRuntime().addShutdownHook(new Thread(this::empty));
        }

        private void empty() {
            File[] files = scratch.toFile().listFiles();
            if (files != null)
                for (File file : files)
                    file.delete();
            scratch.toFile().delete();
        }

        @Override public void prepare() throws Exception {
            if (segment != null)
                segment.close();
            empty();
            Files.createDirectories(scratch);
            Files.createLink(scratch.resolve(log.getName()), log.toPath());
            TopicPartition partition = new TopicPartition("benchmark", 0);
            segment = LogSegment.open(scratch.toFile(), 0, new LogConfig(Map.of()), Time.SYSTEM, true, 0, false, "");
            producers = new ProducerStateManager(partition, scratch.toFile(), 900_000,
                new ProducerStateManagerConfig(86_400_000, true), Time.SYSTEM);
            epochs = UnifiedLog.createLeaderEpochCache(scratch.toFile(), partition, new LogDirFailureChannel(8),
                Optional.empty(), new IdleScheduler());
        }

        @Override public long round() throws Exception {
            return segment.recover(producers, epochs);
        }

        @Override public Map<String, Object> check() throws Exception {
            prepare();
            int truncated = segment.recover(producers, epochs);
            long batches = 0;
            Column offsets = new Column();
            Column timestamps = new Column();
            for (FileChannelRecordBatch batch : segment.log().batches()) {
                batches++;
                offsets.addLong(batch.lastOffset());
                timestamps.addLong(batch.maxTimestamp());
            }
            segment.close();
            segment = null;
            Map<String, Object> found = new LinkedHashMap<>();
            found.put("batches", batches);
            found.put("valid_bytes", log.length() - truncated);
            found.put("last_offsets", offsets.value());
            found.put("max_timestamps", timestamps.value());
            String name = log.getName().replace(".log", "");
            found.put("offset_index", crcOf(scratch.resolve(name + ".index")));
            found.put("time_index", crcOf(scratch.resolve(name + ".timeindex")));
            return found;
        }
    }

    /** Never runs anything. */
    private static final class IdleScheduler implements Scheduler {
        @Override public void startup() { }

        @Override public void shutdown() { }

        @Override public ScheduledFuture<?> schedule(String name, Runnable task, long delayMs, long periodMs) {
            return null;
        }

        @Override public void resizeThreadPool(int size) { }
    }

    // ------------------------------------------------------------------ records

    private interface Seer {
        void see(Record record);
    }

    /** Every record, as a consumer iterates: CRC checked, buffers for decompression used again. */
    private static final class Decode implements Measure {
        private final File log;
        private final BufferSupplier buffers = BufferSupplier.create();

        Decode(File log) {
            this.log = log;
        }

        private static long touch(Record record) {
            ByteBuffer key = record.key();
            ByteBuffer value = record.value();
            return record.offset() + record.timestamp() + key.remaining() + key.get(key.position())
                + value.remaining() + value.get(value.position()) + value.get(value.limit() - 1);
        }

        private long[] decode(Seer seer) throws IOException {
            long sum = 0;
            long records = 0;
            try (FileRecords file = FileRecords.open(log, false)) {
                for (FileChannelRecordBatch batch : file.batches()) {
                    batch.ensureValid();
                    try (CloseableIterator<Record> each = batch.streamingIterator(buffers)) {
                        while (each.hasNext()) {
                            Record record = each.next();
                            records++;
                            if (seer == null)
                                sum += touch(record);
                            else
                                seer.see(record);
                        }
                    }
                }
            }
            return new long[] {records, sum};
        }

        @Override public long round() throws Exception {
            return decode(null)[1];
        }

        @Override public Map<String, Object> check() throws Exception {
            Column[] columns = new Column[6];
            for (int i = 0; i < columns.length; i++)
                columns[i] = new Column();
            long records = decode(record -> {
                columns[0].addLong(record.offset());
                columns[1].addLong(record.timestamp());
                columns[2].addInt(record.keySize());
                columns[3].addBytes(record.key());
                columns[4].addInt(record.valueSize());
                columns[5].addBytes(record.value());
            })[0];
            Map<String, Object> found = new LinkedHashMap<>();
            found.put("records", records);
            String[] names = {"offsets", "timestamps", "key_lengths", "keys", "value_lengths", "values"};
            for (int i = 0; i < columns.length; i++)
                found.put(names[i], columns[i].value());
            return found;
        }
    }

    // ------------------------------------------------------------------ lookups

    private static final class LookupOffset implements Measure {
        private final OffsetIndex index;
        private final long[] targets;

        LookupOffset(File log, long[] targets) throws IOException {
            this.index = new OffsetIndex(new File(log.getPath().replace(".log", ".index")), 0, -1, false);
            this.targets = targets;
        }

        @Override public long round() {
            long sum = 0;
            for (long target : targets)
                sum += index.lookup(target).position();
            return sum;
        }

        @Override public Map<String, Object> check() {
            Column offsets = new Column();
            Column positions = new Column();
            for (long target : targets) {
                OffsetPosition found = index.lookup(target);
                offsets.addLong(found.offset());
                positions.addInt(found.position());
            }
            return Map.of("entries", index.entries(), "offsets", offsets.value(), "positions", positions.value());
        }
    }

    private static final class LookupTime implements Measure {
        private final TimeIndex index;
        private final long[] targets;

        LookupTime(File log, long[] targets) throws IOException {
            this.index = new TimeIndex(new File(log.getPath().replace(".log", ".timeindex")), 0, -1, false);
            this.targets = targets;
        }

        @Override public long round() {
            long sum = 0;
            for (long target : targets)
                sum += index.lookup(target).offset();
            return sum;
        }

        @Override public Map<String, Object> check() {
            Column timestamps = new Column();
            Column offsets = new Column();
            for (long target : targets) {
                TimestampOffset found = index.lookup(target);
                timestamps.addLong(found.timestamp());
                offsets.addLong(found.offset());
            }
            return Map.of("entries", index.entries(), "timestamps", timestamps.value(), "offsets", offsets.value());
        }
    }

    // ------------------------------------------------------------------ CRC-32C

    /** CRC-32C of a file, in pieces of 16 KiB. */
    private static final class Crc implements Measure {
        private final byte[] data;

        Crc(File log) throws IOException {
            this.data = Files.readAllBytes(log.toPath());
        }

        @Override public long round() {
            long mixed = 0;
            CRC32C crc = new CRC32C();
            for (int at = 0; at < data.length; at += PIECE_BYTES) {
                crc.reset();
                crc.update(data, at, Math.min(PIECE_BYTES, data.length - at));
                mixed ^= crc.getValue();
            }
            return mixed;
        }

        @Override public Map<String, Object> check() {
            return Map.of("bytes", data.length, "mixed", round());
        }
    }

    // ------------------------------------------------------------------ questions and answers

    private static Measure measure(String name, File log, long[] targets) throws Exception {
        return switch (name) {
            case "recover" -> new Recover(log);
            case "decode" -> new Decode(log);
            case "lookup-offset" -> new LookupOffset(log, targets);
            case "lookup-time" -> new LookupTime(log, targets);
            case "find-time", "find-times" -> new FindTime(log, targets, new IdleScheduler());
            case "crc" -> new Crc(log);
            case "append" -> new Append(log);
            case "replay" -> new Replay(log);
            case "replay-snapshot" -> new Replay(new File(log.getParentFile(), "snapshot").listFiles()[0]);
            case "open" -> new LoadLogs(log.getParentFile().getParentFile(), true);
            case "open-unclean" -> new LoadLogs(log.getParentFile().getParentFile(), false);
            default -> throw new IllegalArgumentException(name);
        };
    }

    private static String json(Map<String, Object> found) {
        StringBuilder text = new StringBuilder();
        found.forEach((name, value) -> text.append(text.isEmpty() ? "{" : ",").append('"').append(name).append("\":").append(value));
        return text.append('}').toString();
    }

    public static void main(String[] words) throws Exception {
        long[] targets = {};
        if (words.length > 2) {
            ByteBuffer bytes = ByteBuffer.wrap(Files.readAllBytes(Path.of(words[2]))).order(ByteOrder.LITTLE_ENDIAN);
            targets = new long[bytes.remaining() / 8];
            bytes.asLongBuffer().get(targets);
        }
        Measure measure = measure(words[0], new File(words[1]), targets);
        BufferedReader questions = new BufferedReader(new InputStreamReader(System.in));
        for (String question = questions.readLine(); question != null; question = questions.readLine()) {
            if (question.equals("check")) {
                System.out.println(json(measure.check()));
                continue;
            }
            measure.prepare();
            long wall = System.nanoTime();
            long cpu = measure.cpuNanos();
            long sum = measure.round();
            cpu = measure.cpuNanos() - cpu;
            wall = System.nanoTime() - wall;
            System.out.println(json(Map.of("cpu", cpu / 1e9, "wall", wall / 1e9, "sum", sum)));
        }
        System.exit(0);  // Kafka's threads are no daemons
    }
}
