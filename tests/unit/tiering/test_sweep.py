from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.base.object_store import ObjectInfo
from appliance.tiering.directory import DirectoryStore
from appliance.tiering.manifest import Garbage, Item, Manifest, PageItem, SegmentItem
from appliance.tiering.names import ObjectName, manifest_name, partition_folder
from appliance.tiering.sweep import Removed, dead_names, delete_topic_objects, is_listed
from tests.support.tier_objects import TOPIC, TOPIC_ID

FOLDER = partition_folder(TOPIC_ID, 0)


def item(name: ObjectName, start: int | None = None) -> SegmentItem:
    return SegmentItem(name.start if start is None else start, name.end, str(name), 10, 5, 0, 0, 1)


PAGED = ObjectName("seg", 0, 10, 1, 0)
PAGE_NAME = ObjectName("page", 0, 20, 3, 1)
CUT = ObjectName("seg", 15, 30, 3, 0)
DROPPED = ObjectName("seg", 0, 4, 2, 5)
PAGE = PageItem(0, 20, str(PAGE_NAME), 1, 0, 0, 2, 20, 2)
MANIFEST = Manifest(
    TOPIC, TOPIC_ID, 0, "delete", 9, 3, 0, 30, items=(PAGE, item(CUT, 20)), garbage=(Garbage(str(DROPPED), 0),)
)


def load_page(page: PageItem) -> tuple[Item, ...]:
    assert page == PAGE
    return (item(PAGED), SegmentItem(10, 20, str(ObjectName("seg", 10, 20, 1, 1)), 10, 5, 0, 0, 1))


def no_page(page: PageItem) -> tuple[Item, ...]:
    raise AssertionError("the name cannot stand in a page")


def test_listed_are_items_pages_what_stands_in_pages_and_garbage() -> None:
    assert all(is_listed(MANIFEST, name, load_page) for name in (PAGED, PAGE_NAME, CUT, DROPPED))
    assert not is_listed(MANIFEST, PAGED._replace(seq=99), load_page)


def test_a_page_is_read_only_for_names_that_may_stand_in_it() -> None:
    assert not is_listed(MANIFEST, ObjectName("seg", 20, 30, 2, 0), no_page)


@pytest.fixture
def store(tmp_path: Path) -> DirectoryStore:
    store = DirectoryStore(tmp_path)
    store.create(manifest_name(TOPIC_ID, 0), b"")
    for name in (PAGED, PAGE_NAME, CUT, DROPPED):
        store.create(FOLDER + str(name), b"")
    return store


def test_dead_is_what_is_not_listed_and_not_of_a_later_epoch(store: DirectoryStore) -> None:
    older, own, later = (ObjectName("seg", 30, 40, epoch, 7) for epoch in (2, 3, 4))
    page = ObjectName("page", 0, 5, 1, 1)
    for name in (older, own, later, page):
        store.create(FOLDER + str(name), b"")
    store.create(FOLDER + "seg/not ours", b"")
    assert list(dead_names(store, MANIFEST, 3, load_page)) == [str(older), str(own), str(page)]


def test_a_deleted_topic_loses_its_manifests_last(store: DirectoryStore) -> None:
    other = manifest_name(TOPIC_ID.__class__(int=7), 0)
    store.create(other, b"")
    store.create(manifest_name(TOPIC_ID, 1), b"")
    order: list[str] = []

    class Noting(DirectoryStore):
        def delete(self, name: str) -> None:
            order.append(name)
            super().delete(name)

        def list(self, prefix: str, *, start_after: str = "") -> Iterator[ObjectInfo]:
            return super().list(prefix, start_after=start_after)

    assert delete_topic_objects(Noting(store._root), TOPIC_ID, limit=3) == Removed(3, is_all=False)
    assert delete_topic_objects(Noting(store._root), TOPIC_ID, limit=2) == Removed(2, is_all=False)
    assert delete_topic_objects(Noting(store._root), TOPIC_ID) == Removed(1, is_all=True)
    assert delete_topic_objects(Noting(store._root), TOPIC_ID) == Removed(0, is_all=True)
    assert [name.endswith("manifest.json") for name in order] == [False] * 4 + [True] * 2
    assert [row.name for row in store.list("")] == [other]
