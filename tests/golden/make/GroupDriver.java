// Members of groups of every kind (kafka-clients and kafka-streams >= 4.1), in a Conversation.java. They
// live until `close` or the end of the process: consumers in this thread, which `poll`s them, streams in their own.
// `request` sends any request as JSON, and answers with what the broker answered.
import com.fasterxml.jackson.databind.*;
import com.fasterxml.jackson.databind.node.*;
import java.io.*;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.*;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.message.*;
import org.apache.kafka.common.protocol.*;
import org.apache.kafka.common.serialization.*;
import org.apache.kafka.streams.*;
import org.apache.kafka.streams.kstream.*;

public class GroupDriver {
    static final ObjectMapper M = new ObjectMapper();
    static String bootstrap;
    static Socket socket;
    static final Map<String, KafkaConsumer<byte[], byte[]>> consumers = new HashMap<>();
    static final Map<String, KafkaShareConsumer<byte[], byte[]>> sharing = new HashMap<>();
    static final Map<String, KafkaStreams> streams = new HashMap<>();
    static final Map<String, KafkaProducer<byte[], byte[]>> producers = new HashMap<>();

    static Map<String, String> map(JsonNode n) {
        Map<String, String> m = new TreeMap<>();
        if (n != null) n.fields().forEachRemaining(e -> m.put(e.getKey(), e.getValue().asText()));
        return m;
    }
    static List<String> list(JsonNode n) {
        List<String> l = new ArrayList<>();
        if (n != null) n.forEach(e -> l.add(e.asText()));
        return l;
    }
    static TopicPartition partition(String name) {
        int dash = name.lastIndexOf('-');
        return new TopicPartition(name.substring(0, dash), Integer.parseInt(name.substring(dash + 1)));
    }
    static Map<TopicPartition, OffsetAndMetadata> offsets(JsonNode n) {     // {partition: [offset, leader epoch, metadata]}
        Map<TopicPartition, OffsetAndMetadata> m = new HashMap<>();
        n.fields().forEachRemaining(e -> m.put(partition(e.getKey()), new OffsetAndMetadata(e.getValue().get(0).asLong(),
            e.getValue().get(1).isNull() ? Optional.empty() : Optional.of(e.getValue().get(1).asInt()), e.getValue().get(2).asText())));
        return m;
    }
    static Properties properties(JsonNode c) {
        Properties p = new Properties();
        p.put("bootstrap.servers", bootstrap);
        p.put("client.id", c.get("id").asText());
        p.putAll(map(c.get("props")));
        return p;
    }
    static Properties consumerProperties(JsonNode c) {
        Properties p = properties(c);
        p.put("key.deserializer", ByteArrayDeserializer.class.getName());
        p.put("value.deserializer", ByteArrayDeserializer.class.getName());
        p.put("fetch.max.wait.ms", "50");
        return p;
    }

