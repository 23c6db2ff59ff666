"""The configs of HTTP ingest: its limits, which `GET /v1/limits` tells to everybody, and who its requests are."""

from __future__ import annotations

from appliance.base.config_types import ConfigKey, ConfigType, Importance, row, table

MIB = 1024 * 1024


def _limit(name: str, default: int, doc: str) -> ConfigKey:
    return row("http." + name, ConfigType.INT, default, doc, low=1, ours=True, importance=Importance.MEDIUM)


HTTP_CONFIGS = table(
    _limit("max.body.bytes", 64 * MIB, "The largest body of a request, after decompression."),
    _limit("max.records", 500_000, "How many records one request may have."),
    _limit("max.record.bytes", MIB, "The largest record: key, value and headers."),
    _limit("max.buffered.bytes", 64 * MIB, "How many bytes of records may wait for brokers, over all requests."),
    _limit("max.block.ms", 10_000, "How long a request waits for room in that buffer before it gets 503."),
    _limit("delivery.timeout.ms", 30_000, "After how long a record without an acknowledgement gets an error."),
    _limit("request.timeout.ms", 10_000, "How long one Produce request to a broker may take."),
    _limit("max.batch.bytes", MIB // 2, "How many bytes of records one batch takes."),
    _limit("max.connections", 1_000, "How many requests may be served at once; more get 503."),
    _limit("retry.after.s", 1, "The Retry-After of a 503, in seconds."),
    row(
        "http.principal",
        ConfigType.STRING,
        "User:ANONYMOUS",
        "Who HTTP requests are to the authorizer, as `type:name`: its access control lists say what they may write.",
        ours=True,
    ),
)
"""By name."""
