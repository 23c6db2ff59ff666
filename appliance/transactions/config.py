"""What the operator may say about transactions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class TransactionConfig:
    """Values of the broker's configuration, with Kafka's defaults."""

    max_timeout_ms: int = 900_000
    """`transaction.max.timeout.ms`"""
    id_expiration_ms: int = 604_800_000
    """`transactional.id.expiration.ms`"""
    expiry_interval_ms: int = 3_600_000
    """`transaction.remove.expired.transaction.cleanup.interval.ms`"""


def transaction_config(get: Callable[[str], Any]) -> TransactionConfig:
    """From the broker's configuration; `get` returns the typed value of a key."""
    return TransactionConfig(
        max_timeout_ms=get("transaction.max.timeout.ms"),
        id_expiration_ms=get("transactional.id.expiration.ms"),
        expiry_interval_ms=get("transaction.remove.expired.transaction.cleanup.interval.ms"),
    )
