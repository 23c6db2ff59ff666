"""A tier with known records, and workers that make lake files of it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from appliance.tiering.body import BodyStore
from appliance.tiering.lake.ledger import Ledger
from appliance.tiering.lake.names import DATA, Output
from appliance.tiering.lake.outputs import files_of, read_ledger
from appliance.tiering.lake.spec import LakeSpec
from appliance.tiering.lake.verify import LakeProblem, verify_output
from appliance.tiering.lake.worker import LakeWorker
from tests.support.tier_objects import TOPIC, TOPIC_ID
from tests.support.tiered import Tiered

OUTPUT = Output(TOPIC_ID, 0)
AT_ONCE = LakeSpec(max_age_ms=0, partition_by=())


class Laked(Tiered):
    """One partition, its tier and its lake output."""

    def __init__(self, path: Path, store: BodyStore | None = None, **topic_configs: Any) -> None:
        super().__init__(path, store, **topic_configs)
        self.path = path

    def worker(self, name: str = "worker") -> LakeWorker:
        return LakeWorker(self.store, OUTPUT, TOPIC, 0, self.path / name, self.clock)

    def put(self, values: Sequence[bytes | Mapping[str, Any]], *, timestamp: int | None = None) -> None:
        """One segment with these values, in the tier."""
        texts = [value if isinstance(value, bytes) else json.dumps(value).encode() for value in values]
        self.hosted.append(texts, timestamp=timestamp)
        self.hosted.log.roll(self.clock.now_ms())
        self.tier()

    @property
    def ledger(self) -> Ledger:
        ledger = read_ledger(self.store.inner, OUTPUT, 0)
        assert ledger is not None
        return ledger

    def tables(self, kind: str = DATA) -> dict[str, pa.Table]:
        """Files that count, by name."""
        return {
            file.name: pq.read_table(pa.BufferReader(self.store.inner.get(OUTPUT.folder + file.name).data))
            for file in files_of(self.store.inner, OUTPUT, self.ledger)
            if file.kind == kind
        }

    def rows(self, kind: str = DATA) -> list[dict[str, Any]]:
        """All rows that count, in offset order."""
        found = [row for table in self.tables(kind).values() for row in table.to_pylist()]
        return sorted(found, key=lambda row: row["_offset"])

    def problems(self) -> list[LakeProblem]:
        return [problem for report in verify_output(self.store.inner, OUTPUT) for problem in report.problems]
