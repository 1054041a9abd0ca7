import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Collections;
import java.util.Optional;
import java.util.Properties;
import java.util.TreeSet;

import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * A consumer that commits an offset with a leader epoch, and one that goes on from there, without any reset.
 *
 * Reads lines SERVERS TOPIC PARTITION GROUP OFFSET EPOCH, apart by tabs; prints a line of the offsets that the second
 * one reads, or the name of the exception that it throws.
 */
public class KafkaResuming {
    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, false, "UTF-8");
        System.setOut(System.err);
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            String[] request = line.split("\t", -1);
            String answer;
            try {
                answer = resume(request);
            } catch (RuntimeException error) {
                answer = error.getClass().getSimpleName();
            }
            out.println(answer);
        }
        out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static KafkaConsumer<byte[], byte[]> consumer(String servers, String group) {
        Properties config = new Properties();
        config.put(ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, servers);
        config.put(ConsumerConfig.KEY_DESERIALIZER_CLASS_CONFIG, ByteArrayDeserializer.class);
        config.put(ConsumerConfig.VALUE_DESERIALIZER_CLASS_CONFIG, ByteArrayDeserializer.class);
        config.put(ConsumerConfig.ENABLE_AUTO_COMMIT_CONFIG, false);
        config.put(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "none");
        config.put(ConsumerConfig.MAX_PARTITION_FETCH_BYTES_CONFIG, 500);
        config.put(ConsumerConfig.METADATA_MAX_AGE_CONFIG, 100);
        config.put(ConsumerConfig.GROUP_ID_CONFIG, group);
        return new KafkaConsumer<>(config);
    }

    private static String resume(String[] request) {
        TopicPartition partition = new TopicPartition(request[1], Integer.parseInt(request[2]));
        Optional<Integer> epoch = request[5].equals("-1") ? Optional.empty() : Optional.of(Integer.parseInt(request[5]));
        try (KafkaConsumer<byte[], byte[]> first = consumer(request[0], request[3])) {
            first.assign(Collections.singleton(partition));
            first.commitSync(Collections.singletonMap(partition, new OffsetAndMetadata(Long.parseLong(request[4]), epoch, "")));
        }
        TreeSet<Long> found = new TreeSet<>();
        try (KafkaConsumer<byte[], byte[]> second = consumer(request[0], request[3])) {
            second.assign(Collections.singleton(partition));
            long end = second.endOffsets(Collections.singleton(partition)).get(partition);
            long deadline = System.nanoTime() + 20_000_000_000L;
            while (second.position(partition) < end && System.nanoTime() < deadline) {
                for (ConsumerRecord<byte[], byte[]> record : second.poll(Duration.ofMillis(50))) {
                    found.add(record.offset());
                }
            }
        }
        return found.toString();
    }
}
