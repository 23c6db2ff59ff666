"""HTTP ingest: records over `POST /v1/topics/{topic}/records`, with a result for each.

`bodies` turns bytes into records (no sockets), `producer` brings them to their leaders over Kafka's wire, `app` is the
routes between the two, `service` the process.
"""
