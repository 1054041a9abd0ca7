// The admin client of KRaft clusters (kafka-clients >= 3.9), in a Conversation.java: each operation is one
// call of Admin, `ask` everything that describes the cluster.
import com.fasterxml.jackson.databind.*;
import com.fasterxml.jackson.databind.node.*;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.ExecutionException;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.acl.*;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.quota.*;
import org.apache.kafka.common.resource.*;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.token.delegation.*;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

public class AdminDriver {
    static final ObjectMapper M = new ObjectMapper();
    static Admin admin, tokenAdmin;     // only a client that has authenticated itself is answered about delegation tokens
    static final Map<String, byte[]> HMACS = new HashMap<>();
    static String bootstrap;

    static Map<String, String> map(JsonNode n) {
        Map<String, String> m = new TreeMap<>();
        if (n != null) n.fields().forEachRemaining(e -> m.put(e.getKey(), e.getValue().isNull() ? null : e.getValue().asText()));
        return m;
    }
    static List<String> list(JsonNode n) {
        List<String> l = new ArrayList<>();
        if (n != null) n.forEach(e -> l.add(e.asText()));
        return l;
    }
    static List<Integer> ints(JsonNode n) {
        return list(n).stream().map(Integer::valueOf).collect(Collectors.toList());
    }
    static ArrayNode ids(Collection<Node> nodes) {      // as the broker listed them
        ArrayNode a = M.createArrayNode();
        for (Node n : nodes) a.add(n.id());
        return a;
    }
    static ArrayNode numbers(Collection<Integer> numbers) {
        ArrayNode a = M.createArrayNode();
        numbers.forEach(a::add);
        return a;
    }
    static TopicPartition partition(JsonNode c) {
        return new TopicPartition(c.get("topic").asText(), c.get("partition").asInt());
    }
    static ScramMechanism mechanism(JsonNode c) { return ScramMechanism.fromMechanismName(c.get("mechanism").asText()); }

