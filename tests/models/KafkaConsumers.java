import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Kafka's own consumers, of the version on the class path, of a server.
 *
 * Reads requests from standard input, one a line, fields apart by tabs; prints one answer a line. A record is
 * partition,offset,timestamp,type,key,value,headers with bytes in base64 and - for null; records are apart by spaces.
 *
 *     read    SERVERS  TOPIC  ISOLATION      all records of all partitions, which are assigned; then the error, if
 *                                            there is one
 *     times   SERVERS  TOPIC  TIME,TIME,...  for each time and partition: the offset and its timestamp, or -
 *     groups  SERVERS  TOPIC  GROUP  HOW     two members read all; what each was assigned, then the second when the
 *                                            first has left, what the group committed, and where a third begins;
 *                                            HOW is the class that assigns the partitions, - is the default; or
 *                                            consumer for the new protocol, or pattern: that with a pattern
 *     bounds  SERVERS  TOPIC  ISOLATION      for each partition: the beginning and the end offset
 *     seek    SERVERS  TOPIC  OFFSET         for each partition: the offset of the first record from there on, or -
 *     reset   SERVERS  TOPIC  POLICY         for each partition: the position after a seek far beyond the end, or
 *                                            the error
 *     login   SERVERS  TOPIC  MECHANISM  USER  PASSWORD  CERTIFICATE
 *                                            the first offset that a consumer reads by SASL over TLS, or the error
 *     unknown SERVERS  TOPIC                 the partitions that subscribers get, of a topic that is not there
 *     refused SERVERS  TOPIC                 the errors of a producer, of a transactional one, and of an administrator
 *                                            who creates, deletes and alters topics, and deletes records
 *
 * An error is its class, and its message in base64: CLASS:MESSAGE.
 */
