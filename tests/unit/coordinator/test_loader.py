from __future__ import annotations

from collections.abc import Callable

import pytest

from appliance.coordinator.loader import LoadSummary, load
from appliance.records.builder import build_batch
from appliance.records.errors import CorruptBatch
from appliance.wire.schema import WireError

Seen = list[tuple[bytes, bytes | None]]


def into(seen: Seen) -> Callable[[bytes, bytes | None], bool]:
    def replay(key: bytes, value: bytes | None) -> bool:
        if key == b"bad":
            raise WireError("bad")
        if key != b"unknown":
            seen.append((key, value))
        return key != b"unknown"

    return replay


def test_records_of_all_batches_are_replayed_in_order() -> None:
    seen: Seen = []
    batches = [
        build_batch([(0, b"a", b"1", ()), (0, b"b", b"2", ())], codec=1),
        build_batch([(0, b"a", None, ())], base_offset=2),
    ]
    assert load(batches, into(seen)) == LoadSummary(batches=2, records=3)
    assert seen == [(b"a", b"1"), (b"b", b"2"), (b"a", None)]


def test_what_is_unknown_or_cannot_be_read_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    seen: Seen = []
    batch = build_batch([(0, key, b"1", ()) for key in (b"unknown", None, b"bad", b"a")], base_offset=10)
    assert load([batch], into(seen)) == LoadSummary(batches=1, records=4, skipped=3)
    assert seen == [(b"a", b"1")]
    assert "offset 12" in caplog.text


def test_control_batches_hold_no_records_of_ours() -> None:
    seen: Seen = []
    batch = build_batch([(0, b"\0\0\0\1", b"\0\0\0\0\0\0", ())], control=True, transactional=True, producer_id=1)
    assert load([batch], into(seen)) == LoadSummary(batches=1)
    assert seen == []


def test_a_batch_that_is_cut_off_ends_the_load() -> None:
    with pytest.raises(CorruptBatch):
        load([build_batch([(0, b"a", b"1", ())])[:-1]], into([]))
