from __future__ import annotations

import pytest

from appliance.base.config import BrokerConfig, topic_config
from appliance.base.errors import ErrorCode, KafkaError
from appliance.partition.recompression import recompressed, repacked, wanted_codec
from appliance.records.batch import check_batch, parse_header
from appliance.records.builder import build_batch
from appliance.records.errors import CorruptBatch
from appliance.records.reader import read_records

RECORDS = [(1_700_000_000_000 + number, b"key", b"value" * 50, [("h", b"x")]) for number in range(20)]


def wanted(compression_type: str, codec: int) -> int | None:
    batch = build_batch(RECORDS, codec=codec)
    return wanted_codec(topic_config({"compression.type": compression_type}, BrokerConfig()), parse_header(batch))


def test_only_another_codec_is_wanted() -> None:
    assert [wanted("producer", codec) for codec in range(5)] == [None] * 5
    assert [wanted("uncompressed", codec) for codec in range(3)] == [None, 0, 0]
    assert [wanted("zstd", codec) for codec in (0, 4)] == [4, None]


@pytest.mark.parametrize("before", range(5))
@pytest.mark.parametrize("after", range(5))
def test_the_records_stay_the_same_in_another_codec(before: int, after: int) -> None:
    batch = build_batch(RECORDS, codec=before, producer_id=7, producer_epoch=1, base_sequence=3)
    made = recompressed(batch, after)
    header = check_batch(made)
    assert header.codec == after
    assert list(read_records(made)) == list(read_records(batch))
    assert header[6:] == parse_header(batch)[6:], "delta, times, producer and count are untouched"


def test_a_block_that_cannot_be_unpacked_is_corrupt() -> None:
    batch = bytearray(build_batch(RECORDS, codec=1))
    batch[70:90] = b"\0" * 20
    with pytest.raises(CorruptBatch):
        recompressed(bytes(batch), 3)


def test_what_is_packed_anew_must_still_fit() -> None:
    config = topic_config({"compression.type": "uncompressed", "max.message.bytes": "1000"}, BrokerConfig())
    batch = build_batch(RECORDS, codec=1)
    assert len(batch) < 1_000
    with pytest.raises(KafkaError) as caught:
        repacked(batch, 0, config, RECORDS[0][0])
    assert caught.value.code == ErrorCode.MESSAGE_TOO_LARGE
