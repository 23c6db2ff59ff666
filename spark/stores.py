"""The object store of a process: opened once, for a client of S3 takes a tenth of a second to make."""

from __future__ import annotations

import functools

from appliance.base.object_store import ObjectStore
from appliance.tiering.reader import TierReader
from appliance.tiering.stores import open_store


@functools.lru_cache(maxsize=8)
def store_of(url: str) -> ObjectStore:
    """Raises: UserError: see `open_store`."""
    return open_store(url)


def tier_reader(url: str) -> TierReader:
    """A reader of its own: readers are not shared. Raises: UserError."""
    return TierReader(store_of(url))
