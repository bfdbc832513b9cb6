"""The `penstock` command. Records move with librdkafka, everything else through the Kafka protocol (client/)."""
