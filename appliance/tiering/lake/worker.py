"""Makes a partition's files: performs what `machine.py` asks for. Blocks; belongs into a process of its own."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import assert_never

from appliance.base.clock import Clock
from appliance.base.object_store import (
    ETagMismatch,
    ObjectExists,
    ObjectNotFound,
    StoreUndecided,
)
from appliance.tiering.body import PIECE_BYTES, BodyStore, FileBody, body_crc32c
from appliance.tiering.lake.ledger import LakeFile, Ledger, encode_ledger, parse_ledger
from appliance.tiering.lake.machine import (
    Failed,
    LoadedLedger,
    LoadLedger,
    LoadTier,
    Request,
    StoreLedger,
    StorePage,
    WriteFiles,
    lake_round,
)
from appliance.tiering.lake.names import Output, ledger_name
from appliance.tiering.lake.policy import Pending, Tier, Written
from appliance.tiering.lake.spec import LakeSpec
from appliance.tiering.reader import TierDataLoss, TierReader
from appliance.tiering.tier_cache import TierCache

PUT_ATTEMPTS = 6
PAUSE_S = 0.25
"""Before the second attempt; doubled with each more."""


class LakeWorker:
    """One partition of one output. Any number of workers may work at the same one."""

    def __init__(
        self,
        store: BodyStore,
        output: Output,
        topic: str,
        partition: int,
        folder: Path,
        clock: Clock,
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        self._store = store
        self._output = output
        self._name = ledger_name(output, partition)
        self._empty = Ledger(str(output), topic, output.topic_id, partition)
        self._loaded = self._empty
        self._folder = folder
        self._clock = clock
        self._stopping = stopping
        self._tier = TierCache(store, clock, max_age_ms=0)
        self._reader = TierReader(store)
        self._oldest_ms = self._pending_bytes = 0
        self._first_seen: tuple[int, int] | None = None
        """The next offset, and when it was first seen waiting."""
        self.left_files = True
        """Whether dead files may lie in the store: after a start, and after a plan that was given up."""
        self.waits_ms = 0
        """In how many milliseconds what is left becomes old enough to be made into files."""

    def work(self, spec: LakeSpec | None) -> Ledger:
        """Make files of all that is worth it; returns the ledger.

        Raises:
            ObjectStoreError: the store gives no answers; try again later.
            Interrupted, TierNotCovering, CorruptManifest, CorruptObject, CorruptBatch, CorruptLedger, BadSpec, OSError.
        """
        steps = lake_round(spec)
        try:
            request = next(steps)
            while True:
                request = steps.send(self._perform(request))
        except StopIteration as stop:
            ledger: Ledger = stop.value
            if spec is not None:
                is_due = ledger.plan is not None or self._pending_bytes >= spec.max_bytes
                self.waits_ms = 0 if is_due else max(0, spec.max_age_ms - self._oldest_ms)
            return ledger

    def _perform(self, request: Request) -> object:
        match request:
            case LoadLedger():
                return self._load_ledger()
            case LoadTier(next_offset, max_bytes):
                return self._load_tier(next_offset, max_bytes)
            case StoreLedger(ledger, etag):
                return self._store_ledger(ledger, etag)
            case StorePage(page, data):
                name = self._name.rpartition("/")[0] + "/" + page.name
                return self._create(name, lambda: self._store.create(name, data), lambda: self._same(name, data))
            case WriteFiles(ledger):
                return self._write_files(ledger)
            case _:
                assert_never(request)

    def _load_ledger(self) -> LoadedLedger:
        try:
            stored = self._store.get(self._name)
            self._loaded = parse_ledger(stored.data)
        except ObjectNotFound:
            return LoadedLedger(self._empty, None)
        return LoadedLedger(self._loaded, stored.etag)

    def _load_tier(self, next_offset: int, max_bytes: int) -> Tier:
        manifest = self._tier.manifest(self._output.topic_id, self._empty.partition, again=True)
        if manifest is None:
            return Tier(next_offset if next_offset else 0, next_offset)
        pending: list[Pending] = []
        size = 0
        for item in self._tier.leaves(manifest, next_offset) if max_bytes else ():
            share = item.bytes * (item.end - max(item.start, next_offset)) // max(1, item.end - item.start)
            pending.append(Pending(max(item.start, next_offset), item.end, share, self._age_ms(item.max_timestamp)))
            size += share
            if size >= max_bytes:
                break
        if not pending:
            self._first_seen = None
        elif self._first_seen is None or self._first_seen[0] != next_offset:
            self._first_seen = (next_offset, self._clock.monotonic_ms())
        if pending and self._first_seen is not None:
            waited_ms = self._clock.monotonic_ms() - self._first_seen[1]
            pending[0] = pending[0]._replace(age_ms=max(pending[0].age_ms, waited_ms))
        self._pending_bytes = size
        self._oldest_ms = max((one.age_ms for one in pending), default=0)
        return Tier(manifest.start_offset, manifest.end_offset, tuple(pending))

    def _age_ms(self, timestamp_ms: int) -> int:
        """By the records' own time, which counts only while it can be true."""
        now_ms = self._clock.now_ms()
        return now_ms - timestamp_ms if 0 <= timestamp_ms <= now_ms else 0

    def _store_ledger(self, ledger: Ledger, etag: str | None) -> bool:
        begun = self._loaded.plan
        if begun is not None and ledger.next_offset != begun.end:
            self.left_files = True
        data = encode_ledger(ledger)
        try:
            if etag is None:
                self._store.create(self._name, data)
            else:
                self._store.swap(self._name, data, etag)
        except (ObjectExists, ETagMismatch, ObjectNotFound, StoreUndecided):
            # Whatever has happened, the ledger tells.
            return False
        return True

    def _write_files(self, ledger: Ledger) -> Written | Failed:
        # Here and not above: pyarrow is an optional dependency.
        from appliance.tiering.lake.writer import MadeFile, PlanWriter

        plan = ledger.plan
        assert plan is not None
        self._folder.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix="plan-", dir=self._folder))
        found: list[LakeFile] = []

        def put(made: MadeFile) -> LakeFile | None:
            descriptor = os.open(made.path, os.O_RDONLY)
            try:
                body = FileBody(descriptor, made.path.stat().st_size, b"")
                known = body_crc32c(body)
                name = self._output.folder + made.name
                size = body.size
                if not self._create(
                    name, lambda: self._store.create_from(name, body), lambda: self._same_file(name, body)
                ):
                    stored = self._same_rows(name, made.path)
                    if stored is None:
                        return None
                    size, known = stored
                return LakeFile(made.kind, plan.no, made.name, made.start, made.end, made.rows, size, known)
            finally:
                os.close(descriptor)

        try:
            writer = PlanWriter(ledger, plan, self._reader, folder, self._stopping)
            for made in writer.files():
                file = put(made)
                made.path.unlink()
                if file is None:
                    self.left_files = True
                    return Failed.CLASH
                found.append(file)
            return Written(tuple(found), writer.schema)
        except TierDataLoss:
            self.left_files = True
            return Failed.EXPIRED
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _create(self, name: str, create: Callable[[], str], is_same: Callable[[], bool]) -> bool:
        """Whether the object is there with these bytes. Raises: StoreUndecided, StoreRefused."""
        for attempt in range(PUT_ATTEMPTS):
            try:
                create()
                return True
            except ObjectExists:
                return is_same()
            except StoreUndecided:
                if attempt == PUT_ATTEMPTS - 1 or self._stopping():
                    raise
                time.sleep(PAUSE_S * 2**attempt)
        return False

    def _same(self, name: str, data: bytes) -> bool:
        return self._store.get(name).data == data

    def _same_file(self, name: str, body: FileBody) -> bool:
        position = 0
        while position < body.size:
            stored = self._store.get(name, start=position, length=PIECE_BYTES)
            if stored.size != body.size or stored.data != body.read_at(position, PIECE_BYTES):
                return False
            position += PIECE_BYTES
        return True

    def _same_rows(self, name: str, path: Path) -> tuple[int, int] | None:
        """Size and checksum of a file with other bytes and the same offsets, as another Parquet writer makes them."""
        import crc32c
        import pyarrow as pa
        import pyarrow.parquet as pq

        from appliance.tiering.lake.writer import OFFSET

        data = self._store.get(name).data
        try:
            theirs, ours = pq.read_table(pa.BufferReader(data)), pq.read_table(path)
        except pa.ArrowInvalid:
            return None
        if theirs.schema != ours.schema or theirs.column(OFFSET) != ours.column(OFFSET):
            return None
        return len(data), crc32c.crc32c(data)
