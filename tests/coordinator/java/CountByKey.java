// A Kafka Streams application for the tests: counts records by key, exactly once (EOS v2), with a state store and its
// changelog. Arguments: bootstrap, application id, input topic, output topic, state folder, and after how many records
// of this run the process shall die (0: never).

import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Produced;

public class CountByKey {
    public static void main(String[] arguments) throws Exception {
        long dieAfter = Long.parseLong(arguments[5]);
        AtomicLong seen = new AtomicLong();

        Properties settings = new Properties();
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, arguments[1]);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, arguments[4]);
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 100);
        settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0); // every record shows in the output
        settings.put(StreamsConfig.REPLICATION_FACTOR_CONFIG, 1);
        settings.put("auto.offset.reset", "earliest");
        settings.put("consumer.session.timeout.ms", 6000);
        settings.put("producer.transaction.timeout.ms", 10000);

        StreamsBuilder builder = new StreamsBuilder();
        builder.<String, String>stream(arguments[2])
            .peek((key, value) -> {
                if (seen.incrementAndGet() == dieAfter) {
                    Runtime.getRuntime().halt(137); // as kill -9: no goodbye, the transaction stays open
                }
            })
            .groupByKey()
            .count()
            .toStream()
            .mapValues(count -> Long.toString(count))
            .to(arguments[3], Produced.with(Serdes.String(), Serdes.String()));

        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        CountDownLatch stopped = new CountDownLatch(1);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            streams.close();
            stopped.countDown();
        }));
        streams.start();
        stopped.await();
    }
}
