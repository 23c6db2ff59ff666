"""What an offline load has done and is about to do: numbered plans in the folder it writes to.

```
<out>/_load/plan-00000007.json     ranges with the names of their files, fixed before a byte is written
<out>/_load/plan-00000007.done     all of its files are there
<out>/<topic>/partition=<p>/<start>-<end>.parquet
```
A plan is executed until it is done, by whichever run, so that no second run ever chooses other edges; the next plan
begins where the last one ends. A file gets its name when it is whole: one that has its name is not written again.
"""

from __future__ import annotations

import posixpath
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import msgspec
from pyarrow import fs

from appliance.base.ids import TopicPartition
from spark.plan import AUTO, Split

FOLDER = "_load"


class LoadRange(msgspec.Struct, frozen=True):
    """Offsets [start, end) of a partition, which become one file."""

    topic: str
    topic_id: str
    partition: int
    start: int
    end: int
    node: int
    """The broker that led the partition when the plan was made."""

    @property
    def file(self) -> str:
        return f"{self.topic}/partition={self.partition}/{self.start:020d}-{self.end:020d}.parquet"

    @property
    def split(self) -> Split:
        tp = TopicPartition(self.topic, self.partition)
        return Split(tp, uuid.UUID(self.topic_id), self.start, self.end, AUTO)


class LoadPlan(msgspec.Struct):
    """One step of a load; `ends` is where the next one begins, of all partitions."""

    number: int
    object_store: str
    ranges: list[LoadRange]
    ends: dict[str, dict[int, int]]


@dataclass(frozen=True, slots=True)
class LoadFolder:
    """The folder that a load writes to: a path, or the URL of a file system that pyarrow knows."""

    files: fs.FileSystem
    path: str

    @classmethod
    def of(cls, out: str) -> LoadFolder:
        files, path = fs.FileSystem.from_uri(out) if "://" in out else (fs.LocalFileSystem(), out)
        return cls(files, path)

    def last_plan(self) -> tuple[LoadPlan | None, bool]:
        """The plan with the highest number, and whether it is done."""
        listed = self.files.get_file_info(fs.FileSelector(self._name(""), allow_not_found=True))
        names = {posixpath.basename(info.path) for info in listed}
        plans = sorted(name for name in names if name.startswith("plan-") and name.endswith(".json"))
        if not plans:
            return None, True
        with self.files.open_input_stream(self._name(plans[-1])) as stream:
            plan = msgspec.json.decode(stream.read(), type=LoadPlan)
        return plan, f"plan-{plan.number:08d}.done" in names

    def open_plan(self, plan: LoadPlan) -> None:
        """Fix a plan. A plan that is half written has no name, so it is no plan."""
        self.write_whole(f"{FOLDER}/plan-{plan.number:08d}.json", msgspec.json.encode(plan))

    def close_plan(self, plan: LoadPlan) -> None:
        self.write_whole(f"{FOLDER}/plan-{plan.number:08d}.done", b"")

    def write_whole(self, name: str, data: bytes) -> None:
        place = posixpath.join(self.path, name)
        self.files.create_dir(posixpath.dirname(place), recursive=True)
        with self.files.open_output_stream(f"{place}.part") as stream:
            stream.write(data)
        self.files.move(f"{place}.part", place)

    def read(self, name: str) -> bytes:
        """Raises: FileNotFoundError."""
        with self.files.open_input_stream(posixpath.join(self.path, name)) as stream:
            return bytes(stream.read())

    def exists(self, name: str) -> bool:
        found = self.files.get_file_info(posixpath.join(self.path, name))
        return bool(found.type != fs.FileType.NotFound)

    def _name(self, name: str) -> str:
        return posixpath.join(self.path, FOLDER, name)


def tasks_of(ranges: Iterable[LoadRange], unit: str) -> list[list[LoadRange]]:
    """The ranges as tasks: one for each node, topic, partition or range."""
    keys: dict[str, Callable[[LoadRange], object]] = {
        "node": lambda each: each.node,
        "topic": lambda each: each.topic,
        "partition": lambda each: (each.topic, each.partition),
        "range": lambda each: each.file,
    }
    tasks: dict[object, list[LoadRange]] = {}
    for each in ranges:
        tasks.setdefault(keys[unit](each), []).append(each)
    return list(tasks.values())
