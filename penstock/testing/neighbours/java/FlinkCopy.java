// Flink's Kafka source and sink, wired together: topic → topic, exactly once, each record into the partition it came from.
// Arguments: bootstrap, input, output, how transactions are named, checkpoint folder, checkpoint to begin with ("": none).

import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Optional;
import java.util.Properties;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple3;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.lineage.DefaultKafkaDatasetFacet;
import org.apache.flink.connector.kafka.lineage.DefaultKafkaDatasetIdentifier;
import org.apache.flink.connector.kafka.lineage.KafkaDatasetFacet;
import org.apache.flink.connector.kafka.lineage.KafkaDatasetFacetProvider;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.sink.TransactionNamingStrategy;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.connector.kafka.source.reader.deserializer.KafkaRecordDeserializationSchema;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.util.Collector;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.ProducerRecord;

public class FlinkCopy {
    static class Read implements KafkaRecordDeserializationSchema<Tuple3<Integer, String, String>> {
        @Override
        public void deserialize(ConsumerRecord<byte[], byte[]> record, Collector<Tuple3<Integer, String, String>> out) {
            out.collect(Tuple3.of(
                record.partition(),
                new String(record.key(), StandardCharsets.UTF_8),
                new String(record.value(), StandardCharsets.UTF_8)));
        }

        @Override
        public TypeInformation<Tuple3<Integer, String, String>> getProducedType() {
            return Types.TUPLE(Types.INT, Types.STRING, Types.STRING);
        }
    }

    static class Write
            implements KafkaRecordSerializationSchema<Tuple3<Integer, String, String>>, KafkaDatasetFacetProvider {
        private final String topic;

        Write(String topic) {
            this.topic = topic;
        }

        @Override
        public Optional<KafkaDatasetFacet> getKafkaDatasetFacet() { // pooled transactions ask which topics to look at
            return Optional.of(new DefaultKafkaDatasetFacet(DefaultKafkaDatasetIdentifier.ofTopics(List.of(topic))));
        }

        @Override
        public ProducerRecord<byte[], byte[]> serialize(
                Tuple3<Integer, String, String> row, KafkaSinkContext context, Long timestamp) {
            return new ProducerRecord<>(
                topic, row.f0, row.f1.getBytes(StandardCharsets.UTF_8), row.f2.getBytes(StandardCharsets.UTF_8));
        }
    }

    public static void main(String[] arguments) throws Exception {
        Configuration settings = new Configuration();
        settings.setString("execution.checkpointing.interval", "500ms");
        settings.setString("execution.checkpointing.mode", "EXACTLY_ONCE");
        settings.setString("execution.checkpointing.dir", "file://" + arguments[4]);
        settings.setString("execution.checkpointing.externalized-checkpoint-retention", "RETAIN_ON_CANCELLATION");
        settings.setString("restart-strategy.type", "fixed-delay");
        settings.setString("restart-strategy.fixed-delay.attempts", "100");
        settings.setString("restart-strategy.fixed-delay.delay", "1s");
        if (!arguments[5].isEmpty()) {
            settings.setString("execution.state-recovery.path", arguments[5]);
        }
        StreamExecutionEnvironment environment = StreamExecutionEnvironment.getExecutionEnvironment(settings);
        environment.setParallelism(2);

        KafkaSource<Tuple3<Integer, String, String>> source = KafkaSource.<Tuple3<Integer, String, String>>builder()
            .setBootstrapServers(arguments[0])
            .setTopics(arguments[1])
            .setGroupId("flink-" + arguments[3])
            .setStartingOffsets(OffsetsInitializer.earliest())
            .setProperty("isolation.level", "read_committed")
            .setDeserializer(new Read())
            .build();
        Properties producer = new Properties();
        producer.setProperty("transaction.timeout.ms", "60000");
        KafkaSink<Tuple3<Integer, String, String>> sink = KafkaSink.<Tuple3<Integer, String, String>>builder()
            .setBootstrapServers(arguments[0])
            .setRecordSerializer(new Write(arguments[2]))
            .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
            .setTransactionalIdPrefix("flink-" + arguments[3])
            .setTransactionNamingStrategy(TransactionNamingStrategy.valueOf(arguments[3]))
            .setKafkaProducerConfig(producer)
            .build();
        environment.fromSource(source, WatermarkStrategy.noWatermarks(), "in").sinkTo(sink);
        environment.execute("copy");
    }
}
