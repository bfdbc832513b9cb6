// Many fast exactly-once loops for the tests: each thread reads its own partition of the input, copies it into both
// partitions of the output inside transactions of three records, and aborts every third one, which it then does again.
// It pauses nowhere, so that each transaction begins while the markers of the one before are on their way.
// Arguments: bootstrap, input topic, output topic, loops, records per loop. Ends with 0 only if no loop met an error.

import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ConcurrentLinkedQueue;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class BusyTransactions {
    public static void main(String[] arguments) throws Exception {
        int loops = Integer.parseInt(arguments[3]);
        long records = Long.parseLong(arguments[4]);
        ConcurrentLinkedQueue<Throwable> failures = new ConcurrentLinkedQueue<>();
        Thread[] threads = new Thread[loops];
        for (int number = 0; number < loops; number++) {
            int partition = number;
            threads[number] = new Thread(() -> {
                try {
                    copy(arguments[0], arguments[1], arguments[2], partition, records);
                } catch (Throwable failure) {
                    failures.add(failure);
                }
            });
            threads[number].start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
        failures.forEach(failure -> failure.printStackTrace(System.out));
        System.exit(failures.isEmpty() ? 0 : 1);
    }

    private static void copy(String bootstrap, String input, String output, int partition, long records) {
        Properties reading = new Properties();
        reading.put("bootstrap.servers", bootstrap);
        reading.put("group.id", "busy-" + partition);
        reading.put("enable.auto.commit", "false");
        reading.put("auto.offset.reset", "earliest");
        reading.put("max.poll.records", "3");
        Properties writing = new Properties();
        writing.put("bootstrap.servers", bootstrap);
        writing.put("transactional.id", "busy-" + partition);
        writing.put("linger.ms", "0");
        TopicPartition source = new TopicPartition(input, partition);
        try (
            KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(reading, new StringDeserializer(), new StringDeserializer());
            KafkaProducer<String, String> producer =
                new KafkaProducer<>(writing, new StringSerializer(), new StringSerializer())
        ) {
            consumer.assign(List.of(source));
            producer.initTransactions();
            long position = consumer.position(source);
            for (int attempt = 0; position < records; ) {
                Map<Long, String> taken = new HashMap<>();
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(100))) {
                    taken.put(record.offset(), record.value());
                }
                if (taken.isEmpty()) {
                    continue;
                }
                attempt++;
                producer.beginTransaction();
                taken.forEach((offset, value) ->
                    producer.send(new ProducerRecord<>(output, (int) (offset % 2), null, value)));
                long next = consumer.position(source);
                producer.sendOffsetsToTransaction(
                    Map.of(source, new OffsetAndMetadata(next)), consumer.groupMetadata());
                if (attempt % 3 == 0) {
                    producer.abortTransaction();
                    consumer.seek(source, position);
                } else {
                    producer.commitTransaction();
                    position = next;
                }
            }
        }
    }
}
