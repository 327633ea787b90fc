import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ExecutionException;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.DeleteTopicsOptions;
import org.apache.kafka.clients.admin.DescribeClusterResult;
import org.apache.kafka.clients.admin.ListTopicsOptions;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.acl.AccessControlEntryFilter;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.resource.ResourcePatternFilter;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** The calls with which web pages for Kafka (Kafdrop, AKHQ) fill their pages. What each answered, as JSON. */
public class AdminCalls {
    private static final Map<String, Object> ANSWERS = new LinkedHashMap<>();

    private interface Call {
        Object answer() throws Exception;
    }

    private static void note(String name, Call call) throws Exception {
        try {
            ANSWERS.put(name, call.answer());
        } catch (ExecutionException failed) {
            ANSWERS.put(name, failed.getCause().getClass().getSimpleName());
        }
    }

    public static void main(String[] arguments) throws Exception {
        Map<String, Object> settings = Map.of("bootstrap.servers", arguments[0]);
        String topic = arguments[1];
        String group = arguments[2];
        try (Admin admin = Admin.create(settings)) {
            cluster(admin);
            topics(admin, topic);
            groups(admin, group, topic);
            changes(admin, group);
        }
        offsets(arguments[0], topic);
        System.out.println(new ObjectMapper().writeValueAsString(ANSWERS));
    }

    private static void cluster(Admin admin) throws Exception {
        DescribeClusterResult cluster = admin.describeCluster();
        List<Integer> ids = cluster.nodes().get().stream().map(Node::id).sorted().toList();
        note("nodes", () -> ids);
        note("controller", () -> cluster.controller().get().id());
        note("clusterId", () -> cluster.clusterId().get());
        note("brokerConfigs", () -> {
            Map<String, List<String>> found = new TreeMap<>();
            for (var one : configs(admin, ConfigResource.Type.BROKER, ids.stream().map(String::valueOf).toList()).entrySet()) {
                found.put(one.getKey().name(), one.getValue().entries().stream().map(ConfigEntry::name).sorted().toList());
            }
            return found;
        });
        note("logDirs", () -> {
            Map<String, Object> bytes = new TreeMap<>();
            admin.describeLogDirs(ids).allDescriptions().get().forEach((id, folders) ->
                bytes.put(id.toString(), folders.values().stream().flatMap(folder -> folder.replicaInfos().entrySet().stream())
                    .collect(Collectors.toMap(one -> one.getKey().toString(), one -> one.getValue().size()))));
            return bytes;
        });
        note("acls", () -> admin.describeAcls(new AclBindingFilter(ResourcePatternFilter.ANY, AccessControlEntryFilter.ANY)).values().get());
    }

    private static Map<ConfigResource, Config> configs(Admin admin, ConfigResource.Type type, List<String> names) throws Exception {
        return admin.describeConfigs(names.stream().map(name -> new ConfigResource(type, name)).toList()).all().get();
    }

    private static void topics(Admin admin, String topic) throws Exception {
        note("topics", () -> admin.listTopics(new ListTopicsOptions().listInternal(true)).listings().get().stream()
            .collect(Collectors.toMap(one -> one.name(), one -> one.isInternal())));
        note("partitions", () -> admin.describeTopics(Set.of(topic)).allTopicNames().get().get(topic).partitions().stream()
            .map(one -> List.of(one.partition(), one.replicas().size(), one.isr().size())).toList());
        note("topicConfigs", () -> configs(admin, ConfigResource.Type.TOPIC, List.of(topic)).values().iterator().next().entries().stream()
            .collect(Collectors.toMap(ConfigEntry::name, one -> List.of(String.valueOf(one.value()), one.source().name()))));
    }

    private static void groups(Admin admin, String group, String topic) throws Exception {
        note("groups", () -> admin.listConsumerGroups().all().get().stream()
            .collect(Collectors.toMap(one -> one.groupId(), one -> one.groupState().map(Object::toString).orElse("?"))));
        note("group", () -> {
            var described = admin.describeConsumerGroups(List.of(group)).all().get().get(group);
            return List.of(described.groupState().toString(), described.members().size(), described.coordinator().id());
        });
        note("groupOffsets", () -> admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().entrySet().stream()
            .collect(Collectors.toMap(one -> one.getKey().toString(), one -> one.getValue().offset())));
    }

    private static void changes(Admin admin, String group) throws Exception {
        String made = "made-by-a-page";
        TopicPartition first = new TopicPartition(made, 0);
        note("created", () -> admin.createTopics(List.of(new NewTopic(made, 1, (short) 1))).all().get());
        note("createdTwice", () -> admin.createTopics(List.of(new NewTopic(made, 1, (short) 1))).all().get());
        note("grown", () -> admin.createPartitions(Map.of(made, NewPartitions.increaseTo(2))).all().get());
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, made);
        note("altered", () -> admin.incrementalAlterConfigs(Map.of(resource,
            List.of(new AlterConfigOp(new ConfigEntry("retention.ms", "1234567"), AlterConfigOp.OpType.SET)))).all().get());
        note("alteredTo", () -> configs(admin, ConfigResource.Type.TOPIC, List.of(made)).get(resource).get("retention.ms").value());
        note("committed", () -> admin.alterConsumerGroupOffsets("made-group", Map.of(first, new OffsetAndMetadata(0), new TopicPartition(made, 1), new OffsetAndMetadata(0))).all().get());
        note("recordsDeleted", () -> admin.deleteRecords(Map.of(first, RecordsToDelete.beforeOffset(-1))).lowWatermarks().get(first).get().lowWatermark());
        note("offsetsDeleted", () -> admin.deleteConsumerGroupOffsets("made-group", Set.of(first)).all().get());
        note("groupDeleted", () -> admin.deleteConsumerGroups(Set.of("made-group")).all().get());
        note("deleted", () -> admin.deleteTopics(List.of(made), new DeleteTopicsOptions().timeoutMs(5000)).all().get());
    }

    private static void offsets(String bootstrap, String topic) throws Exception {
        Map<String, Object> settings = Map.of(
            ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap,
            ConsumerConfig.KEY_DESERIALIZER_CLASS_CONFIG, ByteArrayDeserializer.class,
            ConsumerConfig.VALUE_DESERIALIZER_CLASS_CONFIG, ByteArrayDeserializer.class);
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings)) {
            List<TopicPartition> all = consumer.partitionsFor(topic).stream().map(one -> new TopicPartition(topic, one.partition())).toList();
            note("begins", () -> new TreeSet<>(consumer.beginningOffsets(all).values()));
            note("ends", () -> consumer.endOffsets(all).values().stream().mapToLong(Long::longValue).sum());
        }
    }
}
