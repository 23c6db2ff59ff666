"""The data of tiered objects in chunks: from the disk cache, else by one ranged GET each, with read-ahead."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from concurrent.futures import Future, ThreadPoolExecutor

from appliance.base.object_store import ObjectStore, ObjectStoreError, StoreUnavailable
from appliance.tiering.chunk_cache import ChunkCache, ChunkKey
from appliance.tiering.tier_cache import TierObject

READ_AHEAD_CHUNKS = 4
READ_AHEAD_THREADS = 2
READ_AHEAD_WAITING_MAX = 64
"""Chunks that may wait to be read ahead; more are not asked for."""
CHUNK_WAIT_S = 60
"""How long a reader waits for a chunk that another thread is reading."""
FOLLOWED_OBJECTS_MAX = 1_000

_log = logging.getLogger(__name__)


class ChunkReader:
    """Any thread may call any method but `close`. Two readers of one chunk cause one GET."""

    def __init__(self, store: ObjectStore, cache: ChunkCache, chunk_bytes: int) -> None:
        self._store = store
        self._cache = cache
        self._chunk_bytes = chunk_bytes
        self._under_way: dict[ChunkKey, Future[bytes]] = {}
        self._ahead: set[ChunkKey] = set()
        """Chunks that wait for a thread to read them ahead, or are being read by it."""
        self._newest: OrderedDict[str, int] = OrderedDict()
        """The newest chunk that was read of an object: a reader who comes to the next one reads in order."""
        self._lock = threading.Lock()
        self._threads = ThreadPoolExecutor(READ_AHEAD_THREADS, thread_name_prefix="tier-read-ahead")

    def close(self) -> None:
        """Stop reading ahead."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def read(self, source: TierObject, position: int) -> bytes:
        """Data of the object from `position` to the end of its chunk; empty at the end of the data.

        Raises: ObjectStoreError.
        """
        length = source.tail.footer.data_length
        if position >= length:
            return b""
        number = position // self._chunk_bytes
        data = self._chunk(source, number)
        self._note(source, number)
        return data[position - number * self._chunk_bytes :]

    def _note(self, source: TierObject, number: int) -> None:
        """Remember where the reader is, and read ahead of one who reads in order, up to the end of the object."""
        with self._lock:
            before = self._newest.get(source.name)
            self._newest[source.name] = number
            self._newest.move_to_end(source.name)
            if len(self._newest) > FOLLOWED_OBJECTS_MAX:
                self._newest.popitem(last=False)
            if before is None or number not in (before, before + 1) or not self._cache.max_bytes:
                return
            last = (source.tail.footer.data_length - 1) // self._chunk_bytes
            wanted = [
                ahead
                for ahead in range(number + 1, min(last, number + READ_AHEAD_CHUNKS) + 1)
                if not any((source.name, ahead) in known for known in (self._ahead, self._under_way, self._cache))
            ]
            wanted = wanted[: READ_AHEAD_WAITING_MAX - len(self._ahead)]
            self._ahead.update((source.name, ahead) for ahead in wanted)
        for ahead in wanted:
            try:
                self._threads.submit(self._read_ahead, source, ahead)
            except RuntimeError:
                # Closed: the process is ending.
                return

    def _read_ahead(self, source: TierObject, number: int) -> None:
        try:
            self._chunk(source, number)
        except ObjectStoreError as error:
            _log.debug("%s: reading ahead: %s", source.name, error)
        finally:
            with self._lock:
                self._ahead.discard((source.name, number))

    def _chunk(self, source: TierObject, number: int) -> bytes:
        key = (source.name, number)
        data = self._cache.get(key)
        if data is not None:
            return data
        with self._lock:
            other = self._under_way.get(key)
            if other is None:
                mine: Future[bytes] = Future()
                self._under_way[key] = mine
        if other is not None:
            try:
                return other.result(CHUNK_WAIT_S)
            except TimeoutError as error:
                raise StoreUnavailable(f"{source.name}: chunk {number} did not come") from error
        try:
            data = self._get(source, number)
        except BaseException as error:
            mine.set_exception(error)
            raise
        else:
            self._cache.put(key, data)
            mine.set_result(data)
            return data
        finally:
            with self._lock:
                del self._under_way[key]

    def _get(self, source: TierObject, number: int) -> bytes:
        start = number * self._chunk_bytes
        length = min(self._chunk_bytes, source.tail.footer.data_length - start)
        data = self._store.get(source.name, start=start, length=length, etag=source.etag).data
        if len(data) != length:
            raise StoreUnavailable(f"{source.name}: {len(data)} of {length} bytes came")
        return data
