import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.PolicyViolationException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Reads a view to a quiet end, over stretches where nothing matches, and from the start again. What it saw, as JSON. */
public class ViewReader {
    private static final int SKIPS = 30;
    private static final Duration WAIT = Duration.ofMillis(200);

    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0];
        String parent = arguments[1];
        TopicPartition view = new TopicPartition(arguments[2], 0);
        long end = Long.parseLong(arguments[3]);
        Map<String, Object> seen = new LinkedHashMap<>();
        for (String isolation : List.of("read_committed", "read_uncommitted")) {
            try (KafkaConsumer<String, String> consumer = consumer(bootstrap, view.topic() + isolation, isolation)) {
                consumer.assign(List.of(view));
                seen.put(isolation, readTo(consumer, view, end));
                consumer.commitSync();
                seen.put(isolation + " committed", consumer.committed(Set.of(view)).get(view).offset());
                seen.put(isolation + " lag", consumer.currentLag(view).orElse(-1));
                consumer.seek(view, 50);
                seen.put(isolation + " again", readTo(consumer, view, end));
            }
        }
        try (KafkaConsumer<String, String> consumer = consumer(bootstrap, view.topic(), "read_committed");
             KafkaProducer<String, String> producer = producer(bootstrap)) {
            consumer.assign(List.of(view));
            readTo(consumer, view, end);
            List<Long> shown = new ArrayList<>();
            for (int skip = 1; skip <= SKIPS; skip++) {
                producer.send(tagged(parent, "open")).get();
                shown.addAll(readTo(consumer, view, end + skip));
            }
            producer.send(tagged(parent, "paid")).get();
            seen.put("after skips", shown);
            seen.put("next", readTo(consumer, view, end + SKIPS + 1));
            seen.put("refused", refusal(producer, view.topic()));
            producer.send(tagged(parent, "open")).get();
        }
        System.out.println(new ObjectMapper().writeValueAsString(seen));
    }

    private static List<Long> readTo(KafkaConsumer<String, String> consumer, TopicPartition view, long end) {
        List<Long> offsets = new ArrayList<>();
        while (consumer.position(view) < end) {
            for (ConsumerRecord<String, String> record : consumer.poll(WAIT)) {
                offsets.add(record.offset());
            }
        }
        return offsets;
    }

    private static String refusal(KafkaProducer<String, String> producer, String topic) throws Exception {
        try {
            producer.send(new ProducerRecord<>(topic, 0, null, "x")).get();
            return "none";
        } catch (java.util.concurrent.ExecutionException failed) {
            return failed.getCause() instanceof PolicyViolationException ? failed.getCause().getMessage() : failed.toString();
        }
    }

    private static ProducerRecord<String, String> tagged(String topic, String tag) {
        ProducerRecord<String, String> record = new ProducerRecord<>(topic, 0, null, "x");
        record.headers().add("tag", tag.getBytes(StandardCharsets.UTF_8));
        return record;
    }

    private static KafkaConsumer<String, String> consumer(String bootstrap, String group, String isolation) {
        return new KafkaConsumer<>(Map.of(
            ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap,
            ConsumerConfig.GROUP_ID_CONFIG, group,
            ConsumerConfig.ISOLATION_LEVEL_CONFIG, isolation,
            ConsumerConfig.ENABLE_AUTO_COMMIT_CONFIG, false,
            ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "earliest",
            ConsumerConfig.FETCH_MAX_WAIT_MS_CONFIG, 50,
            ConsumerConfig.KEY_DESERIALIZER_CLASS_CONFIG, StringDeserializer.class,
            ConsumerConfig.VALUE_DESERIALIZER_CLASS_CONFIG, StringDeserializer.class));
    }

    private static KafkaProducer<String, String> producer(String bootstrap) {
        return new KafkaProducer<>(Map.of(
            ProducerConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap,
            ProducerConfig.KEY_SERIALIZER_CLASS_CONFIG, StringSerializer.class,
            ProducerConfig.VALUE_SERIALIZER_CLASS_CONFIG, StringSerializer.class));
    }
}
