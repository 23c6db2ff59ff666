"""Which operation on which resource each API needs, and what is answered where it is not allowed. As Apache Kafka."""
