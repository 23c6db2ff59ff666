"""Connectors in Kafka Connect's model: a connector makes task configs, tasks move records, a runtime runs them.

`api` is what a connector implements, one file each in `sources` and `sinks`; `runtime` runs them and serves Connect's
REST API; `converters` turn values into bytes and back.
"""
