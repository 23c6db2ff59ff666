"""Kafka's record batches, version 2: the same bytes on the wire, on disk and in the object store."""
