import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.InvalidRecordException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Sends delayed messages in mixed, compressed, idempotent and transactional batches, and reads what comes. As JSON. */
public class DelayedSender {
    private static final Duration WAIT = Duration.ofMillis(200);

    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0];
        TopicPartition place = new TopicPartition(arguments[1], 0);
        Map<String, Long> offsets = new HashMap<>();
        Map<String, Object> seen = new LinkedHashMap<>();
        try (KafkaProducer<String, String> producer = producer(bootstrap, Map.of())) {
            // One batch.
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (int number = 0; number < 3; number++) {
                sent.add(producer.send(record(place, "now " + number)));
                sent.add(producer.send(record(place, "later " + number, "respool-delay", "1s")));
            }
            producer.send(record(place, "cancelled", "respool-delay", "2s", "respool-schedule-id", "order-7"));
            producer.send(record(place, "", "respool-cancel", "order-7"));
            producer.flush();
            for (int number = 0; number < 3; number++) {
                offsets.put("later " + number, sent.get(2 * number + 1).get().offset());
            }
            seen.put("refused", refusal(producer, record(place, "never", "respool-delay", "soon")));
        }
        Map<String, Object> transactional = Map.of(ProducerConfig.TRANSACTIONAL_ID_CONFIG, place.topic());
        try (KafkaProducer<String, String> producer = producer(bootstrap, transactional)) {
            producer.initTransactions();
            producer.beginTransaction();
            producer.send(record(place, "aborted", "respool-delay", "1s"));
            producer.flush();
            producer.abortTransaction();
            producer.beginTransaction();
            Future<RecordMetadata> sent = producer.send(record(place, "last", "respool-delay", "3s"));
            producer.commitTransaction();
            offsets.put("last", sent.get().offset());
        }
        read(bootstrap, place, offsets, seen);
        System.out.println(new ObjectMapper().writeValueAsString(seen));
    }

    private static void read(
            String bootstrap, TopicPartition place, Map<String, Long> offsets, Map<String, Object> seen) {
        List<String> values = new ArrayList<>();
        long early = 0;
        boolean isTrueToItsOrigin = true;
        try (KafkaConsumer<String, String> consumer = consumer(bootstrap)) {
            consumer.assign(List.of(place));
            consumer.seekToBeginning(List.of(place));
            while (!values.contains("last")) {
                for (ConsumerRecord<String, String> record : consumer.poll(WAIT)) {
                    values.add(record.value());
                    if (record.headers().lastHeader("respool-due-at") == null) {
                        continue;
                    }
                    early += record.timestamp() < number(record, "respool-due-at") ? 1 : 0;
                    isTrueToItsOrigin &= number(record, "respool-delivered-from") == offsets.get(record.value());
                }
            }
            consumer.commitSync();
            seen.put("lag", consumer.currentLag(place).orElse(-1));
        }
        seen.put("values", values);
        seen.put("early", early);
        seen.put("delivered from what was sent", isTrueToItsOrigin);
    }

    private static long number(ConsumerRecord<String, String> record, String header) {
        return Long.parseLong(new String(record.headers().lastHeader(header).value(), StandardCharsets.UTF_8));
    }

    private static String refusal(KafkaProducer<String, String> producer, ProducerRecord<String, String> record)
            throws Exception {
        try {
            producer.send(record).get();
            return "none";
        } catch (ExecutionException failed) {
            return failed.getCause() instanceof InvalidRecordException ? failed.getCause().getMessage() : failed.toString();
        }
    }

    private static ProducerRecord<String, String> record(TopicPartition place, String value, String... headers) {
        ProducerRecord<String, String> record = new ProducerRecord<>(place.topic(), place.partition(), "k", value);
        for (int index = 0; index < headers.length; index += 2) {
            record.headers().add(headers[index], headers[index + 1].getBytes(StandardCharsets.UTF_8));
        }
        return record;
    }

    private static KafkaConsumer<String, String> consumer(String bootstrap) {
        return new KafkaConsumer<>(Map.of(
            ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap,
            ConsumerConfig.GROUP_ID_CONFIG, "delayed",
            ConsumerConfig.ISOLATION_LEVEL_CONFIG, "read_committed",
            ConsumerConfig.ENABLE_AUTO_COMMIT_CONFIG, false,
            ConsumerConfig.FETCH_MAX_WAIT_MS_CONFIG, 50,
            ConsumerConfig.KEY_DESERIALIZER_CLASS_CONFIG, StringDeserializer.class,
            ConsumerConfig.VALUE_DESERIALIZER_CLASS_CONFIG, StringDeserializer.class));
    }

    private static KafkaProducer<String, String> producer(String bootstrap, Map<String, Object> more) {
        Map<String, Object> settings = new HashMap<>(Map.of(
            ProducerConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap,
            ProducerConfig.COMPRESSION_TYPE_CONFIG, "zstd",
            ProducerConfig.LINGER_MS_CONFIG, 200,
            ProducerConfig.KEY_SERIALIZER_CLASS_CONFIG, StringSerializer.class,
            ProducerConfig.VALUE_SERIALIZER_CLASS_CONFIG, StringSerializer.class));
        settings.putAll(more);
        return new KafkaProducer<>(settings);
    }
}
