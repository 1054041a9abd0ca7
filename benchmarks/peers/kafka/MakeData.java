import java.io.File;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.util.Map;
import java.util.Random;

import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.DefaultRecordBatch;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.OffsetIndex;
import org.apache.kafka.storage.internals.log.TimeIndex;

/**
 * Writes one data set with Kafka's own classes; the same bytes each time.
 *
 *     MakeData segment DIRECTORY CODEC CONTENT VALUE_BYTES BATCH_BYTES SEGMENT_BYTES
 *     MakeData segments DIRECTORY SEGMENTS SEGMENT_BYTES VALUE_BYTES BATCH_BYTES
 *     MakeData indexes DIRECTORY ENTRIES
 *     MakeData metadata DIRECTORY TOPICS PARTITIONS RECORDS
 *
 * A batch holds at least one record. Keys have 8 bytes; timestamps grow by 1 ms, with 50 ms of jitter.
 */
public final class MakeData {
    private static final long FIRST_TIMESTAMP = 1_700_000_000_000L;
    private static final String FIRST_FILE = "00000000000000000000";
    private static final String[] WORDS = {
        "checkout", "search", "add_to_cart", "login", "page_view", "refund", "payment", "shipping",
        "Amsterdam", "Singapore", "Sao Paulo", "Toronto", "Nairobi", "Stockholm", "Osaka", "Lima",
        "mobile", "desktop", "tablet", "kiosk", "success", "timeout", "declined", "retry"};

    private final Random random = new Random(1);
    private final byte[] noise = new byte[1 << 22];

    private MakeData() {
        random.nextBytes(noise);
    }

    private String word(int from) {
        return WORDS[from + random.nextInt(8)];
    }

    /** Text that compresses about as well as events do. */
    private byte[] event(long offset, long timestamp, int size) {
        StringBuilder text = new StringBuilder(size + 128);
        text.append("{\"id\":\"").append(Long.toHexString(random.nextLong()))
            .append("\",\"timestamp\":").append(timestamp).append(",\"sequence\":").append(offset);
        while (text.length() < size)
            text.append(",\"").append(word(0)).append("\":{\"city\":\"").append(word(8))
                .append("\",\"status\":\"").append(word(16))
                .append("\",\"amount\":").append(random.nextInt(1_000_000) / 100.0)
                .append(",\"token\":\"").append(Integer.toHexString(random.nextInt())).append("\"}");
        text.setLength(size - 1);
        return text.append('}').toString().getBytes(StandardCharsets.US_ASCII);
    }

    private byte[] noise(int size) {
        byte[] value = new byte[size];
        System.arraycopy(noise, random.nextInt(noise.length - size), value, 0, size);
        return value;
    }

    /** Write a segment until it is full; returns the next one's base offset. */
    private long segment(File directory, long baseOffset, String codec, boolean json, int valueBytes, int batchBytes,
            int segmentBytes) throws Exception {
        Compression compression = Compression.of(CompressionType.forName(codec)).build();
        ByteBuffer buffer = ByteBuffer.allocate(batchBytes + 65536);
        LogConfig config = new LogConfig(Map.of("index.interval.bytes", "4096"));
        LogSegment segment = LogSegment.open(directory, baseOffset, config, Time.SYSTEM, 0, false);
        long offset = baseOffset;
        while (true) {
            long firstOffset = offset;
            buffer.clear();
            MemoryRecordsBuilder builder = MemoryRecords.builder(buffer, RecordBatch.CURRENT_MAGIC_VALUE, compression,
                TimestampType.CREATE_TIME, offset, RecordBatch.NO_TIMESTAMP, RecordBatch.NO_PRODUCER_ID,
                RecordBatch.NO_PRODUCER_EPOCH, RecordBatch.NO_SEQUENCE, false, 0);
            int size = DefaultRecordBatch.RECORD_BATCH_OVERHEAD;
            do {
                long timestamp = FIRST_TIMESTAMP + offset + random.nextInt(100) - 50;
                byte[] key = String.format("k%07d", random.nextInt(10_000_000)).getBytes(StandardCharsets.US_ASCII);
                byte[] value = json ? event(offset, timestamp, valueBytes) : noise(valueBytes);
                builder.append(timestamp, key, value);
                size += key.length + value.length + 12;
                offset++;
            } while (size + 8 + valueBytes + 12 <= batchBytes);
            MemoryRecords records = builder.build();
            if (segment.size() + records.sizeInBytes() > segmentBytes) {
                offset = firstOffset;
                break;
            }
            segment.append(offset - 1, records);
        }
        segment.onBecomeInactiveSegment();
        segment.close();
        Files.writeString(directory.toPath().resolve("leader-epoch-checkpoint"), "0\n1\n0 0\n");
        return offset;
    }

    private void segments(File directory, int count, int segmentBytes, int valueBytes, int batchBytes) throws Exception {
        long offset = 0;
        for (int i = 0; i < count; i++)
            offset = segment(directory, offset, "none", false, valueBytes, batchBytes, segmentBytes);
    }

    /** Index files alone, as batches of 4 KiB leave them. */
    private void indexes(File directory, int entries) throws Exception {
        try (OffsetIndex offsets = new OffsetIndex(new File(directory, FIRST_FILE + ".index"), 0, 8 * entries);
             TimeIndex times = new TimeIndex(new File(directory, FIRST_FILE + ".timeindex"), 0, 12 * entries)) {
            long offset = 0;
            long timestamp = FIRST_TIMESTAMP;
            for (int i = 0; i < entries; i++) {
                offset += 30 + random.nextInt(20);
                timestamp += 20 + random.nextInt(40);
                offsets.append(offset, i * 4096);
                times.maybeAppend(timestamp, offset, true);
            }
        }
    }

    public static void main(String[] words) throws Exception {
        File directory = new File(words[1]);
        Files.createDirectories(directory.toPath());
        if (words[0].equals("indexes"))
            new MakeData().indexes(directory, Integer.parseInt(words[2]));
        else if (words[0].equals("metadata"))
            MakeMetadata.make(directory, Integer.parseInt(words[2]), Integer.parseInt(words[3]),
                Integer.parseInt(words[4]));
        else if (words[0].equals("segments"))
            new MakeData().segments(directory, Integer.parseInt(words[2]), Integer.parseInt(words[3]),
                Integer.parseInt(words[4]), Integer.parseInt(words[5]));
        else
            new MakeData().segment(directory, 0, words[2], words[3].equals("json"), Integer.parseInt(words[4]),
                Integer.parseInt(words[5]), Integer.parseInt(words[6]));
        System.exit(0);  // Kafka's threads are no daemons
    }
}
