"""A batch in the codec that its topic wants (`compression.type`). Pure, but not quick: helper threads only."""

from __future__ import annotations

import struct

from crc32c import crc32c

from appliance.base.config import TopicConfig
from appliance.partition.produce_checks import check_records, check_size
from appliance.records.batch import CODEC_MASK, CRC_START, HEADER_BYTES, LENGTH_END, BatchHeader, parse_header
from appliance.records.compression import Codec, compress, decompress

AS_PRODUCED = "producer"
_CODECS = {"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}

_pack_length = struct.Struct(">i").pack_into
_pack_crc = struct.Struct(">I").pack_into
_pack_attributes = struct.Struct(">h").pack_into


def wanted_codec(config: TopicConfig, header: BatchHeader) -> int | None:
    """The codec that this batch has to be packed in anew; None where it may stay as it is."""
    if config.compression_type == AS_PRODUCED:
        return None
    codec = _CODECS[config.compression_type]
    return None if codec == header.codec else codec


def wanted_level(config: TopicConfig, codec: int) -> int | None:
    """The level that the topic wants of a codec; None for a codec without levels."""
    match codec:
        case Codec.GZIP:
            return config.compression_gzip_level
        case Codec.LZ4:
            return config.compression_lz4_level
        case Codec.ZSTD:
            return config.compression_zstd_level
        case _:
            return None


def repacked(batch: bytes, codec: int, config: TopicConfig, now_ms: int) -> bytearray:
    """The batch in another codec, after a look at its records: what nobody could unpack is not packed again.

    Raises:
        RecordsRefused, KafkaError: its records break a rule, or it has become too large.
    """
    check_records(batch, config, now_ms)
    made = recompressed(batch, codec, wanted_level(config, codec))
    check_size(len(made), config)
    return made


def recompressed(batch: bytes | memoryview, codec: int, level: int | None = None) -> bytearray:
    """The same records in another codec. The records are one packed block: none of them is opened.

    Raises:
        CorruptBatch: the block cannot be unpacked.
    """
    header = parse_header(batch)
    packed = compress(codec, decompress(header.codec, memoryview(batch)[HEADER_BYTES : header.size_in_bytes]), level)
    made = bytearray(batch[:HEADER_BYTES])
    made += packed
    _pack_length(made, 8, len(made) - LENGTH_END)
    _pack_attributes(made, CRC_START, header.attributes & ~CODEC_MASK | codec)
    _pack_crc(made, 17, crc32c(memoryview(made)[CRC_START:]))
    return made
