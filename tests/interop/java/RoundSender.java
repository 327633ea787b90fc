import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

/** Sends a round of messages, one for each key, for each line it reads; in transactions, if it has an id for them. */
public class RoundSender {
    private static final int KEYS = 24;

    public static void main(String[] arguments) throws Exception {
        String topic = arguments[1];
        boolean isTransactional = arguments.length > 2;
        Map<String, Object> settings = new java.util.HashMap<>(Map.of(
            ProducerConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0],
            ProducerConfig.KEY_SERIALIZER_CLASS_CONFIG, StringSerializer.class,
            ProducerConfig.VALUE_SERIALIZER_CLASS_CONFIG, StringSerializer.class,
            ProducerConfig.METADATA_MAX_AGE_CONFIG, 1000));
        if (isTransactional) {
            settings.put(ProducerConfig.TRANSACTIONAL_ID_CONFIG, arguments[2]);
        }
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings)) {
            if (isTransactional) {
                producer.initTransactions();
            }
            BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
            for (String turn = lines.readLine(); turn != null; turn = lines.readLine()) {
                if (isTransactional) {
                    producer.beginTransaction();
                }
                List<Future<?>> sent = new ArrayList<>();
                for (int key = 0; key < KEYS; key++) {
                    sent.add(producer.send(new ProducerRecord<>(topic, "key-" + key, key + ":" + turn)));
                }
                for (Future<?> one : sent) {
                    one.get();
                }
                if (isTransactional) {
                    producer.commitTransaction();
                }
                System.out.println("sent " + turn);
            }
        }
    }
}
