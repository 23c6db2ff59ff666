from __future__ import annotations

import uuid
from dataclasses import replace

import pytest

from appliance.coordinator.backup import (
    BATCH_BYTES,
    BackupHead,
    CorruptBackup,
    LastRecords,
    encode_backup,
    next_backup,
    parse_backup,
)
from appliance.records.builder import build_batch
from appliance.records.control import ABORT, COMMIT, build_marker
from tests.support.repo import REPO

HEAD = BackupHead("__consumer_offsets", uuid.UUID(int=7, version=4), 3, 50, leader_epoch=4, version=1, end_offset=10)


def batch(*rows: tuple[bytes, bytes | None], producer_id: int = -1) -> bytes:
    records = [(0, key, value, ()) for key, value in rows]
    return build_batch(records, producer_id=producer_id, producer_epoch=0, transactional=producer_id >= 0)


def read(data: bytes) -> dict[bytes, bytes]:
    known = LastRecords()
    known.read(parse_backup(data)[1])
    return known.records


def test_the_last_record_of_each_key_is_kept_and_a_null_value_removes_it() -> None:
    known = LastRecords()
    known.read([batch((b"a", b"1"), (b"b", b"1")), batch((b"a", b"2"), (b"c", b"1"))])
    known.read([batch((b"b", None))])
    assert known.records == {b"a": b"2", b"c": b"1"}


def test_what_a_transaction_wrote_counts_with_its_commit_also_when_that_comes_with_a_later_read() -> None:
    known = LastRecords()
    known.read([batch((b"a", b"0")), batch((b"a", b"1"), producer_id=1), batch((b"b", b"1"), producer_id=2)])
    assert known.records == {b"a": b"0"}
    ends = [build_marker(kind, 0, producer_id=n, producer_epoch=0, now_ms=0) for n, kind in ((1, COMMIT), (2, ABORT))]
    known.read(ends)
    assert known.records == {b"a": b"1"}


def test_a_backup_is_read_as_it_was_written() -> None:
    records = {b"key %d" % n: b"x" * 1_000 for n in range(600)}
    data = encode_backup(HEAD, records, now_ms=5)
    head, batches = parse_backup(data)
    assert head == replace(HEAD, records=600)
    assert len(batches) > 1 and max(map(len, batches)) < 2 * BATCH_BYTES
    assert read(data) == records
    assert read(encode_backup(HEAD, {}, now_ms=5)) == {}


def test_version_1_is_read_and_written_as_ever() -> None:
    golden = (REPO / "tests" / "golden" / "tiering" / "groups-1").read_bytes()
    assert encode_backup(HEAD, {b"a": b"1", b"b": b"22"}, now_ms=5) == golden
    assert (parse_backup(golden)[0], read(golden)) == (replace(HEAD, records=2), {b"a": b"1", b"b": b"22"})


def test_damaged_bytes_are_told() -> None:
    data = encode_backup(HEAD, {b"a": b"1"}, now_ms=5)
    for broken in (b"", b"{}\n", data[:-1], data[:-5] + b"?" + data[-4:], data.replace(b"groups", b"grapes"), b"[" * 9):
        with pytest.raises(CorruptBackup):
            parse_backup(broken)


def test_a_later_leaders_backup_is_left_alone_and_versions_rise() -> None:
    assert next_backup(None, HEAD) == HEAD
    assert next_backup(replace(HEAD, leader_epoch=5), HEAD) is None
    assert next_backup(HEAD, HEAD) is None, "an earlier attempt was taken"
    later = replace(HEAD, end_offset=11, version=0)
    assert next_backup(replace(HEAD, version=8), later) == replace(later, version=9)
    newer = replace(HEAD, leader_epoch=9, end_offset=2, version=0)
    assert next_backup(replace(HEAD, version=8), newer) == replace(newer, version=9), "the cluster is the truth"
