"""The gateway's limits; `GET /v1/limits` tells them to everybody."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from appliance.base.config import BrokerConfig

_ABOUT_PRINCIPALS = ("http.principal", "authorizer.class.name")


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """All sizes in bytes, all times in milliseconds unless the name says seconds; see `HTTP_CONFIGS` for each."""

    max_body_bytes: int
    max_records: int
    max_record_bytes: int
    max_buffered_bytes: int
    max_block_ms: int
    delivery_timeout_ms: int
    request_timeout_ms: int
    max_batch_bytes: int
    max_connections: int
    retry_after_s: int

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> HttpLimits:
        """The limits that a configuration sets. Raises UserError as `BrokerConfig` does."""
        config = BrokerConfig(properties)
        return cls(**{name: config.get("http." + name.replace("_", ".")) for name in cls.__dataclass_fields__})

    def as_dict(self) -> dict[str, int]:
        return asdict(self)


def principal_of(properties: Mapping[str, str]) -> str:
    """As whom HTTP requests come to the brokers; empty where nobody asks who somebody is. Raises UserError."""
    config = BrokerConfig({key: text for key, text in properties.items() if key in _ABOUT_PRINCIPALS})
    return str(config.get("http.principal")) if config.get("authorizer.class.name") else ""
