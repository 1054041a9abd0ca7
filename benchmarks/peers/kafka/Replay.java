import java.io.File;
import java.lang.management.ManagementFactory;
import java.util.Map;

import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.LogContext;
import org.apache.kafka.image.MetadataDelta;
import org.apache.kafka.image.MetadataImage;
import org.apache.kafka.image.MetadataProvenance;
import org.apache.kafka.image.TopicImage;
import org.apache.kafka.metadata.MetadataRecordSerde;
import org.apache.kafka.metadata.PartitionRegistration;
import org.apache.kafka.raft.Batch;
import org.apache.kafka.raft.internals.RecordsIterator;
import org.apache.kafka.server.common.ApiMessageAndVersion;

/** The image of a metadata log, or of a snapshot: all records in one delta, applied once. */
final class Replay implements Measure {
    private static final int BATCH_BYTES = 8 * 1024 * 1024;

    private final File file;

    Replay(File file) {
        this.file = file;
    }

    static MetadataImage image(File file) throws Exception {
        MetadataDelta delta = new MetadataDelta.Builder().setImage(MetadataImage.EMPTY).build();
        try (FileRecords records = FileRecords.open(file);
             RecordsIterator<ApiMessageAndVersion> batches = new RecordsIterator<>(records, MetadataRecordSerde.INSTANCE,
                 BufferSupplier.create(), BATCH_BYTES, true, new LogContext())) {
            while (batches.hasNext()) {
                Batch<ApiMessageAndVersion> batch = batches.next();
                for (ApiMessageAndVersion record : batch.records())
                    delta.replay(record.message());
            }
        }
        return delta.apply(MetadataProvenance.EMPTY);
    }

    @Override public long cpuNanos() {
        return ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean())
            .getProcessCpuTime();
    }

    @Override public long round() throws Exception {
        return image(file).topics().topicsById().size();
    }

    @Override public Map<String, Object> check() throws Exception {
        long partitions = 0, leaderEpochs = 0, partitionEpochs = 0, replicas = 0;
        for (TopicImage topic : image(file).topics().topicsById().values()) {
            for (PartitionRegistration partition : topic.partitions().values()) {
                partitions++;
                leaderEpochs += partition.leaderEpoch;
                partitionEpochs += partition.partitionEpoch;
                for (int replica : partition.isr)
                    replicas += (long) replica * partition.leader;
            }
        }
        return Map.of("partitions", partitions, "leader_epochs", leaderEpochs, "partition_epochs", partitionEpochs,
            "in_sync_replicas", replicas);
    }
}