    static JsonNode handle(JsonNode c) throws Exception {
        ObjectNode out = M.createObjectNode();
        switch (c.get("op").asText()) {
            case "connect": {
                close();
                Properties p = new Properties();
                bootstrap = c.get("bootstrap").asText();
                p.put("bootstrap.servers", bootstrap);
                p.put("request.timeout.ms", "10000");
                p.put("default.api.timeout.ms", "30000");
                p.put("metadata.max.age.ms", "1000");
                p.put("reconnect.backoff.max.ms", "200");
                admin = Admin.create(p);
                break;
            }
            case "connect_sasl": {
                Properties p = new Properties();
                p.put("bootstrap.servers", c.get("bootstrap").asText());
                p.put("security.protocol", "SASL_PLAINTEXT");
                p.put("sasl.mechanism", "PLAIN");
                p.put("sasl.jaas.config", c.get("jaas").asText());
                tokenAdmin = Admin.create(p);
                break;
            }
            case "create_token": {      // as `name`, which the others refer to
                CreateDelegationTokenOptions o = new CreateDelegationTokenOptions().renewers(list(c.get("renewers")).stream().map(r -> new KafkaPrincipal("User", r)).collect(Collectors.toList()));
                oneOf(CreateDelegationTokenOptions.class, 1, "maxLifetimeMs", "maxlifeTimeMs").invoke(o, c.get("lifetime_ms").asLong());
                if (c.has("owner")) o.owner(new KafkaPrincipal("User", c.get("owner").asText()));
                HMACS.put(c.get("name").asText(), tokenAdmin.createDelegationToken(o).delegationToken().get().hmac());
                break;
            }
            case "renew_token":
                tokenAdmin.renewDelegationToken(HMACS.get(c.get("name").asText()),
                    new RenewDelegationTokenOptions().renewTimePeriodMs(c.get("period_ms").asLong())).expiryTimestamp().get();
                break;
            case "expire_token":        // at once
                tokenAdmin.expireDelegationToken(HMACS.get(c.get("name").asText()),
                    new ExpireDelegationTokenOptions().expiryTimePeriodMs(-1)).expiryTimestamp().get();
                break;
            case "add_voter":
                admin.addRaftVoter(c.get("id").asInt(), Uuid.fromString(c.get("directory_id").asText()),
                    Set.of(new RaftVoterEndpoint("CONTROLLER", c.get("host").asText(), c.get("port").asInt()))).all().get();
                break;
            case "remove_voter":
                admin.removeRaftVoter(c.get("id").asInt(), Uuid.fromString(c.get("directory_id").asText())).all().get();
                break;
            case "create_topics": {     // with the number of replicas, or with the replicas of each partition
                List<NewTopic> l = new ArrayList<>();
                for (JsonNode t : c.get("topics")) {
                    String name = t.get("name").asText();
                    Map<Integer, List<Integer>> replicas = new TreeMap<>();
                    if (t.has("assignment"))
                        for (int i = 0; i < t.get("assignment").size(); i++) replicas.put(i, ints(t.get("assignment").get(i)));
                    NewTopic topic = replicas.isEmpty()
                        ? new NewTopic(name, t.get("partitions").asInt(), (short) t.get("replicas").asInt())
                        : new NewTopic(name, replicas);
                    l.add(topic.configs(map(t.get("configs"))));
                }
                admin.createTopics(l).all().get();
                break;
            }
            case "create_partitions":
                admin.createPartitions(Map.of(c.get("topic").asText(), NewPartitions.increaseTo(c.get("total").asInt()))).all().get();
                break;
            case "delete_topic":
                admin.deleteTopics(List.of(c.get("topic").asText())).all().get();
                break;
            case "alter_configs": {     // set, append, subtract: {name: value}; delete: [name]
                List<AlterConfigOp> ops = new ArrayList<>();
                for (AlterConfigOp.OpType type : List.of(AlterConfigOp.OpType.SET, AlterConfigOp.OpType.APPEND, AlterConfigOp.OpType.SUBTRACT))
                    map(c.get(type.name().toLowerCase())).forEach((k, v) -> ops.add(new AlterConfigOp(new ConfigEntry(k, v), type)));
                list(c.get("delete")).forEach(k -> ops.add(new AlterConfigOp(new ConfigEntry(k, ""), AlterConfigOp.OpType.DELETE)));
                admin.incrementalAlterConfigs(Map.of(resource(c), ops)).all().get();
                break;
            }
            case "reassign": {          // replicas: null cancels
                Optional<NewPartitionReassignment> target = c.get("replicas").isNull() ? Optional.empty()
                    : Optional.of(new NewPartitionReassignment(ints(c.get("replicas"))));
                admin.alterPartitionReassignments(Map.of(partition(c), target)).all().get();
                break;
            }
            case "elect_leader": {
                Map<TopicPartition, Optional<Throwable>> done = admin.electLeaders(
                    ElectionType.valueOf(c.get("type").asText()), Set.of(partition(c))).partitions().get();
                done.forEach((k, v) -> v.ifPresent(t -> out.put("error", String.valueOf(t))));
                break;
            }
            case "update_features": {   // levels: {feature: level}
                FeatureUpdate.UpgradeType type = FeatureUpdate.UpgradeType.valueOf(c.get("type").asText());
                Map<String, FeatureUpdate> updates = new TreeMap<>();
                map(c.get("levels")).forEach((k, v) -> updates.put(k, new FeatureUpdate(Short.parseShort(v), type)));
                admin.updateFeatures(updates, new UpdateFeaturesOptions()).all().get();
                break;
            }
            case "alter_scram": {
                List<UserScramCredentialAlteration> l = new ArrayList<>();
                for (JsonNode u : c.get("users"))
                    l.add(u.has("iterations")
                        ? new UserScramCredentialUpsertion(u.get("user").asText(),
                            new ScramCredentialInfo(mechanism(u), u.get("iterations").asInt()), u.get("user").asText() + "-secret")
                        : new UserScramCredentialDeletion(u.get("user").asText(), mechanism(u)));
                admin.alterUserScramCredentials(l).all().get();
                break;
            }
            case "alter_quotas": {      // values: {quota: number, or null to remove it}
                List<ClientQuotaAlteration.Op> ops = new ArrayList<>();
                map(c.get("values")).forEach((k, v) -> ops.add(new ClientQuotaAlteration.Op(k, v == null ? null : Double.valueOf(v))));
                admin.alterClientQuotas(List.of(new ClientQuotaAlteration(new ClientQuotaEntity(map(c.get("entity"))), ops))).all().get();
                break;
            }
            case "create_acl":
                admin.createAcls(List.of(acl(c.get("acl")))).all().get();
                break;
            case "delete_acl":
                admin.deleteAcls(List.of(acl(c.get("acl")).toFilter())).all().get();
                break;
            case "unregister_broker":
                admin.unregisterBroker(c.get("broker").asInt()).all().get();
                break;
            case "group_offsets": {
                ObjectNode o = out.putObject("offsets");
                new TreeMap<>(admin.listConsumerGroupOffsets(c.get("group").asText()).partitionsToOffsetAndMetadata().get().entrySet().stream()
                    .collect(Collectors.toMap(e -> e.getKey().toString(), e -> e.getValue().offset()))).forEach(o::put);
                break;
            }
            case "group_read": {        // a member of the group reads `count` records of a topic, and commits
                Map<String, Object> p = Map.of("bootstrap.servers", bootstrap, "group.id", c.get("group").asText(),
                    "auto.offset.reset", "earliest", "enable.auto.commit", "false", "max.poll.records", "5");
                ArrayNode rows = out.putArray("rows");
                try (KafkaConsumer<byte[], byte[]> k = new KafkaConsumer<>(p, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
                    k.subscribe(List.of(c.get("topic").asText()));
                    long deadline = System.currentTimeMillis() + 60000;
                    while (rows.size() < c.get("count").asInt() && System.currentTimeMillis() < deadline)
                        for (ConsumerRecord<byte[], byte[]> r : k.poll(Duration.ofMillis(300)))
                            rows.addArray().add(r.partition()).add(r.offset());
                    k.commitSync();
                }
                break;
            }
            case "brokers": {           // those that are not fenced
                ArrayNode a = out.putArray("brokers");
                for (Node n : admin.describeCluster().nodes().get()) a.add(n.id());
                break;
            }
            case "quorum": out.set("quorum", quorum()); break;
            case "topics": out.set("topics", topics()); out.set("reassignments", reassignments()); break;
            case "features": out.set("features", features()); break;
            case "ask": {               // brokers: ids of those that run; groups: names of groups with configs
                out.set("cluster", cluster());
                ObjectNode topics = topics();
                out.set("topics", topics);
                out.set("reassignments", reassignments());
                out.set("configs", configs(topics, c));
                out.set("features", features());
                out.set("scram_credentials", scramCredentials());
                out.set("client_quotas", clientQuotas());
                out.set("acls", acls());
                if (tokenAdmin != null) out.set("delegation_tokens", delegationTokens());
                break;
            }
            default: throw new IllegalArgumentException(c.toString());
        }
        return out;
    }

    static ObjectNode cluster() throws Exception {
        DescribeClusterOptions options = new DescribeClusterOptions();
        boolean tellsFenced = true;     // since 4.0
        try { DescribeClusterOptions.class.getMethod("includeFencedBrokers", boolean.class).invoke(options, true); }
        catch (NoSuchMethodException e) { tellsFenced = false; }
        DescribeClusterResult described = admin.describeCluster(options);
        ObjectNode out = M.createObjectNode().put("cluster_id", described.clusterId().get());
        ArrayNode brokers = out.putArray("brokers");
        List<Node> nodes = new ArrayList<>(described.nodes().get());
        nodes.sort(Comparator.comparing(Node::id));
        for (Node n : nodes) {
            ObjectNode broker = brokers.addObject().put("id", n.id()).put("host", n.host()).put("port", n.port()).put("rack", n.rack());
            if (tellsFenced) broker.put("is_fenced", (Boolean) Node.class.getMethod("isFenced").invoke(n)); else broker.putNull("is_fenced");
        }
        return out;
    }

    static ObjectNode topics() throws Exception {
        ObjectNode out = M.createObjectNode();
        Set<String> names = new TreeSet<>(admin.listTopics(new ListTopicsOptions().listInternal(true)).names().get());
        Map<String, TopicDescription> described = new TreeMap<>(
            admin.describeTopics(TopicCollection.ofTopicNames(names)).allTopicNames().get());
        Map<TopicPartition, OffsetSpec> led = new HashMap<>();
        described.forEach((name, topic) -> topic.partitions().forEach(p -> {
            if (p.leader() != null && !p.leader().isEmpty()) led.put(new TopicPartition(name, p.partition()), OffsetSpec.latest());
        }));
        ListOffsetsResult offsets = admin.listOffsets(led, new ListOffsetsOptions().timeoutMs(5000));
        for (TopicDescription topic : described.values()) {
            ObjectNode t = out.putObject(topic.name()).put("topic_id", topic.topicId().toString()).put("is_internal", topic.isInternal());
            ObjectNode partitions = t.putObject("partitions");
            for (TopicPartitionInfo info : topic.partitions()) {
                TopicPartition tp = new TopicPartition(topic.name(), info.partition());
                ObjectNode p = partitions.putObject(String.valueOf(info.partition()));
                p.put("leader", led.containsKey(tp) ? info.leader().id() : -1);
                p.putNull("leader_epoch");      // of the end of the leader's log, which is its own epoch
                if (led.containsKey(tp))
                    try { offsets.partitionResult(tp).get().leaderEpoch().ifPresent(e -> p.put("leader_epoch", e)); }
                    catch (ExecutionException e) { p.put("leader_epoch_error", String.valueOf(e.getCause())); }
                p.set("replicas", ids(info.replicas()));
                p.set("isr", ids(info.isr()));
                p.set("elr", info.elr() == null ? NullNode.instance : ids(info.elr()));
                p.set("last_known_elr", info.lastKnownElr() == null ? NullNode.instance : ids(info.lastKnownElr()));
            }
        }
        return out;
    }

    static ObjectNode reassignments() throws Exception {
        ObjectNode out = M.createObjectNode();
        new TreeMap<>(admin.listPartitionReassignments().reassignments().get().entrySet().stream()
            .collect(Collectors.toMap(e -> e.getKey().toString(), Map.Entry::getValue))).forEach((k, v) -> {
                ObjectNode r = out.putObject(k);
                r.set("replicas", numbers(v.replicas()));
                r.set("adding_replicas", numbers(v.addingReplicas()));
                r.set("removing_replicas", numbers(v.removingReplicas()));
            });
        return out;
    }

    static ConfigResource resource(JsonNode c) {
        return new ConfigResource(ConfigResource.Type.valueOf(c.get("type").asText()), c.get("name").asText());
    }

    // The entries whose source is the metadata log: of the resource itself, or of the brokers' defaults.
    static ArrayNode configs(ObjectNode topics, JsonNode c) throws Exception {
        List<ConfigResource> asked = new ArrayList<>();
        topics.fieldNames().forEachRemaining(name -> asked.add(new ConfigResource(ConfigResource.Type.TOPIC, name)));
        asked.add(new ConfigResource(ConfigResource.Type.BROKER, ""));
        list(c.get("brokers")).forEach(id -> asked.add(new ConfigResource(ConfigResource.Type.BROKER, id)));
        list(c.get("groups")).forEach(name -> asked.add(new ConfigResource(ConfigResource.Type.valueOf("GROUP"), name)));
        admin.listClientMetricsResources().all().get().stream().map(ClientMetricsResourceListing::name).sorted()
            .forEach(name -> asked.add(new ConfigResource(ConfigResource.Type.CLIENT_METRICS, name)));
        Map<ConfigResource, Config> described = admin.describeConfigs(asked).all().get();
        ArrayNode out = M.createArrayNode();
        for (ConfigResource resource : asked) {
            ObjectNode r = out.addObject().put("type", resource.type().name()).put("name", resource.name());
            ObjectNode entries = r.putObject("entries");
            described.get(resource).entries().stream().sorted(Comparator.comparing(ConfigEntry::name))
                .filter(e -> e.source().name().startsWith("DYNAMIC_"))
                .forEach(e -> entries.putObject(e.name()).put("value", e.value()).put("source", e.source().name()));
        }
        return out;
    }

    static ObjectNode features() throws Exception {
        FeatureMetadata described = admin.describeFeatures().featureMetadata().get();
        ObjectNode out = M.createObjectNode();
        described.finalizedFeaturesEpoch().ifPresent(e -> out.put("epoch", e));
        ObjectNode finalized = out.putObject("finalized"), supported = out.putObject("supported");
        new TreeMap<>(described.finalizedFeatures()).forEach((k, v) -> finalized.putArray(k).add(v.minVersionLevel()).add(v.maxVersionLevel()));
        new TreeMap<>(described.supportedFeatures()).forEach((k, v) -> supported.putArray(k).add(v.minVersion()).add(v.maxVersion()));
        return out;
    }

    static ObjectNode quorum() throws Exception {
        QuorumInfo q = admin.describeMetadataQuorum().quorumInfo().get();
        ObjectNode out = M.createObjectNode().put("leader_id", q.leaderId()).put("leader_epoch", q.leaderEpoch()).put("high_watermark", q.highWatermark());
        out.set("voters", replicas(q.voters()));
        out.set("observers", replicas(q.observers()));
        ObjectNode nodes = out.putObject("nodes");      // the voters' endpoints, with kraft.version 1
        new TreeMap<>(q.nodes()).forEach((id, n) -> {
            ArrayNode endpoints = nodes.putArray(String.valueOf(id));
            n.endpoints().forEach(e -> endpoints.addObject().put("name", listener(e)).put("host", e.host()).put("port", e.port()));
        });
        return out;
    }

    static java.lang.reflect.Method oneOf(Class<?> type, int parameters, String... names) {     // the same method, named otherwise in other versions
        return Arrays.stream(type.getMethods()).filter(m -> m.getParameterCount() == parameters && List.of(names).contains(m.getName())).findFirst().orElseThrow();
    }

    static String listener(RaftVoterEndpoint e) {
        try { return (String) oneOf(RaftVoterEndpoint.class, 0, "listener", "name").invoke(e); }
        catch (ReflectiveOperationException wrong) { throw new IllegalStateException(wrong); }
    }

    static ArrayNode delegationTokens() throws Exception {
        Map<String, ObjectNode> sorted = new TreeMap<>();
        for (DelegationToken token : tokenAdmin.describeDelegationToken().delegationTokens().get()) {
            TokenInformation t = token.tokenInfo();
            ObjectNode o = M.createObjectNode().put("token_id", t.tokenId()).put("owner", t.owner().toString())
                .put("requester", t.tokenRequester().toString()).put("issue_timestamp", t.issueTimestamp())
                .put("expiration_timestamp", t.expiryTimestamp()).put("max_timestamp", t.maxTimestamp());
            ArrayNode renewers = o.putArray("renewers");
            t.renewers().stream().map(KafkaPrincipal::toString).sorted().forEach(renewers::add);
            sorted.put(t.tokenId(), o);
        }
        ArrayNode out = M.createArrayNode();
        sorted.values().forEach(out::add);
        return out;
    }

    static ArrayNode replicas(List<QuorumInfo.ReplicaState> states) {
        ArrayNode out = M.createArrayNode();
        states.stream().sorted(Comparator.comparing(QuorumInfo.ReplicaState::replicaId)).forEach(s -> out.addObject()
            .put("id", s.replicaId()).put("directory_id", s.replicaDirectoryId().toString()).put("log_end_offset", s.logEndOffset()));
        return out;
    }

    static ObjectNode scramCredentials() throws Exception {
        ObjectNode out = M.createObjectNode();
        new TreeMap<>(admin.describeUserScramCredentials().all().get()).forEach((user, d) -> {
            ObjectNode u = out.putObject(user);
            d.credentialInfos().stream().sorted(Comparator.comparing(i -> i.mechanism().mechanismName()))
                .forEach(i -> u.put(i.mechanism().mechanismName(), i.iterations()));
        });
        return out;
    }

    static ArrayNode clientQuotas() throws Exception {
        Map<String, ObjectNode> sorted = new TreeMap<>();
        admin.describeClientQuotas(ClientQuotaFilter.all()).entities().get().forEach((entity, values) -> {
            ObjectNode q = M.createObjectNode();
            ObjectNode e = q.putObject("entity"), v = q.putObject("values");
            new TreeMap<>(entity.entries()).forEach(e::put);
            new TreeMap<>(values).forEach(v::put);
            sorted.put(e.toString(), q);
        });
        ArrayNode out = M.createArrayNode();
        sorted.values().forEach(out::add);
        return out;
    }

    static AclBinding acl(JsonNode c) {
        return new AclBinding(
            new ResourcePattern(ResourceType.valueOf(c.get("resource_type").asText()), c.get("resource_name").asText(),
                PatternType.valueOf(c.get("pattern_type").asText())),
            new AccessControlEntry(c.get("principal").asText(), c.get("host").asText(),
                AclOperation.valueOf(c.get("operation").asText()), AclPermissionType.valueOf(c.get("permission").asText())));
    }

    static ArrayNode acls() throws Exception {
        Map<String, ObjectNode> sorted = new TreeMap<>();
        for (AclBinding b : admin.describeAcls(AclBindingFilter.ANY).values().get()) {
            ObjectNode a = M.createObjectNode()
                .put("resource_type", b.pattern().resourceType().name()).put("resource_name", b.pattern().name())
                .put("pattern_type", b.pattern().patternType().name()).put("principal", b.entry().principal())
                .put("host", b.entry().host()).put("operation", b.entry().operation().name())
                .put("permission", b.entry().permissionType().name());
            sorted.put(a.toString(), a);
        }
        ArrayNode out = M.createArrayNode();
        sorted.values().forEach(out::add);
        return out;
    }

    static void close() {
        if (admin != null) admin.close(Duration.ZERO);
        admin = null;
    }

    public static void main(String[] a) throws Exception {
        Conversation.hold(AdminDriver::handle);
        close();
        System.exit(0);
    }
}
