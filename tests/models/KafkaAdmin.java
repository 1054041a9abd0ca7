import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.stream.Collectors;

import org.apache.kafka.clients.admin.*;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.quota.ClientQuotaFilter;

/**
 * What administrators and user interfaces ask, by Kafka's own Admin of the version on the class path (3.9 or later).
 *
 * Reads lines of a server and a kind of question, apart by a tab; prints a line of parts, apart by tabs: NAME=RESULT,
 * where a result is sorted, or the name of the exception that was thrown.
 */
public class KafkaAdmin {
    private static final Map<String, OffsetSpec> SPECS = new TreeMap<>();

    static {
        SPECS.put("earliest", OffsetSpec.earliest());
        SPECS.put("latest", OffsetSpec.latest());
        SPECS.put("maxTimestamp", OffsetSpec.maxTimestamp());
        SPECS.put("earliestLocal", OffsetSpec.earliestLocal());
        SPECS.put("latestTiered", OffsetSpec.latestTiered());
        SPECS.put("time", OffsetSpec.forTimestamp(1_600_000_020_000L));
        SPECS.put("never", OffsetSpec.forTimestamp(4_000_000_000_000L));
    }

    private final Admin admin;
    private final List<String> parts = new ArrayList<>();

    private KafkaAdmin(Admin admin) {
        this.admin = admin;
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, false, "UTF-8");
        System.setOut(System.err);
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            String[] request = line.split("\t", -1);
            Properties config = new Properties();
            config.put(AdminClientConfig.BOOTSTRAP_SERVERS_CONFIG, request[0]);
            try (Admin admin = Admin.create(config)) {
                KafkaAdmin asking = new KafkaAdmin(admin);
                asking.askAll();
                out.println(String.join("\t", asking.parts));
            }
        }
        out.flush();
        Runtime.getRuntime().halt(0);
    }

    private void add(String name, Callable<Object> question) throws Exception {
        Object found;
        try {
            found = question.call();
        } catch (ExecutionException error) {
            found = error.getCause().getClass().getSimpleName();
        }
        parts.add(name + "=" + text(found));
    }

    /** Whatever has no order is sorted; a node is its id. */
    private static String text(Object value) {
        if (value instanceof Node) {
            return ((Node) value).idString();
        }
        if (value instanceof Map) {
            Map<String, String> sorted = new TreeMap<>();
            ((Map<?, ?>) value).forEach((key, each) -> sorted.put(text(key), text(each)));
            return sorted.toString();
        }
        if (value instanceof Collection) {
            return ((Collection<?>) value).stream().map(KafkaAdmin::text).sorted().collect(Collectors.toList()).toString();
        }
        return String.valueOf(value);
    }

    private static List<String> list(Object... values) {
        List<String> found = new ArrayList<>();
        for (Object value : values) {
            found.add(text(value));
        }
        return Collections.singletonList(String.join(" ", found));
    }

    private void askAll() throws Exception {
        DescribeClusterResult cluster = admin.describeCluster(new DescribeClusterOptions().includeAuthorizedOperations(true));
        Node node = cluster.controller().get();
        add("cluster", () -> list(cluster.clusterId().get(), cluster.controller().get(), cluster.nodes().get()));
        add("cluster.operations", () -> cluster.authorizedOperations().get());
        add("features", () -> admin.describeFeatures().featureMetadata().get().finalizedFeatures());
        Map<String, TopicListing> topics = admin.listTopics(new ListTopicsOptions().listInternal(true)).namesToListings().get();
        add("topics", () -> topics.values());
        add("topics.external", () -> admin.listTopics().names().get());
        Map<String, TopicDescription> described = admin.describeTopics(TopicCollection.ofTopicNames(topics.keySet())).allTopicNames().get();
        add("partitions", () -> described.values().stream().map(KafkaAdmin::described).collect(Collectors.toList()));
        List<Uuid> ids = topics.values().stream().map(TopicListing::topicId).collect(Collectors.toList());
        add("partitions.by-id", () -> admin.describeTopics(TopicCollection.ofTopicIds(ids)).allTopicIds().get().values().stream()
            .map(KafkaAdmin::described).collect(Collectors.toList()));
        add("partitions.operations", () -> admin.describeTopics(TopicCollection.ofTopicNames(topics.keySet()),
            new DescribeTopicsOptions().includeAuthorizedOperations(true)).allTopicNames().get().values().stream()
            .map(TopicDescription::authorizedOperations).collect(Collectors.toSet()));
        add("partitions.unknown", () -> admin.describeTopics(Collections.singleton("missing")).allTopicNames().get());
        add("partitions.unknown-id", () -> admin.describeTopics(TopicCollection.ofTopicIds(
            Collections.singleton(new Uuid(7, 7)))).allTopicIds().get());
        askConfigs(node, topics.keySet());
        add("log-dirs", () -> logDirs(node));
        List<TopicPartition> partitions = new ArrayList<>();
        described.forEach((topic, each) -> each.partitions().forEach(one -> partitions.add(new TopicPartition(topic, one.partition()))));
        for (IsolationLevel isolation : IsolationLevel.values()) {
            for (Map.Entry<String, OffsetSpec> spec : SPECS.entrySet()) {
                add("offsets." + spec.getKey() + "." + isolation, () -> offsets(partitions, spec.getValue(), isolation));
            }
        }
        askGroups();
        add("producers", () -> admin.describeProducers(partitions).all().get().entrySet().stream()
            .map(each -> each.getKey() + " " + text(each.getValue().activeProducers())).collect(Collectors.toList()));
        Collection<TransactionListing> transactions = admin.listTransactions().all().get();
        add("transactions", () -> transactions);
        add("transactions.ongoing", () -> admin.listTransactions(new ListTransactionsOptions().filterStates(
            Collections.singleton(TransactionState.ONGOING))).all().get());
        add("transactions.described", () -> admin.describeTransactions(transactions.stream()
            .map(TransactionListing::transactionalId).collect(Collectors.toList())).all().get());
        add("transactions.unknown", () -> admin.describeTransactions(Collections.singleton("nobody")).all().get());
        add("acls", () -> admin.describeAcls(AclBindingFilter.ANY).values().get());
        add("quorum", () -> admin.describeMetadataQuorum().quorumInfo().get().leaderId());
        add("quotas", () -> admin.describeClientQuotas(ClientQuotaFilter.all()).entities().get());
    }

    private static Object described(TopicDescription topic) {
        return list(topic.name(), topic.topicId(), topic.isInternal(), topic.partitions().stream().map(each -> each.partition()
            + ":" + text(each.leader()) + text(each.replicas()) + text(each.isr())).collect(Collectors.toList()));
    }

    private void askConfigs(Node node, Collection<String> topics) throws Exception {
        List<ConfigResource> resources = topics.stream().map(each -> new ConfigResource(ConfigResource.Type.TOPIC, each))
            .collect(Collectors.toList());
        add("configs.topics", () -> admin.describeConfigs(resources).all().get().entrySet().stream().map(each -> list(
            each.getKey().name(), each.getValue().entries().stream().filter(entry -> entry.source().name().startsWith("DYNAMIC"))
                .map(entry -> entry.name() + "=" + entry.value()).collect(Collectors.toList()))).collect(Collectors.toList()));
        add("configs.names", () -> admin.describeConfigs(resources).all().get().values().stream().map(each ->
            each.entries().stream().map(entry -> entry.name() + ":" + entry.type()).collect(Collectors.toList())).collect(Collectors.toSet()));
        for (String name : Arrays.asList(node.idString(), "")) {
            add("configs.broker." + name, () -> admin.describeConfigs(Collections.singleton(
                new ConfigResource(ConfigResource.Type.BROKER, name))).all().get().values().stream().map(each ->
                each.entries().stream().filter(entry -> entry.source().name().startsWith("DYNAMIC"))
                    .map(entry -> entry.name() + "=" + entry.value()).collect(Collectors.toList())).collect(Collectors.toList()));
        }
    }

    private Object logDirs(Node node) throws Exception {
        List<Object> found = new ArrayList<>();
        admin.describeLogDirs(Collections.singleton(node.id())).allDescriptions().get().forEach((broker, dirs) ->
            dirs.forEach((path, dir) -> found.add(list(broker, path, text(dir.error()), dir.totalBytes().isPresent(),
                dir.replicaInfos()))));
        return found;
    }

    private Object offsets(List<TopicPartition> partitions, OffsetSpec spec, IsolationLevel isolation) throws Exception {
        Map<TopicPartition, OffsetSpec> asked = new HashMap<>();
        partitions.forEach(each -> asked.put(each, spec));
        return admin.listOffsets(asked, new ListOffsetsOptions(isolation)).all().get();
    }

    private void askGroups() throws Exception {
        Collection<ConsumerGroupListing> groups = admin.listConsumerGroups().all().get();
        add("groups", () -> groups.stream().map(each -> list(each.groupId(), each.isSimpleConsumerGroup(), each.type()))
            .collect(Collectors.toList()));
        List<String> names = groups.stream().map(ConsumerGroupListing::groupId).collect(Collectors.toList());
        add("groups.described", () -> admin.describeConsumerGroups(names).all().get().values().stream().map(each -> list(
            each.groupId(), each.isSimpleConsumerGroup(), each.partitionAssignor(), each.members(), each.coordinator()))
            .collect(Collectors.toList()));
        add("groups.unknown", () -> admin.describeConsumerGroups(Collections.singleton("nobody")).all().get().values().stream()
            .map(each -> list(each.groupId(), each.members())).collect(Collectors.toList()));
        Map<String, ListConsumerGroupOffsetsSpec> specs = new HashMap<>();
        names.forEach(each -> specs.put(each, new ListConsumerGroupOffsetsSpec()));
        add("groups.offsets", () -> admin.listConsumerGroupOffsets(specs).all().get());
    }
}
