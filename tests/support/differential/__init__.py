"""The same requests to two servers, ours and Apache Kafka, and what their answers differ in."""
