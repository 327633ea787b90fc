import com.sun.management.OperatingSystemMXBean;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.impl.factory.MQClientInstance;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Delayed messages and retries in RocketMQ: `create TOPIC`, `send-level|send-timer TOPIC COUNT RATE DELAY_MS`,
 * `receive TOPIC COUNT WARM_UP`, `fill TOPIC COUNT`, `until-handled TOPIC COUNT GROUP`, each behind the name server.
 */
@SuppressWarnings("deprecation")
public class RocketMqLoad {
    private static final int MESSAGE_BYTES = 100;
    private static final int UNDER_WAY_MAX = 1_000;
    private static final long SILENCE_SECONDS_MAX = 60;
    // The first level: a second.
    private static final int LEVEL = 1;
    // Its logging describes itself on standard output, where the parent reads.
    private static final PrintStream OUT = System.out;

    static {
        System.setOut(new PrintStream(OutputStream.nullOutputStream()));
    }

    public static void main(String[] arguments) {
        try {
            run(arguments);
        } catch (Exception error) {
            fail(error.toString());
        }
        // Its threads stay otherwise.
        System.exit(0);
    }

    private static void run(String[] arguments) throws Exception {
        String names = arguments[1];
        String topic = arguments[2];
        switch (arguments[0]) {
            case "create" -> create(names, topic);
            case "send-level" -> send(names, topic, number(arguments, 3), number(arguments, 4), 1_000, true);
            case "send-timer" -> send(names, topic, number(arguments, 3), number(arguments, 4), number(arguments, 5), false);
            case "receive" -> receive(names, topic, number(arguments, 3), number(arguments, 4));
            case "fill" -> fill(names, topic, number(arguments, 3));
            case "until-handled" -> untilHandled(names, topic, number(arguments, 3), arguments[4]);
            default -> throw new IllegalArgumentException(arguments[0]);
        }
    }

    private static int number(String[] arguments, int index) {
        return Integer.parseInt(arguments[index]);
    }

    // -- producers

    /** A topic begins with its first message, which is due at no time and counted by nobody. */
    private static void create(String names, String topic) throws Exception {
        DefaultMQProducer producer = producer(names);
        Measurement measurement = Measurement.announced();
        producer.send(message(topic, 0));
        measurement.finish(1);
    }

    private static void send(String names, String topic, int count, int rate, int delayMs, boolean isLevel) throws Exception {
        DefaultMQProducer producer = producer(names);
        Sending sending = new Sending(producer);
        Measurement measurement = Measurement.announced();
        long began = System.nanoTime();
        int sent = 0;
        while (sent < count) {
            int wanted = (int) Math.min(count, (System.nanoTime() - began) / 1e9 * rate);
            for (; sent < wanted; sent++) {
                long due = System.currentTimeMillis() + delayMs + (isLevel ? 0 : sent % 97);
                Message message = message(topic, due);
                if (isLevel) {
                    message.setDelayTimeLevel(LEVEL);
                } else {
                    message.setDeliverTimeMs(due);
                }
                sending.send(message);
            }
            Thread.sleep(1);
        }
        sending.finish();
        measurement.finish(count);
    }

    private static void fill(String names, String topic, int count) throws Exception {
        Sending sending = new Sending(producer(names));
        Measurement measurement = Measurement.announced();
        for (int number = 0; number < count; number++) {
            sending.send(message(topic, System.currentTimeMillis()));
        }
        sending.finish();
        measurement.finish(count);
    }

