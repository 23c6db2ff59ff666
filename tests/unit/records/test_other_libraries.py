"""Batches that other libraries build are read here, and ours there: kafka-python, aiokafka and kio are the oracles."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder
from kio.records.readers import read_batch as kio_read_batch

from appliance.records.batch import check_batch, set_log_append_time
from appliance.records.builder import build_batch
from appliance.records.compression import Codec
from appliance.records.reader import read_records

RECORDS: list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]] = [
    (1_700_000_000_000 + n, None if n % 3 == 0 else b"key-%d" % n, b"value" * (n % 7), [("n", b"%d" % n)] * (n % 2))
    for n in range(500)
] + [(1_699_000_000_000, b"", None, [("empty", b""), ("none", None)]), (0, None, b"\x00\xff" * 40_000, [])]

LIBRARIES = {
    "kafka-python": (KafkaPythonBuilder, KafkaPythonBatch),
    "aiokafka": (AiokafkaBuilder, AiokafkaBatch),
}


def theirs(builder_class: Callable[..., Any], codec: int) -> bytes:
    builder = builder_class(
        magic=2,
        compression_type=codec,
        is_transactional=1,
        producer_id=5,
        producer_epoch=1,
        base_sequence=77,
        batch_size=1 << 30,
    )
    for offset, (timestamp, key, value, headers) in enumerate(RECORDS):
        builder.append(offset, timestamp, key, value, headers)
    return bytes(builder.build())


def rows(records: Iterable[Any]) -> list[tuple[object, ...]]:
    return [(r.offset, r.timestamp, r.key, r.value, [(name, value) for name, value in r.headers]) for r in records]


EXPECTED = [(n, *fields) for n, fields in enumerate(RECORDS)]


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("library", LIBRARIES)
def test_their_batches_are_read_here(library: str, codec: Codec) -> None:
    batch = theirs(LIBRARIES[library][0], codec)
    header = check_batch(batch)
    assert (header.codec, header.producer_id, header.producer_epoch, header.base_sequence) == (codec, 5, 1, 77)
    assert header.is_transactional and header.record_count == len(RECORDS)
    assert rows(read_records(batch)) == EXPECTED


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("library", LIBRARIES)
def test_our_batches_are_read_there(library: str, codec: Codec) -> None:
    batch = LIBRARIES[library][1](build_batch(RECORDS, codec=codec))
    assert batch.validate_crc()
    assert rows(batch) == EXPECTED


def test_an_uncompressed_batch_is_the_same_bytes_as_kafka_pythons() -> None:
    ours = build_batch(RECORDS, transactional=True, producer_id=5, producer_epoch=1, base_sequence=77, leader_epoch=0)
    assert ours == theirs(KafkaPythonBuilder, 0)


def test_kio_reads_our_batch() -> None:
    ours = build_batch(RECORDS, producer_id=5, producer_epoch=1, base_sequence=77, base_offset=40)
    batch, size = kio_read_batch(ours, 0)
    assert size == len(ours)
    assert (batch.base_offset, batch.producer_id, batch.producer_epoch, batch.base_sequence) == (40, 5, 1, 77)
    assert [(record.key, record.value) for record in batch.records] == [fields[1:3] for fields in RECORDS]


# Any records

_bytes = st.one_of(st.none(), st.binary(max_size=60), st.integers(0, 70_000).map(lambda size: b"\x00v" * (size // 2)))
_records = st.lists(
    st.tuples(
        st.integers(0, 2**45),
        _bytes,
        _bytes,
        st.lists(st.tuples(st.text(max_size=20), st.one_of(st.none(), st.binary(max_size=20))), max_size=3),
    ),
    min_size=1,
    max_size=20,
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(records=_records, codec=st.sampled_from(Codec), base_offset=st.integers(0, 2**40))
def test_any_records_are_the_same_here_and_there(records: list[Any], codec: Codec, base_offset: int) -> None:
    expected = [(n, *fields) for n, fields in enumerate(records)]
    ours = build_batch(records, codec=codec)
    for builder_class, batch_class in LIBRARIES.values():
        batch = batch_class(ours)
        assert batch.validate_crc()
        assert rows(batch) == expected
        builder = builder_class(
            magic=2,
            compression_type=codec,
            is_transactional=0,
            producer_id=-1,
            producer_epoch=-1,
            base_sequence=-1,
            batch_size=1 << 30,
        )
        for offset, (timestamp, key, value, headers) in enumerate(records):
            builder.append(offset, timestamp, key, value, headers)
        assert rows(read_records(bytes(builder.build()))) == expected
    plain = build_batch(records, base_offset=base_offset)
    kio_batch, _ = kio_read_batch(plain, 0)
    assert [(record.key, record.value) for record in kio_batch.records] == [fields[1:3] for fields in records]
    stamped = bytearray(ours)
    set_log_append_time(stamped, 1_800_000_000_000)
    check_batch(stamped)
    for _, batch_class in LIBRARIES.values():
        assert {record.timestamp for record in batch_class(bytes(stamped))} == {1_800_000_000_000}
