"""The data of tiered objects in chunks: from the disk cache, else by one ranged GET each, with read-ahead."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import OrderedDict
from concurrent.futures import Future, ThreadPoolExecutor

from appliance.base.object_store import ObjectStore, ObjectStoreError, StoreUnavailable
from appliance.tiering.chunk_cache import ChunkCache, ChunkKey
from appliance.tiering.tier_cache import TierObject

READ_AHEAD_CHUNKS = 4
"""So many come with one request: the SDK's own work for one takes more of the interpreter than two of them."""
READ_AHEAD_FROM_CHUNKS = 2
"""With fewer than these lying ready ahead of a reader the next ones are asked for."""
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

    def read(self, source: TierObject, position: int) -> memoryview:
        """Data of the object from `position` to the end of its chunk; empty at the end of the data.

        Raises: ObjectStoreError.
        """
        length = source.tail.footer.data_length
        if position >= length:
            return memoryview(b"")
        number = position // self._chunk_bytes
        data = self._chunk(source, number)
        self._note(source, number)
        return memoryview(data)[position - number * self._chunk_bytes :]

    def _note(self, source: TierObject, number: int) -> None:
        """Remember where the reader is, and read ahead of one who reads in order, up to the end of the object."""
        with self._lock:
            before = self._newest.get(source.name)
            self._newest[source.name] = number
            self._newest.move_to_end(source.name)
            if len(self._newest) > FOLLOWED_OBJECTS_MAX:
                self._newest.popitem(last=False)
            if before is None or number not in (before, before + 1):
                return
            wanted = self._ahead_of(source, number)
            self._ahead.update((source.name, ahead) for ahead in wanted)
        if wanted:
            # Closed: the process is ending.
            with contextlib.suppress(RuntimeError):
                self._threads.submit(self._read_ahead, source, wanted)

    def _ahead_of(self, source: TierObject, number: int) -> range:
        """The next chunks that nobody has or is getting, if the reader at `number` will soon want them."""
        most = min(READ_AHEAD_CHUNKS, self._cache.max_bytes // (2 * self._chunk_bytes))
        most = min(most, READ_AHEAD_WAITING_MAX - len(self._ahead))
        end = (source.tail.footer.data_length - 1) // self._chunk_bytes + 1
        first = number + 1
        while first < end and self._is_known((source.name, first)):
            first += 1
        if first > number + READ_AHEAD_FROM_CHUNKS:
            return range(0)
        stop = first
        while stop < min(end, first + most) and not self._is_known((source.name, stop)):
            stop += 1
        return range(first, stop)

    def _is_known(self, key: ChunkKey) -> bool:
        return key in self._ahead or key in self._under_way or key in self._cache

    def _read_ahead(self, source: TierObject, wanted: range) -> None:
        mine: dict[ChunkKey, Future[bytes]] = {}
        with self._lock:
            for number in wanted:
                key = (source.name, number)
                self._ahead.discard(key)
                if key in self._under_way or key in self._cache:
                    # A reader was faster; what lies before it is of no use to him any more.
                    mine.clear()
                else:
                    mine[key] = Future()
            self._under_way.update(mine)
        try:
            if mine:
                self._bring(source, mine)
        except ObjectStoreError as error:
            _log.debug("%s: reading ahead: %s", source.name, error)

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
        if other is None:
            self._bring(source, {key: mine})
            return mine.result()
        try:
            return other.result(CHUNK_WAIT_S)
        except TimeoutError as error:
            raise StoreUnavailable(f"{source.name}: chunk {number} did not come") from error

    def _bring(self, source: TierObject, wanted: dict[ChunkKey, Future[bytes]]) -> None:
        """One GET for chunks that adjoin; whoever waits for one of them goes on before the disk has it.

        Raises: ObjectStoreError.
        """
        try:
            first = next(iter(wanted))[1]
            data = self._get(source, first, len(wanted))
            size = self._chunk_bytes
            chunks = [data] if len(wanted) == 1 else [data[at : at + size] for at in range(0, len(data), size)]
            for mine, chunk in zip(wanted.values(), chunks, strict=True):
                mine.set_result(chunk)
            for key, chunk in zip(wanted, chunks, strict=True):
                self._cache.put(key, chunk)
        except BaseException as error:
            for mine in wanted.values():
                if not mine.done():
                    mine.set_exception(error)
            raise
        finally:
            with self._lock:
                for key in wanted:
                    del self._under_way[key]

    def _get(self, source: TierObject, number: int, count: int) -> bytes:
        start = number * self._chunk_bytes
        length = min(count * self._chunk_bytes, source.tail.footer.data_length - start)
        data = self._store.get(source.name, start=start, length=length, etag=source.etag).data
        if len(data) != length:
            raise StoreUnavailable(f"{source.name}: {len(data)} of {length} bytes came")
        return data
