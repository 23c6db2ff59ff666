"""The log of a partition: Kafka's own files, an append path of two microseconds, and recovery after any crash."""
