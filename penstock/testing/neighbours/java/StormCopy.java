// Storm's Kafka spout and bolt, wired together in a local cluster: topic → topic, at least once.
// Arguments: bootstrap, input, output, group.

import java.util.Properties;
import org.apache.storm.Config;
import org.apache.storm.LocalCluster;
import org.apache.storm.kafka.bolt.KafkaBolt;
import org.apache.storm.kafka.bolt.mapper.FieldNameBasedTupleToKafkaMapper;
import org.apache.storm.kafka.bolt.selector.DefaultTopicSelector;
import org.apache.storm.kafka.spout.FirstPollOffsetStrategy;
import org.apache.storm.kafka.spout.KafkaSpout;
import org.apache.storm.kafka.spout.KafkaSpoutConfig;
import org.apache.storm.topology.TopologyBuilder;

public class StormCopy {
    public static void main(String[] arguments) throws Exception {
        KafkaSpoutConfig<String, String> read = KafkaSpoutConfig.builder(arguments[0], arguments[1])
            .setProp("group.id", arguments[3])
            .setProcessingGuarantee(KafkaSpoutConfig.ProcessingGuarantee.AT_LEAST_ONCE)
            .setFirstPollOffsetStrategy(FirstPollOffsetStrategy.UNCOMMITTED_EARLIEST)
            .setOffsetCommitPeriodMs(500)
            .build();
        Properties producer = new Properties();
        producer.put("bootstrap.servers", arguments[0]);
        producer.put("acks", "all");
        producer.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        producer.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        KafkaBolt<String, String> write = new KafkaBolt<String, String>()
            .withProducerProperties(producer)
            .withTopicSelector(new DefaultTopicSelector(arguments[2]))
            .withTupleToKafkaMapper(new FieldNameBasedTupleToKafkaMapper<>("key", "value"));

        TopologyBuilder topology = new TopologyBuilder();
        topology.setSpout("read", new KafkaSpout<>(read), 1);
        topology.setBolt("write", write, 1).shuffleGrouping("read");
        Config settings = new Config();
        settings.setMessageTimeoutSecs(20);
        settings.setMaxSpoutPending(500);
        try (LocalCluster cluster = new LocalCluster()) {
            cluster.submitTopology("copy", settings, topology.createTopology());
            Thread.sleep(Long.MAX_VALUE);
        }
    }
}
