import java.io.File;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.Optional;
import java.util.zip.CRC32;

import org.apache.kafka.common.record.internal.FileRecords.TimestampAndOffset;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.Scheduler;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/**
 * The first record with at least a timestamp, for one timestamp after the other: in the only segment
 * LogSegment.findOffsetByTimestamp, over several UnifiedLog.fetchOffsetByTimestamp.
 */
final class FindTime implements Measure {
    private interface Finder {
        Optional<TimestampAndOffset> find(long timestamp) throws IOException;
    }

    private final Finder finder;
    private final long[] targets;

    FindTime(File log, long[] targets, Scheduler scheduler) throws IOException {
        this.targets = targets;
        File directory = copyOf(log.getParentFile());
        LogConfig config = new LogConfig(Map.of());
        if (directory.list((where, name) -> name.endsWith(".log")).length == 1) {
            LogSegment segment = LogSegment.open(directory, 0, config, Time.SYSTEM, true, 0, false, "");
            finder = timestamp -> segment.findOffsetByTimestamp(timestamp, 0);
        } else {
            UnifiedLog whole = UnifiedLog.create(directory, config, 0, Long.MAX_VALUE, scheduler,
                new BrokerTopicStats(), Time.SYSTEM, 900_000, new ProducerStateManagerConfig(86_400_000, true), 600_000,
                new LogDirFailureChannel(8), true, Optional.empty());
            finder = timestamp -> whole.fetchOffsetByTimestamp(timestamp, Optional.empty()).timestampAndOffsetOpt();
        }
    }

    /** Kafka extends the indexes that it opens: these are copies, next to hard links to the logs. */
    private static File copyOf(File directory) throws IOException {
        Path scratch = Files.createTempDirectory(directory.getParentFile().getParentFile().toPath(), "find-time-");
        Path copy = Files.createDirectory(scratch.resolve(directory.getName()));
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            for (File file : copy.toFile().listFiles())
                file.delete();
            copy.toFile().delete();
            scratch.toFile().delete();
        }));
        for (File file : directory.listFiles())
            if (file.getName().endsWith(".log"))
                Files.createLink(copy.resolve(file.getName()), file.toPath());
            else if (!file.getName().endsWith(".int64"))
                Files.copy(file.toPath(), copy.resolve(file.getName()));
        return copy.toFile();
    }

    @Override public long round() throws IOException {
        long sum = 0;
        for (long target : targets)
            sum += finder.find(target).get().offset;
        return sum;
    }

    @Override public Map<String, Object> check() throws IOException {
        CRC32 crc = new CRC32();
        ByteBuffer found = ByteBuffer.allocate(20).order(ByteOrder.LITTLE_ENDIAN);
        for (long target : targets) {
            TimestampAndOffset answer = finder.find(target).get();
            crc.update(found.clear().putLong(answer.timestamp).putLong(answer.offset).putInt(answer.leaderEpoch.orElse(-1))
                .flip());
        }
        return Map.of("answers", crc.getValue());
    }
}
