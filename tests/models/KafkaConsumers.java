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

import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Kafka's own consumers, of the version on the class path, of a server.
 *
 * Reads requests from standard input, one a line, fields apart by tabs; prints one answer a line. A record is
 * partition,offset,timestamp,type,key,value,headers with bytes in base64 and - for null; records are apart by spaces.
 *
 *     read    SERVERS  TOPIC  ISOLATION      all records of all partitions, which are assigned
 *     times   SERVERS  TOPIC  TIME,TIME,...  for each time and partition: the offset and its timestamp, or -
 *     groups  SERVERS  TOPIC  GROUP  HOW     two members read all; what each was assigned, then the second when the
 *                                            first has left, what the group committed, and where a third begins. HOW is
 *                                            classic, or consumer for the new protocol, or pattern: that with a pattern
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
                default:
                    throw new IllegalArgumentException(request[0]);
            }
        }
        out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static Consumer<byte[], byte[]> consumer(String servers, String group, String isolation) {
        return consumer(servers, group, isolation, "classic");
    }

    private static Consumer<byte[], byte[]> consumer(String servers, String group, String isolation, String how) {
        Properties config = new Properties();
        config.put(ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, servers);
        config.put(ConsumerConfig.KEY_DESERIALIZER_CLASS_CONFIG, ByteArrayDeserializer.class);
        config.put(ConsumerConfig.VALUE_DESERIALIZER_CLASS_CONFIG, ByteArrayDeserializer.class);
        config.put(ConsumerConfig.ISOLATION_LEVEL_CONFIG, isolation);
        config.put(ConsumerConfig.ENABLE_AUTO_COMMIT_CONFIG, false);
        config.put(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "earliest");
        if (how.equals("classic")) {
            config.put(ConsumerConfig.HEARTBEAT_INTERVAL_MS_CONFIG, 200);
        } else {
            config.put("group.protocol", "consumer");
        }
        config.put(ConsumerConfig.MAX_PARTITION_FETCH_BYTES_CONFIG, 2000);
        if (group != null) {
            config.put(ConsumerConfig.GROUP_ID_CONFIG, group);
        }
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
            while (!isAtEnd(consumer, ends)) {
                consumer.poll(SHORT).forEach(record -> found.add(text(record)));
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
        return consumer(request[1], request[3], "read_uncommitted", request[4]);
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
}
