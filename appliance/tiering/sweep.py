"""Finding what no manifest lists: names of a partition's folder that are dead for ever."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from appliance.base.object_store import ObjectStore
from appliance.tiering.manifest import Item, Manifest, PageItem
from appliance.tiering.names import (
    MANIFEST,
    PAGE,
    SEGMENT,
    ObjectName,
    groups_folder,
    parse_name,
    partition_folder,
    topic_folder,
)

DELETED_MAX = 1_000
"""So many objects of a deleted topic go in one round."""

LoadPage = Callable[[PageItem], tuple[Item, ...]]


def is_listed(manifest: Manifest, name: ObjectName, load_page: LoadPage) -> bool:
    """Whether the manifest, one of its pages or its garbage names the object. Reads pages only where it may stand."""
    text = str(name)
    if any(entry.name == text for entry in manifest.garbage):
        return True
    return _is_below(manifest.items, text, name, load_page)


def _is_below(items: tuple[Item, ...], text: str, name: ObjectName, load_page: LoadPage) -> bool:
    for item in items:
        # An item lies within the range of its object, so only items that overlap the name's range can list it.
        if item.end <= name.start or item.start >= name.end:
            continue
        if getattr(item, "name", None) == text:
            return True
        if isinstance(item, PageItem) and _is_below(load_page(item), text, name, load_page):
            return True
    return False


def listed_names(items: tuple[Item, ...], load_page: LoadPage) -> Iterator[tuple[str, Item]]:
    """Every object that a list names, pages included, in offset order."""
    for item in items:
        name = getattr(item, "name", None)
        if name is not None:
            yield name, item
        if isinstance(item, PageItem):
            yield from listed_names(load_page(item), load_page)


@dataclass(frozen=True, slots=True)
class Removed:
    """What one round has removed of a deleted topic."""

    objects: int
    is_all: bool
    """Whether nothing of it was left."""


def delete_topic_objects(store: ObjectStore, topic_id: uuid.UUID, limit: int = DELETED_MAX) -> Removed:
    """Delete at most `limit` objects of a topic, the manifests of its partitions after all others.

    Only for an id whose deletion is committed: nothing else ever makes a topic's objects dead. A late upload can land
    after it, so it is repeated until two lists a day apart are empty.
    Raises: StoreUnavailable, StoreRefused.
    """
    names: list[str] = []
    manifests: list[str] = []
    is_all = True
    for row in itertools.chain(store.list(topic_folder(topic_id)), store.list(groups_folder(topic_id))):
        if len(names) >= limit:
            is_all = False
            break
        (manifests if row.name.endswith("/" + MANIFEST) else names).append(row.name)
    if is_all:
        room = limit - len(names)
        is_all = len(manifests) <= room
        names += manifests[:room]
    for name in names:
        store.delete(name)
    return Removed(len(names), is_all)


def dead_names(store: ObjectStore, manifest: Manifest, epoch: int, load_page: LoadPage) -> Iterator[str]:
    """The names that may be deleted (S2), by a leader that has claimed `epoch` and has nothing in flight.

    A name is dead when `manifest`, confirmed by that leader, does not list it and its own epoch is not above `epoch`:
    only the leader of its epoch could still list it. No age is asked for.
    Raises: StoreUnavailable, StoreRefused, and what `load_page` raises.
    """
    folder = partition_folder(manifest.topic_id, manifest.partition)
    for kind in (SEGMENT, PAGE):
        for row in store.list(f"{folder}{kind}/"):
            name = parse_name(row.name.removeprefix(folder))
            if name is not None and name.epoch <= epoch and not is_listed(manifest, name, load_page):
                yield str(name)
