"""Compressed bodies."""

from __future__ import annotations

import gzip

import pytest
import zstandard

from appliance.http_ingest.bodies import BadRequest
from appliance.http_ingest.decompression import decompressor_for

BODY = b'{"value": "' + b"x" * 100_000 + b'"}\n'
PACKED = {"identity": BODY, "gzip": gzip.compress(BODY), "zstd": zstandard.compress(BODY)}


@pytest.mark.parametrize("encoding", PACKED)
@pytest.mark.parametrize("step", [1, 1000, 10_000_000])
def test_a_body_comes_back_however_its_bytes_arrive(encoding: str, step: int) -> None:
    packed = PACKED[encoding][:3000] if step == 1 and encoding == "identity" else PACKED[encoding]
    decompressor = decompressor_for(encoding, len(BODY))
    got = b"".join(decompressor.feed(packed[start : start + step]) for start in range(0, len(packed), step))
    decompressor.finish()
    assert got == (BODY if packed is PACKED[encoding] else packed)


@pytest.mark.parametrize("encoding", PACKED)
def test_more_than_the_limit_is_refused(encoding: str) -> None:
    decompressor = decompressor_for(encoding, len(BODY) - 1)
    with pytest.raises(BadRequest) as caught:
        decompressor.feed(PACKED[encoding])
    assert caught.value.status == 413


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_a_small_body_that_grows_without_bounds_is_refused_early(encoding: str) -> None:
    huge = b"\0" * (64 << 20)
    packed = gzip.compress(huge) if encoding == "gzip" else zstandard.compress(huge)
    decompressor = decompressor_for(encoding, 1 << 20)
    with pytest.raises(BadRequest) as caught:
        decompressor.feed(packed)
    assert caught.value.status == 413


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_a_body_that_is_cut_off_or_something_else_is_refused(encoding: str) -> None:
    cut = decompressor_for(encoding, 1 << 20)
    cut.feed(PACKED[encoding][:20])
    with pytest.raises(BadRequest, match="cut off"):
        cut.finish()
    with pytest.raises(BadRequest, match="not"):
        decompressor_for(encoding, 1 << 20).feed(b"this is plain text, and long enough to be looked at")


def test_gzip_members_one_after_the_other_are_one_body() -> None:
    decompressor = decompressor_for("gzip", 1000)
    assert decompressor.feed(gzip.compress(b"one ") + gzip.compress(b"two")) == b"one two"
    decompressor.finish()


def test_an_unknown_encoding_is_named() -> None:
    with pytest.raises(BadRequest, match="br") as caught:
        decompressor_for("br", 10)
    assert caught.value.status == 415
