from __future__ import annotations

from pathlib import Path

import pytest

from appliance.base.object_store import StoreRefused
from appliance.tiering.body import BytesBody
from appliance.tiering.directory import DirectoryStore
from appliance.tiering.events import (
    DeleteFailed,
    DeleteObjects,
    ManifestRead,
    ObjectsDeleted,
    PageRead,
    PageUploaded,
    ReadFailed,
    ReadManifest,
    ReadPage,
    RecoverLog,
    SweepFailed,
    SweepObjects,
    Swept,
    UploadConflict,
    UploadFailed,
    UploadPage,
    UploadUndecided,
    WriteConfirmed,
    WriteManifest,
    WriteRefused,
    WriteUndecided,
)
from appliance.tiering.manifest import Manifest, SegmentItem
from appliance.tiering.names import ObjectName, manifest_name, partition_folder
from appliance.tiering.recovery import TierEnd
from appliance.tiering.store_calls import StoreCalls
from tests.support.fault_store import FaultStore, away
from tests.support.tier_objects import TOPIC, TOPIC_ID, data_batch, segment_object

FOLDER = partition_folder(TOPIC_ID, 0)
PAGE = UploadPage(
    ObjectName("page", 0, 10, 1, 1), (SegmentItem(0, 10, str(ObjectName("seg", 0, 10, 1, 0)), 9, 5, 0, 0, 1),), 1_000
)
MANIFEST = Manifest(TOPIC, TOPIC_ID, 0, "delete", 1, 1, 0, 0)


@pytest.fixture
def store(tmp_path: Path) -> FaultStore:
    return FaultStore(DirectoryStore(tmp_path))


@pytest.fixture
def calls(store: FaultStore) -> StoreCalls:
    return StoreCalls(store, TOPIC_ID, 0)


def test_a_manifest_is_created_swapped_and_read(calls: StoreCalls) -> None:
    assert calls.perform(ReadManifest()) == ManifestRead(None, None)
    created = calls.perform(WriteManifest(MANIFEST, None))
    assert isinstance(created, WriteConfirmed)
    assert calls.perform(ReadManifest()) == ManifestRead(MANIFEST, created.etag)
    assert calls.perform(WriteManifest(MANIFEST, None)) == WriteRefused()
    assert calls.perform(WriteManifest(MANIFEST, "another")) == WriteRefused()
    newer = Manifest(TOPIC, TOPIC_ID, 0, "delete", 2, 1, 0, 0)
    assert isinstance(calls.perform(WriteManifest(newer, created.etag)), WriteConfirmed)


def test_a_manifest_that_cannot_be_believed_is_not_taken_for_none(store: FaultStore, calls: StoreCalls) -> None:
    store.inner.create(manifest_name(TOPIC_ID, 0), b"{}")
    assert isinstance(calls.perform(ReadManifest()), ReadFailed)


def test_nothing_is_known_of_a_write_that_was_not_answered(store: FaultStore, calls: StoreCalls) -> None:
    for fate in ("refuse", "lose"):
        store.rule = lambda operation, name, fate=fate: fate
        assert isinstance(calls.perform(WriteManifest(MANIFEST, None)), WriteUndecided)


def test_a_write_that_the_store_forbids_stays_undecided_because_an_earlier_attempt_may_have_been_taken(
    store: FaultStore, calls: StoreCalls
) -> None:
    def forbid(operation: str, name: str) -> str | None:
        raise StoreRefused("403 Access Denied")

    store.rule = forbid
    assert isinstance(calls.perform(WriteManifest(MANIFEST, None)), WriteUndecided)
    assert isinstance(calls.perform(PAGE), UploadFailed)


def test_an_upload_whose_answer_was_lost_is_found_done_the_next_time(store: FaultStore, calls: StoreCalls) -> None:
    name, body, tail_bytes = segment_object(data_batch(0, [b"a", b"b"]), 0, 2)
    tail = body[-tail_bytes:]
    store.rule = lambda operation, name: "lose" if operation == "create" else None
    assert isinstance(calls.create_or_compare(str(name), BytesBody(body), tail), UploadUndecided)
    assert isinstance(calls.perform(PAGE), UploadUndecided)
    store.rule = lambda operation, name: None
    assert calls.create_or_compare(str(name), BytesBody(body), tail) is None
    assert isinstance(calls.perform(PAGE), PageUploaded)


def test_another_body_under_the_name_is_a_conflict(store: FaultStore, calls: StoreCalls) -> None:
    name, body, tail_bytes = segment_object(data_batch(0, [b"a", b"b"]), 0, 2)
    store.inner.create(FOLDER + str(name), body[:-1] + b"x")
    store.inner.create(FOLDER + str(PAGE.name), b"other")
    assert isinstance(calls.create_or_compare(str(name), BytesBody(body), body[-tail_bytes:]), UploadConflict)
    assert isinstance(calls.perform(PAGE), UploadConflict)


def test_a_page_is_read_back_as_it_was_uploaded(calls: StoreCalls) -> None:
    uploaded = calls.perform(PAGE)
    assert isinstance(uploaded, PageUploaded)
    assert calls.perform(ReadPage(uploaded.item)) == PageRead(uploaded.item, PAGE.items)
    assert isinstance(calls.perform(ReadPage(uploaded.item._replace(name="page/gone"))), ReadFailed)


def test_deletes_and_sweeps_say_when_they_could_not_be_done(store: FaultStore, calls: StoreCalls) -> None:
    name = str(ObjectName("seg", 0, 5, 0, 0))
    store.inner.create(FOLDER + name, b"")
    store.rule = away()
    assert isinstance(calls.perform(DeleteObjects((name,))), DeleteFailed)
    assert isinstance(calls.perform(SweepObjects(MANIFEST, 1)), SweepFailed)
    store.rule = lambda operation, name: None
    assert calls.perform(SweepObjects(MANIFEST, 1)) == Swept(1)
    assert calls.perform(DeleteObjects((name,))) == ObjectsDeleted((name,))


def test_the_end_of_the_tier_is_the_last_object_also_behind_pages(store: FaultStore, calls: StoreCalls) -> None:
    assert calls.perform(RecoverLog(MANIFEST)) == TierEnd(0, 0, None)
    name, body, tail_bytes = segment_object(data_batch(0, [b"a", b"b"]), 0, 2)
    store.inner.create(FOLDER + str(name), body)
    item = SegmentItem(0, 2, str(name), len(body), tail_bytes, 0, 0, 2)
    uploaded = calls.perform(UploadPage(ObjectName("page", 0, 2, 1, 5), (item,), 1_000))
    assert isinstance(uploaded, PageUploaded)
    found = calls.perform(RecoverLog(Manifest(TOPIC, TOPIC_ID, 0, "delete", 1, 1, 0, 2, items=(uploaded.item,))))
    assert isinstance(found, TierEnd) and found.tail is not None
    assert (found.end_offset, found.tail.footer.end) == (2, 2)