    private static DefaultMQProducer producer(String names) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("bench-producer");
        producer.setNamesrvAddr(names);
        producer.setSendMsgTimeout(10_000);
        producer.start();
        return producer;
    }

    private static Message message(String topic, long due) {
        byte[] value = new byte[MESSAGE_BYTES];
        ByteBuffer.wrap(value).order(ByteOrder.LITTLE_ENDIAN).putLong(due);
        return new Message(topic, value);
    }

    /** Asynchronous, with a bounded number under way; the first error ends the program. */
    private static final class Sending {
        private final DefaultMQProducer producer;
        private final Semaphore free = new Semaphore(UNDER_WAY_MAX);
        private final AtomicReference<Throwable> error = new AtomicReference<>();

        Sending(DefaultMQProducer producer) {
            this.producer = producer;
        }

        void send(Message message) throws Exception {
            free.acquire();
            producer.send(message, new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    free.release();
                }

                @Override
                public void onException(Throwable failed) {
                    error.set(failed);
                    free.release();
                }
            });
        }

        void finish() throws Exception {
            free.acquire(UNDER_WAY_MAX);
            if (error.get() != null) {
                fail("not all was sent: " + error.get());
            }
        }
    }

    // -- consumers

    private static void receive(String names, String topic, int count, int warmUp) throws Exception {
        List<Double> lateMs = Collections.synchronizedList(new ArrayList<>());
        CountDownLatch ready = new CountDownLatch(1);
        CountDownLatch left = new CountDownLatch(count);
        DefaultMQPushConsumer consumer = consumer(names, topic + "-reader");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            Instant now = Instant.now();
            double nowMs = now.getEpochSecond() * 1e3 + now.getNano() / 1e6;
            for (MessageExt message : messages) {
                long due = ByteBuffer.wrap(message.getBody()).order(ByteOrder.LITTLE_ENDIAN).getLong();
                if (due == 0) {
                    ready.countDown();
                } else {
                    lateMs.add(nowMs - due);
                    left.countDown();
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.subscribe(topic, "*");
        consumer.start();
        await(ready, "the topic's first message");
        Measurement.announced();
        if (!left.await(SILENCE_SECONDS_MAX * 2, TimeUnit.SECONDS)) {
            fail(lateMs.size() + " of " + count + " messages came");
        }
        List<Double> counted = new ArrayList<>(lateMs.subList(warmUp, count));
        Collections.sort(counted);
        print("{\"least\": %f, \"p50\": %f, \"p99\": %f}", counted.get(0), quantile(counted, 0.5), quantile(counted, 0.99));
    }

    private static double quantile(List<Double> sorted, double share) {
        return sorted.get(Math.min(sorted.size() - 1, (int) (share * sorted.size())));
    }

    /** Every message fails once. A first message of a topic of its own goes round before, so that all is known by then. */
    private static void untilHandled(String names, String topic, int count, String group) throws Exception {
        String first = topic + "-first";
        producer(names).send(message(first, 0));
        CountDownLatch ready = new CountDownLatch(1);
        AtomicInteger handled = new AtomicInteger();
        CountDownLatch left = new CountDownLatch(count);
        DefaultMQPushConsumer consumer = consumer(names, group);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            MessageExt message = messages.get(0);
            if (message.getReconsumeTimes() == 0) {
                context.setDelayLevelWhenNextConsume(LEVEL);
                return ConsumeConcurrentlyStatus.RECONSUME_LATER;
            }
            if (ByteBuffer.wrap(message.getBody()).order(ByteOrder.LITTLE_ENDIAN).getLong() == 0) {
                ready.countDown();
            } else {
                handled.incrementAndGet();
                left.countDown();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.subscribe(first, "*");
        consumer.start();
        await(ready, "the first message's second attempt");
        Measurement measurement = Measurement.announced();
        consumer.subscribe(topic, "*");
        MQClientInstance client = consumer.getDefaultMQPushConsumerImpl().getmQClientFactory();
        client.updateTopicRouteInfoFromNameServer(topic);
        client.rebalanceImmediately();
        if (!left.await(SILENCE_SECONDS_MAX * 5, TimeUnit.SECONDS)) {
            fail(handled.get() + " of " + count + " messages were handled");
        }
        measurement.finish(count);
    }

    private static DefaultMQPushConsumer consumer(String names, String group) {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(names);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setPollNameServerInterval(1_000);
        return consumer;
    }

    private static void await(CountDownLatch latch, String what) throws Exception {
        if (!latch.await(SILENCE_SECONDS_MAX, TimeUnit.SECONDS)) {
            fail("waited in vain for " + what);
        }
    }

    // -- what the parent reads

    /** Says that all is ready, waits for the start, and says at the end what was done. */
    private static final class Measurement {
        private final long began = System.nanoTime();
        private final long cpuBegan = cpuNanos();

        static Measurement announced() throws Exception {
            print("ready");
            String line = new BufferedReader(new InputStreamReader(System.in)).readLine();
            if (!"go".equals(line)) {
                fail("no start");
            }
            return new Measurement();
        }

        void finish(int messages) {
            print(
                "{\"seconds\": %f, \"cpu_s\": %f, \"requests\": %d, \"messages\": %d, \"bytes\": %d}",
                (System.nanoTime() - began) / 1e9,
                (cpuNanos() - cpuBegan) / 1e9,
                messages,
                messages,
                (long) messages * MESSAGE_BYTES);
        }

        private static long cpuNanos() {
            return ((OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime();
        }
    }

    private static void print(String format, Object... values) {
        OUT.println(String.format(Locale.ROOT, format, values));
        OUT.flush();
    }

    private static void fail(String reason) {
        print(reason.replace("%", "%%"));
        System.exit(1);
    }
}
