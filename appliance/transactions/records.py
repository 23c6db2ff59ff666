"""Transactional ids as bytes, in the formats of Kafka's `__transaction_state`, so that its tools can read them.

```
key    int16 kind (0), then TransactionLogKey
value  int16 version, then TransactionLogValue in that version; no value forgets the id
```
"""

from __future__ import annotations

import struct

from appliance.transactions.states import TransactionState
from appliance.transactions.stored import Transaction, TransactionRecord
from appliance.wire.codec import decode, encode
from appliance.wire.messages.transaction_records import PartitionsSchema, TransactionLogKey, TransactionLogValue
from appliance.wire.schema import WireError

TRANSACTION_KIND = 0
VALUE_VERSION = 1

_INT16 = struct.Struct(">h")


def encode_record(record: TransactionRecord) -> tuple[bytes, bytes | None]:
    """Key and value of a record."""
    key = TransactionLogKey(transactional_id=record.transactional_id)
    return _INT16.pack(TRANSACTION_KIND) + encode(key, 0), _value(record.transaction)


def decode_record(key: bytes, value: bytes | None) -> TransactionRecord | None:
    """Read a record; None if it is of a kind that we do not know.

    Raises:
        WireError: it is of a known kind, but cannot be read.
    """
    if _leading_int16(key) != TRANSACTION_KIND:
        return None
    transactional_id = decode(TransactionLogKey, memoryview(key)[2:], 0).transactional_id
    return TransactionRecord(transactional_id, _read_value(transactional_id, value))


def by_topic(partitions: frozenset[tuple[str, int]]) -> list[tuple[str, list[int]]]:
    """Partitions by topic, both in their order."""
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        topics.setdefault(topic, []).append(partition)
    return list(topics.items())


def _value(transaction: Transaction | None) -> bytes | None:
    if transaction is None:
        return None
    # An id without an open transaction has no list at all, as in Kafka.
    partitions = None
    if transaction.state is not TransactionState.EMPTY or transaction.partitions:
        partitions = [
            PartitionsSchema(topic=topic, partition_ids=numbers) for topic, numbers in by_topic(transaction.partitions)
        ]
    value = TransactionLogValue(
        producer_id=transaction.producer_id,
        previous_producer_id=transaction.previous_producer_id,
        next_producer_id=transaction.next_producer_id,
        producer_epoch=transaction.producer_epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=transaction.state,
        transaction_partitions=partitions,
        transaction_last_update_timestamp_ms=transaction.update_ms,
        transaction_start_timestamp_ms=transaction.start_ms,
        client_transaction_version=transaction.client_version,
    )
    return _INT16.pack(VALUE_VERSION) + encode(value, VALUE_VERSION)


def _read_value(transactional_id: str, content: bytes | None) -> Transaction | None:
    if content is None:
        return None
    value = decode(TransactionLogValue, memoryview(content)[2:], _leading_int16(content))
    try:
        state = TransactionState(value.transaction_status)
    except ValueError:
        raise WireError(f"transactional id {transactional_id}: there is no state {value.transaction_status}") from None
    return Transaction(
        transactional_id=transactional_id,
        producer_id=value.producer_id,
        producer_epoch=value.producer_epoch,
        timeout_ms=value.transaction_timeout_ms,
        state=state,
        partitions=frozenset(
            (topic.topic, partition)
            for topic in value.transaction_partitions or []
            for partition in topic.partition_ids
        ),
        start_ms=value.transaction_start_timestamp_ms,
        update_ms=value.transaction_last_update_timestamp_ms,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        client_version=value.client_transaction_version,
    )


def _leading_int16(content: bytes) -> int:
    if len(content) < 2:
        raise WireError(f"{len(content)} bytes, where kind or version takes two")
    number: int = _INT16.unpack_from(content)[0]
    return number
