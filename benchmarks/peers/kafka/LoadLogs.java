import java.io.File;
import java.lang.management.ManagementFactory;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;

import kafka.log.LogManager;
import kafka.server.KafkaConfig;

import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.checkpoint.CleanShutdownFileHandler;
import org.apache.kafka.storage.internals.checkpoint.OffsetCheckpointFile;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/** LogManager.loadLogs of a log directory, after a clean or an unclean shutdown. */
final class LoadLogs implements Measure {
    private final File root;
    private final boolean clean;
    private final Map<TopicPartition, Long> recoveryPoints = new HashMap<>();
    private LogManager manager;

    LoadLogs(File root, boolean clean) throws Exception {
        this.root = root;
        this.clean = clean;
        for (File directory : root.listFiles(File::isDirectory)) {
            long activeSegment = 0;
            for (String name : directory.list())
                if (name.endsWith(".log"))
                    activeSegment = Math.max(activeSegment, Long.parseLong(name.substring(0, 20)));
            // All is flushed but the active segment, as where a broker was killed.
            recoveryPoints.put(UnifiedLog.parseTopicPartitionName(directory), clean ? 1L << 40 : activeSegment);
        }
    }

    @Override public void prepare() throws Exception {
        if (manager != null)  // it locks the directory
            manager.shutdown(-1L);
        LogDirFailureChannel failures = new LogDirFailureChannel(8);
        new OffsetCheckpointFile(new File(root, "recovery-point-offset-checkpoint"), failures).write(recoveryPoints);
        CleanShutdownFileHandler marker = new CleanShutdownFileHandler(root.getPath());
        if (clean)
            marker.write(-1L);
        else
            marker.delete();
        Properties options = new Properties();
        options.put("process.roles", "broker");
        options.put("node.id", "1");
        options.put("controller.quorum.voters", "2@127.0.0.1:19093");
        options.put("controller.listener.names", "CONTROLLER");
        options.put("listeners", "PLAINTEXT://127.0.0.1:19092");
        options.put("log.dirs", root.getPath());
        options.put("log.retention.hours", "-1");
        KafkaConfig config = KafkaConfig.fromProps(options, false);
        manager = LogManager.apply(config,
            scala.jdk.javaapi.CollectionConverters.asScala(List.<String>of()).toSeq(),
            resource -> new Properties(), new KafkaScheduler(1, true), Time.SYSTEM, new BrokerTopicStats(), failures);
    }

    @Override public long cpuNanos() {
        return ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean())
            .getProcessCpuTime();
    }

    private void load() throws Exception {
        manager.loadLogs(new LogConfig(Map.of()), scala.collection.immutable.Map$.MODULE$.empty(), log -> false);
    }

    @Override public long round() throws Exception {
        load();
        return manager.allLogs().size();
    }

    @Override public Map<String, Object> check() throws Exception {
        prepare();
        load();
        long segments = 0;
        long ends = 0;
        for (UnifiedLog log : scala.jdk.javaapi.CollectionConverters.asJava(manager.allLogs())) {
            segments += log.numberOfSegments();
            ends += log.logEndOffset();
        }
        return Map.of("partitions", manager.allLogs().size(), "segments", segments, "log_end_offsets", ends);
    }
}
