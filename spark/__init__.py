"""The data pipeline on Spark: hot and tiered records as one table.

`format("appliance")` reads with the option names, columns and offset JSON of Spark's own Kafka source. Cold records
come straight from the object store, hot ones from the brokers, each exactly once, in [start, end) of one offset.
"""
