import java.io.File;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.zip.CRC32;

import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogSegment;

/** LogSegment.append of a log's batches, one by one. */
final class Append implements Measure {
    private final List<MemoryRecords> batches = new ArrayList<>();
    private final List<Long> lastOffsets = new ArrayList<>();
    private final Path scratch;
    private LogSegment segment;

    Append(File log) throws IOException {
        ByteBuffer content = ByteBuffer.wrap(Files.readAllBytes(log.toPath()));
        int position = 0;
        for (RecordBatch batch : MemoryRecords.readableRecords(content).batches()) {
            batches.add(MemoryRecords.readableRecords(content.slice(position, batch.sizeInBytes())));
            lastOffsets.add(batch.lastOffset());
            position += batch.sizeInBytes();
        }
        scratch = Files.createTempDirectory(log.getParentFile().getParentFile().getParentFile().toPath(), "append-");
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            empty();
            scratch.toFile().delete();
        }));
    }

    private void empty() {
        File[] files = scratch.toFile().listFiles();
        if (files != null)
            for (File file : files)
                file.delete();
    }

    @Override public void prepare() throws Exception {
        if (segment != null)
            segment.close();
        empty();
        segment = LogSegment.open(scratch.toFile(), 0, new LogConfig(Map.of()), Time.SYSTEM, false, 0, false, "");
    }

    @Override public long round() throws Exception {
        for (int i = 0; i < batches.size(); i++)
            segment.append(lastOffsets.get(i), batches.get(i));
        return segment.size();
    }

    private long crcOf(String suffix) throws IOException {
        CRC32 crc = new CRC32();
        crc.update(Files.readAllBytes(scratch.resolve("0".repeat(20) + suffix)));
        return crc.getValue();
    }

    @Override public Map<String, Object> check() throws Exception {
        prepare();
        Map<String, Object> found = new LinkedHashMap<>();
        found.put("size", round());
        segment.onBecomeInactiveSegment();
        found.put("log", crcOf(".log"));
        found.put("offset_index", crcOf(".index"));
        found.put("time_index", crcOf(".timeindex"));
        return found;
    }
}