    static JsonNode handle(JsonNode c) throws Exception {
        ObjectNode out = M.createObjectNode();
        String id = c.has("id") ? c.get("id").asText() : null;
        switch (c.get("op").asText()) {
            case "connect": bootstrap = c.get("bootstrap").asText(); break;
            case "consumer": {          // topics, regex (of the broker), pattern (of the client), or assign
                Properties p = consumerProperties(c);
                p.put("enable.auto.commit", "false");
                p.put("auto.offset.reset", "earliest");
                KafkaConsumer<byte[], byte[]> k = new KafkaConsumer<>(p);
                consumers.put(id, k);
                if (c.has("topics")) k.subscribe(list(c.get("topics")));
                if (c.has("regex")) k.subscribe(new SubscriptionPattern(c.get("regex").asText()));
                if (c.has("assign")) k.assign(list(c.get("assign")).stream().map(GroupDriver::partition).collect(Collectors.toList()));
                break;
            }
            case "poll": {
                KafkaConsumer<byte[], byte[]> k = consumers.get(id);
                k.poll(Duration.ofMillis(c.get("ms").asInt()));
                ArrayNode assigned = out.putArray("assigned");
                k.assignment().stream().map(TopicPartition::toString).sorted().forEach(assigned::add);
                break;
            }
            case "commit": consumers.get(id).commitSync(offsets(c.get("offsets"))); break;
            case "share": {
                Properties p = consumerProperties(c);
                p.put("share.acknowledgement.mode", "explicit");
                KafkaShareConsumer<byte[], byte[]> k = new KafkaShareConsumer<>(p);
                sharing.put(id, k);
                k.subscribe(list(c.get("topics")));
                break;
            }
            case "share_poll": {        // acknowledge: {partition: {offset: type}}; others stay acquired
                KafkaShareConsumer<byte[], byte[]> k = sharing.get(id);
                ObjectNode found = out.putObject("found");
                for (ConsumerRecord<byte[], byte[]> r : k.poll(Duration.ofMillis(c.get("ms").asInt()))) {
                    String tp = r.topic() + "-" + r.partition();
                    found.withArray(tp).addArray().add(r.offset()).add(r.deliveryCount().get());
                    JsonNode types = c.path("acknowledge").path(tp);
                    JsonNode type = types.has(String.valueOf(r.offset())) ? types.get(String.valueOf(r.offset())) : types.get("*");
                    if (type != null) k.acknowledge(r, AcknowledgeType.valueOf(type.asText()));
                }
                ObjectNode errors = out.putObject("errors");
                k.commitSync().forEach((tp, e) -> e.ifPresent(x -> errors.put(tp.toString(), x.toString())));
                break;
            }
            case "streams": {           // counts by key, with an intermediate topic
                Properties p = properties(c);
                p.put("default.key.serde", Serdes.ByteArraySerde.class.getName());
                p.put("default.value.serde", Serdes.ByteArraySerde.class.getName());
                p.put("commit.interval.ms", "200");
                StreamsBuilder b = new StreamsBuilder();
                KStream<byte[], byte[]> in = b.stream(c.get("source").asText());
                in.repartition(Repartitioned.<byte[], byte[]>as("middle").withNumberOfPartitions(2)).to(c.get("sink").asText());
                KafkaStreams s = new KafkaStreams(b.build(), p);
                streams.put(id, s);
                s.start();
                break;
            }
            case "streams_state": out.put("state", streams.get(id).state().name()); break;
            case "close":
                if (consumers.containsKey(id)) consumers.remove(id).close();
                if (sharing.containsKey(id)) sharing.remove(id).close();
                if (streams.containsKey(id)) streams.remove(id).close(Duration.ofSeconds(20));
                break;
            case "produce": {           // values: one batch each
                KafkaProducer<byte[], byte[]> p = producer(c);
                TopicPartition tp = partition(c.get("partition").asText());
                for (JsonNode batch : c.get("batches")) {
                    for (JsonNode timestamp : batch) p.send(new ProducerRecord<>(tp.topic(), tp.partition(), timestamp.asLong(), null, new byte[3]));
                    p.flush();
                }
                break;
            }
            case "begin": producer(c).beginTransaction(); break;
            case "offsets": producer(c).sendOffsetsToTransaction(offsets(c.get("offsets")), new ConsumerGroupMetadata(c.get("group").asText())); break;
            case "end": if (c.get("commit").asBoolean()) producer(c).commitTransaction(); else producer(c).abortTransaction(); break;
            case "request": out.set("response", request(c)); break;
            default: throw new IllegalArgumentException(c.toString());
        }
        return out;
    }

    static KafkaProducer<byte[], byte[]> producer(JsonNode c) {
        return producers.computeIfAbsent(c.get("id").asText(), id -> {
            Properties p = properties(c);
            p.put("linger.ms", "60000");
            if (!p.containsKey("transactional.id")) p.put("enable.idempotence", "false");
            KafkaProducer<byte[], byte[]> made = new KafkaProducer<>(p, new ByteArraySerializer(), new ByteArraySerializer());
            if (p.containsKey("transactional.id")) made.initTransactions();
            return made;
        });
    }

    static JsonNode request(JsonNode c) throws Exception {      // api: as in ApiKeys; version; body: of its RequestData
        ApiKeys api = ApiKeys.valueOf(c.get("api").asText());
        short version = (short) c.get("version").asInt();
        String name = "org.apache.kafka.common.message." + api.messageType.name;
        ApiMessage body = (ApiMessage) Class.forName(name + "RequestDataJsonConverter")
            .getMethod("read", JsonNode.class, short.class).invoke(null, c.get("body"), version);
        RequestHeaderData header = new RequestHeaderData().setRequestApiKey(api.id).setRequestApiVersion(version).setClientId("ask");
        ByteBuffer sent = bytes(header, api.requestHeaderVersion(version)), more = bytes(body, version);
        if (socket == null) {
            String[] address = bootstrap.split(":");
            socket = new Socket(address[0], Integer.parseInt(address[1]));
        }
        DataOutputStream to = new DataOutputStream(new BufferedOutputStream(socket.getOutputStream()));
        to.writeInt(sent.remaining() + more.remaining());
        to.write(sent.array(), sent.position(), sent.remaining());
        to.write(more.array(), more.position(), more.remaining());
        to.flush();
        DataInputStream from = new DataInputStream(socket.getInputStream());
        byte[] answered = new byte[from.readInt()];
        from.readFully(answered);
        ByteBufferAccessor accessor = new ByteBufferAccessor(ByteBuffer.wrap(answered));
        new ResponseHeaderData(accessor, api.responseHeaderVersion(version));
        ApiMessage response = api.messageType.newResponse();
        response.read(accessor, version);
        return (JsonNode) Class.forName(name + "ResponseDataJsonConverter")
            .getMethod("write", response.getClass(), short.class).invoke(null, response, version);
    }

    static ByteBuffer bytes(Message message, short version) {
        return MessageUtil.toByteBufferAccessor(message, version).buffer();
    }

    public static void main(String[] a) throws Exception {
        Conversation.hold(GroupDriver::handle);
        Runtime.getRuntime().halt(0);       // members do not leave: their groups' broker has been killed
    }
}
