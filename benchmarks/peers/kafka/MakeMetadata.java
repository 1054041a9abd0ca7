import java.io.File;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Random;

import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.metadata.FeatureLevelRecord;
import org.apache.kafka.common.metadata.PartitionChangeRecord;
import org.apache.kafka.common.metadata.PartitionRecord;
import org.apache.kafka.common.metadata.TopicRecord;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.image.MetadataImage;
import org.apache.kafka.image.writer.ImageWriterOptions;
import org.apache.kafka.image.writer.RaftSnapshotWriter;
import org.apache.kafka.metadata.MetadataRecordSerde;
import org.apache.kafka.server.common.ApiMessageAndVersion;
import org.apache.kafka.server.common.MetadataVersion;
import org.apache.kafka.server.common.OffsetAndEpoch;
import org.apache.kafka.snapshot.FileRawSnapshotWriter;
import org.apache.kafka.snapshot.RecordsSnapshotWriter;

/** A metadata log of topics and of changes of their partitions, and a snapshot of its end. */
final class MakeMetadata {
    private static final long FIRST_TIMESTAMP = 1_700_000_000_000L;
    private static final MetadataVersion VERSION = MetadataVersion.IBP_4_1_IV0;
    private static final int BROKERS = 6;
    private static final int EPOCH = 1;
    private static final int BATCH = 1000;

    private final Random random = new Random(1);
    private final ByteBuffer buffer = ByteBuffer.allocate(1 << 20);
    private final FileChannel log;
    private final List<ApiMessage> waiting = new ArrayList<>();
    private long count = 0;

    private MakeMetadata(File file) throws Exception {
        log = FileChannel.open(file.toPath(), StandardOpenOption.CREATE, StandardOpenOption.WRITE);
    }

    /** Write into a directory until its log has so many records. */
    static void make(File directory, int topics, int partitions, int records) throws Exception {
        File file = new File(directory, "00000000000000000000.log");
        MakeMetadata made = new MakeMetadata(file);
        made.log(topics, partitions, records);
        MetadataImage image = Replay.image(file);
        OffsetAndEpoch end = new OffsetAndEpoch(records, EPOCH);
        RecordsSnapshotWriter<ApiMessageAndVersion> snapshot = new RecordsSnapshotWriter.Builder()
            .setLastContainedLogTimestamp(FIRST_TIMESTAMP)
            .setMaxBatchSizeBytes(made.buffer.capacity())
            .setRawSnapshotWriter(FileRawSnapshotWriter.create(directory.toPath().resolve("snapshot"), end))
            .build(MetadataRecordSerde.INSTANCE);
        image.write(new RaftSnapshotWriter(snapshot, BATCH), new ImageWriterOptions.Builder(VERSION).build());
        snapshot.close();
    }

    private void log(int topics, int partitions, int records) throws Exception {
        add(new FeatureLevelRecord().setName(MetadataVersion.FEATURE_NAME).setFeatureLevel(VERSION.featureLevel()));
        List<Integer> brokers = new ArrayList<>();
        List<Uuid> directories = new ArrayList<>();
        for (int broker = 1; broker <= BROKERS; broker++) {
            brokers.add(broker);
            directories.add(uuid());
        }
        List<Uuid> ids = new ArrayList<>();
        List<List<Integer>> replicas = new ArrayList<>();
        for (int topic = 0; topic < topics; topic++) {
            ids.add(uuid());
            add(new TopicRecord().setName("topic-" + topic).setTopicId(ids.get(topic)));
            for (int partition = 0; partition < partitions; partition++) {
                Collections.shuffle(brokers, random);
                List<Integer> chosen = List.copyOf(brokers.subList(0, 3));
                replicas.add(chosen);
                add(new PartitionRecord().setPartitionId(partition).setTopicId(ids.get(topic)).setReplicas(chosen)
                    .setIsr(chosen).setLeader(chosen.get(0)).setLeaderEpoch(0).setPartitionEpoch(0)
                    .setDirectories(chosen.stream().map(each -> directories.get(each - 1)).toList()));
            }
        }
        while (count < records) {
            int topic = random.nextInt(topics);
            int partition = random.nextInt(partitions);
            List<Integer> inSync = replicas.get(topic * partitions + partition).subList(0, 1 + random.nextInt(3));
            PartitionChangeRecord change = new PartitionChangeRecord().setPartitionId(partition)
                .setTopicId(ids.get(topic)).setIsr(inSync);
            if (random.nextBoolean())
                change.setLeader(inSync.get(0));
            add(change);
        }
        flush();
        log.close();
    }

    private Uuid uuid() {
        return new Uuid(random.nextLong(), random.nextLong());
    }

    private void add(ApiMessage message) throws Exception {
        waiting.add(message);
        count++;
        if (waiting.size() == BATCH)
            flush();
    }

    private void flush() throws Exception {
        if (waiting.isEmpty())
            return;
        buffer.clear();
        MemoryRecordsBuilder builder = MemoryRecords.builder(buffer, RecordBatch.CURRENT_MAGIC_VALUE, Compression.NONE,
            TimestampType.CREATE_TIME, count - waiting.size(), RecordBatch.NO_TIMESTAMP, RecordBatch.NO_PRODUCER_ID,
            RecordBatch.NO_PRODUCER_EPOCH, RecordBatch.NO_SEQUENCE, false, EPOCH);
        for (ApiMessage message : waiting) {
            short version = message instanceof FeatureLevelRecord || message instanceof TopicRecord ? (short) 0 : 1;
            ApiMessageAndVersion record = new ApiMessageAndVersion(message, version);
            ObjectSerializationCache cache = new ObjectSerializationCache();
            ByteBuffer value = ByteBuffer.allocate(MetadataRecordSerde.INSTANCE.recordSize(record, cache));
            MetadataRecordSerde.INSTANCE.write(record, cache, new ByteBufferAccessor(value));
            builder.append(FIRST_TIMESTAMP + count, null, value.flip());
        }
        MemoryRecords batch = builder.build();
        batch.writeFullyTo(log);
        waiting.clear();
    }
}
