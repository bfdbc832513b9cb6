"""A small client of the Kafka protocol: what replication, the coordinators' markers, Spark and the command line use."""
