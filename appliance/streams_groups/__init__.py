"""Groups of Kafka Streams (KIP-1071): the broker knows the topology, makes its topics and assigns its tasks. Pure."""