public class KafkaConsumers {
    private static final Duration SHORT = Duration.ofMillis(50);

    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, false, "UTF-8");
        System.setOut(System.err);
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            String[] request = line.split("\t", -1);
            switch (request[0]) {
                case "read":
                    out.println(read(request));
                    break;
                case "times":
                    out.println(times(request));
                    break;
                case "groups":
                    out.println(groups(request));
                    break;
                case "bounds":
                    out.println(bounds(request));
                    break;
                case "seek":
                    out.println(seek(request));
                    break;
                case "reset":
                    out.println(reset(request));
                    break;
                case "login":
                    out.println(login(request));
                    break;
                case "unknown":
                    out.println(unknown(request));
                    break;
                case "refused":
                    out.println(refused(request));
                    break;
                default:
                    throw new IllegalArgumentException(request[0]);
            }
        }
        out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static Consumer<byte[], byte[]> consumer(String servers, String group, String isolation) {
        return consumer(servers, group, isolation, new Properties());
    }

    private static Consumer<byte[], byte[]> consumer(
        String servers, String group, String isolation, Properties more
    ) {
        Properties config = new Properties();
        config.put(ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, servers);
        config.put(ConsumerConfig.KEY_DESERIALIZER_CLASS_CONFIG, ByteArrayDeserializer.class);
        config.put(ConsumerConfig.VALUE_DESERIALIZER_CLASS_CONFIG, ByteArrayDeserializer.class);
        config.put(ConsumerConfig.ISOLATION_LEVEL_CONFIG, isolation);
        config.put(ConsumerConfig.ENABLE_AUTO_COMMIT_CONFIG, false);
        config.put(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "earliest");
        config.put(ConsumerConfig.FETCH_MAX_WAIT_MS_CONFIG, 50);
        config.put(ConsumerConfig.MAX_PARTITION_FETCH_BYTES_CONFIG, 2000);
        if (group != null) {
            config.put(ConsumerConfig.GROUP_ID_CONFIG, group);
        }
        config.putAll(more);
        return new KafkaConsumer<>(config);
    }

    private static List<TopicPartition> partitions(Consumer<?, ?> consumer, String topic) {
        List<TopicPartition> found = new ArrayList<>();
        for (PartitionInfo each : consumer.partitionsFor(topic)) {
            found.add(new TopicPartition(topic, each.partition()));
        }
        found.sort((one, other) -> one.partition() - other.partition());
        return found;
    }

    private static boolean isAtEnd(Consumer<?, ?> consumer, Map<TopicPartition, Long> ends) {
        return ends.entrySet().stream().allMatch(end -> consumer.position(end.getKey()) >= end.getValue());
    }

    private static String read(String[] request) {
        try (Consumer<byte[], byte[]> consumer = consumer(request[1], null, request[3])) {
            List<TopicPartition> all = partitions(consumer, request[2]);
            consumer.assign(all);
            consumer.seekToBeginning(all);
            Map<TopicPartition, Long> ends = consumer.endOffsets(all);
            List<String> found = new ArrayList<>();
            try {
                while (!isAtEnd(consumer, ends)) {
                    consumer.poll(SHORT).forEach(record -> found.add(text(record)));
                }
            } catch (RuntimeException error) {  // an IllegalStateException before 2.7
                found.add(text(error));
            }
            return String.join(" ", found);
        }
    }

    private static String text(ConsumerRecord<byte[], byte[]> record) {
        List<String> headers = new ArrayList<>();
        for (Header header : record.headers()) {
            headers.add(base64(header.key().getBytes(StandardCharsets.UTF_8)) + ":" + base64(header.value()));
        }
        return record.partition() + "," + record.offset() + "," + record.timestamp() + "," + record.timestampType()
            + "," + base64(record.key()) + "," + base64(record.value()) + "," + String.join(";", headers);
    }

    private static String base64(byte[] content) {
        return content == null ? "-" : Base64.getEncoder().encodeToString(content);
    }

    private static String times(String[] request) {
        try (Consumer<byte[], byte[]> consumer = consumer(request[1], null, "read_uncommitted")) {
            List<String> found = new ArrayList<>();
            List<TopicPartition> all = partitions(consumer, request[2]);
            for (String time : request[3].split(",")) {
                Map<TopicPartition, Long> asked = new HashMap<>();
                all.forEach(each -> asked.put(each, Long.parseLong(time)));
                Map<TopicPartition, OffsetAndTimestamp> answer = consumer.offsetsForTimes(asked);
                for (TopicPartition each : all) {
                    OffsetAndTimestamp one = answer.get(each);
                    found.add(one == null ? "-" : one.offset() + "@" + one.timestamp());
                }
            }
            return String.join(" ", found);
        }
    }

    /** Subscribes to a topic; a pattern is one of Kafka 4, whose class older ones do not have. */
    private static void subscribe(Consumer<?, ?> consumer, String[] request) throws Exception {
        if (!request[4].equals("pattern")) {
            consumer.subscribe(Collections.singleton(request[2]));
            return;
        }
        Class<?> pattern = Class.forName("org.apache.kafka.clients.consumer.SubscriptionPattern");
        Object made = pattern.getConstructor(String.class).newInstance(request[2].substring(0, 2) + ".*");
        Consumer.class.getMethod("subscribe", pattern).invoke(consumer, made);
    }

    private static Consumer<byte[], byte[]> member(String[] request) {
        Properties more = new Properties();
        String how = request[4];
        if (how.equals("consumer") || how.equals("pattern")) {
            more.put("group.protocol", "consumer");
        } else {
            more.put(ConsumerConfig.HEARTBEAT_INTERVAL_MS_CONFIG, 200);
            if (!how.equals("-")) {
                more.put(ConsumerConfig.PARTITION_ASSIGNMENT_STRATEGY_CONFIG, how);
            }
        }
        return consumer(request[1], request[3], "read_uncommitted", more);
    }

    private static String groups(String[] request) throws Exception {
        Map<Integer, TreeSet<Long>> read = new TreeMap<>();
        String answer;
        try (Consumer<byte[], byte[]> second = member(request)) {
            List<TopicPartition> all = partitions(second, request[2]);
            Map<TopicPartition, Long> ends = second.endOffsets(all);
            Consumer<byte[], byte[]> first = member(request);
            subscribe(first, request);
            subscribe(second, request);
            while (first.assignment().isEmpty() || second.assignment().isEmpty()
                    || first.assignment().size() + second.assignment().size() != all.size()) {
                collect(first, read);
                collect(second, read);
            }
            answer = numbers(first.assignment()) + " " + numbers(second.assignment());
            first.commitSync();
            first.close();
            while (second.assignment().size() < all.size() || !isAtEnd(second, ends)) {
                collect(second, read);
            }
            second.commitSync();
            answer += " " + numbers(second.assignment());
        }
        try (Consumer<byte[], byte[]> third = member(request)) {
            List<TopicPartition> all = partitions(third, request[2]);
            subscribe(third, request);
            while (third.assignment().size() < all.size()) {
                if (!third.poll(SHORT).isEmpty()) {
                    throw new IllegalStateException("a record was read again");
                }
            }
            List<String> ends = new ArrayList<>();
            for (TopicPartition each : all) {
                OffsetAndMetadata committed = committed(third, each);
                ends.add(committed.offset() + "/" + third.position(each));
            }
            answer += " " + String.join(",", ends);
        }
        List<String> counts = new ArrayList<>();
        read.forEach((partition, offsets) -> counts.add(partition + ":" + offsets.size()));
        return answer + " " + String.join(",", counts);
    }

    @SuppressWarnings("deprecation")
    private static OffsetAndMetadata committed(Consumer<?, ?> consumer, TopicPartition partition) {
        return consumer.committed(Collections.singleton(partition)).get(partition);
    }

    private static void collect(Consumer<byte[], byte[]> consumer, Map<Integer, TreeSet<Long>> read) {
        consumer.poll(SHORT).forEach(
            record -> read.computeIfAbsent(record.partition(), any -> new TreeSet<>()).add(record.offset())
        );
    }

    private static String numbers(Collection<TopicPartition> partitions) {
        TreeSet<String> found = new TreeSet<>();
        partitions.forEach(each -> found.add(String.valueOf(each.partition())));
        return String.join(",", found);
    }

    private static String bounds(String[] request) {
        try (Consumer<byte[], byte[]> consumer = consumer(request[1], null, request[3])) {
            List<TopicPartition> all = partitions(consumer, request[2]);
            Map<TopicPartition, Long> starts = consumer.beginningOffsets(all);
            Map<TopicPartition, Long> ends = consumer.endOffsets(all);
            List<String> found = new ArrayList<>();
            all.forEach(each -> found.add(starts.get(each) + "-" + ends.get(each)));
            return String.join(" ", found);
        }
    }

    private static String seek(String[] request) {
        try (Consumer<byte[], byte[]> consumer = consumer(request[1], null, "read_uncommitted")) {
            List<String> found = new ArrayList<>();
            for (TopicPartition each : partitions(consumer, request[2])) {
                consumer.assign(Collections.singleton(each));
                consumer.seek(each, Long.parseLong(request[3]));
                long end = consumer.endOffsets(Collections.singleton(each)).get(each);
                String first = "-";
                while (first.equals("-") && consumer.position(each) < end) {
                    for (ConsumerRecord<byte[], byte[]> record : consumer.poll(SHORT)) {
                        first = first.equals("-") ? String.valueOf(record.offset()) : first;
                    }
                }
                found.add(first);
            }
            return String.join(" ", found);
        }
    }

    private static String reset(String[] request) {
        List<String> found = new ArrayList<>();
        Properties policy = new Properties();
        policy.put(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, request[3]);
        policy.put(ConsumerConfig.MAX_POLL_RECORDS_CONFIG, 1);
        try (Consumer<byte[], byte[]> consumer = consumer(request[1], null, "read_uncommitted", policy)) {
            for (TopicPartition each : partitions(consumer, request[2])) {
                long beyond = consumer.endOffsets(Collections.singleton(each)).get(each) + 1000;
                consumer.assign(Collections.singleton(each));
                consumer.seek(each, beyond);
                try {
                    while (consumer.position(each) == beyond) {
                        // A record that is polled moves the position: it is the first one's then.
                        for (ConsumerRecord<byte[], byte[]> record : consumer.poll(SHORT)) {
                            consumer.seek(each, record.offset());
                        }
                    }
                    found.add(String.valueOf(consumer.position(each)));
                } catch (RuntimeException error) {
                    found.add(text(error));
                }
            }
        }
        return String.join(" ", found);
    }

    private static String login(String[] request) {
        Properties secured = new Properties();
        secured.put("security.protocol", "SASL_SSL");
        secured.put("ssl.truststore.type", "PEM");
        secured.put("ssl.truststore.location", request[6]);
        secured.put("sasl.mechanism", request[3]);
        String module = request[3].equals("PLAIN") ? "plain.PlainLoginModule" : "scram.ScramLoginModule";
        secured.put("sasl.jaas.config", "org.apache.kafka.common.security." + module + " required username=\""
            + request[4] + "\" password=\"" + request[5] + "\";");
        try (Consumer<byte[], byte[]> consumer = consumer(request[1], null, "read_uncommitted", secured)) {
            TopicPartition first = new TopicPartition(request[2], 0);
            consumer.assign(Collections.singleton(first));
            while (true) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(SHORT)) {
                    return String.valueOf(record.offset());
                }
            }
        } catch (RuntimeException error) {
            return text(error);
        }
    }

    private static String unknown(String[] request) {
        try (Consumer<byte[], byte[]> consumer = consumer(request[1], "of-nothing", "read_uncommitted")) {
            consumer.subscribe(Collections.singleton(request[2]));
            for (int turn = 0; turn < 10; turn++) {
                consumer.poll(SHORT);
            }
            return "[" + numbers(consumer.assignment()) + "]";
        }
    }

    private static String refused(String[] request) throws InterruptedException {
        Properties config = new Properties();
        config.put("bootstrap.servers", request[1]);
        List<String> found = new ArrayList<>();
        ByteArraySerializer bytes = new ByteArraySerializer();
        try (Producer<byte[], byte[]> producer = new KafkaProducer<>(config, bytes, bytes)) {
            found.add(error(producer.send(new ProducerRecord<>(request[2], new byte[1]))));
        }
        Properties transactional = new Properties();
        transactional.putAll(config);
        transactional.put("transactional.id", "any");
        try (Producer<byte[], byte[]> producer = new KafkaProducer<>(transactional, bytes, bytes)) {
            producer.initTransactions();
            found.add("-");
        } catch (RuntimeException error) {
            found.add(text(error));
        }
        TopicPartition partition = new TopicPartition(request[2], 0);
        ConfigResource topic = new ConfigResource(ConfigResource.Type.TOPIC, request[2]);
        AlterConfigOp setting = new AlterConfigOp(new ConfigEntry("retention.ms", "1"), AlterConfigOp.OpType.SET);
        try (Admin admin = Admin.create(config)) {
            found.add(error(admin.createTopics(Collections.singleton(new NewTopic("new", 1, (short) 1))).all()));
            found.add(error(admin.deleteTopics(Collections.singleton(request[2])).all()));
            found.add(error(admin.createPartitions(
                Collections.singletonMap(request[2], NewPartitions.increaseTo(100))).all()));
            found.add(error(admin.incrementalAlterConfigs(
                Collections.singletonMap(topic, Collections.singleton(setting))).all()));
            found.add(error(admin.deleteRecords(
                Collections.singletonMap(partition, RecordsToDelete.beforeOffset(1))).all()));
        }
        return String.join(" ", found);
    }

    private static String error(Future<?> future) throws InterruptedException {
        try {
            future.get();
            return "-";
        } catch (ExecutionException error) {
            return text(error.getCause());
        }
    }

    private static String text(Throwable error) {
        String message = String.valueOf(error.getMessage());
        return error.getClass().getSimpleName() + ":" + base64(message.getBytes(StandardCharsets.UTF_8));
    }
}
