"""Merge small files of an offline load into larger ones, by offsets; a run that died is finished by the next.

A merge puts the whole new file beside its sources under a hidden name, removes the sources, and gives it its name. A
reader of the folder in that moment may lack rows, and never has one twice: let nobody read meanwhile.
"""

from __future__ import annotations

import posixpath
import re
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec
import pyarrow.parquet as parquet
from pyarrow import fs
from pyspark.sql import SparkSession

from spark.jobs.common import Facts, main_of, plain_arguments, run_job
from spark.jobs.in_tasks import in_tasks
from spark.jobs.load_plan import LoadFolder

MIB = 1024 * 1024
PLAN = "_load/compaction.json"
_FILE = re.compile(r"(\d{20})-(\d{20})\.parquet")


class LoadNotFinished(Exception):
    """The last plan of the load is open: its files may still come, under the names that it has for them."""


class LoadedFile(msgspec.Struct, frozen=True):
    """A file of a load with the offsets [start, end) of a partition."""

    folder: str
    start: int
    end: int
    bytes: int

    @property
    def name(self) -> str:
        return f"{self.folder}/{self.start:020d}-{self.end:020d}.parquet"


class Merge(msgspec.Struct, frozen=True):
    """Files that adjoin, in order, and become one."""

    sources: list[LoadedFile]

    @property
    def target(self) -> str:
        first, last = self.sources[0], self.sources[-1]
        return f"{first.folder}/{first.start:020d}-{last.end:020d}.parquet"

    @property
    def hidden(self) -> str:
        """Where the whole file waits for its sources to go; readers pass over names with an underscore."""
        return posixpath.join(posixpath.dirname(self.target), f"_merged-{posixpath.basename(self.target)}")


def plan_merges(files: Iterable[LoadedFile], target_bytes: int) -> list[Merge]:
    """Neighbours of one folder, as many as fit into `target_bytes`; files of half of that and more are left alone."""
    merges: list[Merge] = []
    run: list[LoadedFile] = []

    def close() -> None:
        if len(run) > 1:
            merges.append(Merge(list(run)))
        run.clear()

    for each in sorted(files, key=lambda file: (file.folder, file.start)):
        if each.bytes >= target_bytes // 2:
            close()
            continue
        # Ranges without records have no file, so neighbours need not touch; they never overlap.
        if run and (run[-1].folder != each.folder or sum(file.bytes for file in run) + each.bytes > target_bytes):
            close()
        run.append(each)
    close()
    return merges


@dataclass(frozen=True, slots=True)
class Merger:
    """Executes merges; each step may find itself done already."""

    out: str

    def merge(self, item: bytes) -> int:
        """Rows of the new file."""
        merge = msgspec.json.decode(item, type=Merge)
        folder = LoadFolder.of(self.out)
        if not folder.exists(merge.target):
            if not folder.exists(merge.hidden):
                self._write(folder, merge)
            for source in merge.sources:
                if folder.exists(source.name):
                    folder.files.delete_file(posixpath.join(folder.path, source.name))
            folder.files.move(posixpath.join(folder.path, merge.hidden), posixpath.join(folder.path, merge.target))
        with folder.files.open_input_file(posixpath.join(folder.path, merge.target)) as opened:
            return int(parquet.ParquetFile(opened).metadata.num_rows)

    def _write(self, folder: LoadFolder, merge: Merge) -> None:
        place = posixpath.join(folder.path, merge.hidden)
        draft = posixpath.join(posixpath.dirname(place), f"_{uuid.uuid4().hex}")
        writer = None
        with folder.files.open_output_stream(draft) as stream:
            for source in merge.sources:
                with folder.files.open_input_file(posixpath.join(folder.path, source.name)) as opened:
                    read = parquet.ParquetFile(opened)
                    writer = writer or parquet.ParquetWriter(stream, read.schema_arrow)
                    for rows in read.iter_batches():
                        writer.write_batch(rows)
            if writer is not None:
                writer.close()
        folder.files.move(draft, place)


def compact_files(session: SparkSession, out: str, target_bytes: int, dry_run: bool = False) -> Facts:
    """Finish what an earlier run has left, or plan merges and execute them.

    Raises:
        LoadNotFinished: run the load first.
    """
    folder = LoadFolder.of(out)
    resumed = folder.exists(PLAN)
    if resumed:
        merges = msgspec.json.decode(folder.read(PLAN), type=list[Merge])
    else:
        _, is_done = folder.last_plan()
        if not is_done:
            raise LoadNotFinished(f"{out}: the last plan of the load is open; run offline_load to its end first")
        merges = plan_merges(_files_of(folder), target_bytes)
    files = sum(len(merge.sources) for merge in merges)
    facts: Facts = {"resumed": resumed, "files_before": files, "files": len(merges)}
    if dry_run or not merges:
        return facts
    folder.write_whole(PLAN, msgspec.json.encode(merges))
    rows = in_tasks(session, [[msgspec.json.encode(merge)] for merge in merges], Merger(out).merge)
    folder.files.delete_file(posixpath.join(folder.path, PLAN))
    return {**facts, "records": sum(rows)}


def _files_of(folder: LoadFolder) -> list[LoadedFile]:
    listed = folder.files.get_file_info(fs.FileSelector(folder.path, recursive=True, allow_not_found=True))
    files = []
    for info in listed:
        found = _FILE.fullmatch(posixpath.basename(info.path))
        if info.type == fs.FileType.File and found is not None:
            where = posixpath.relpath(posixpath.dirname(info.path), folder.path)
            files.append(LoadedFile(where, int(found[1]), int(found[2]), info.size))
    return files


def main(arguments: Sequence[str]) -> int:
    parser = plain_arguments("compact_files", __doc__)
    parser.add_argument("--out", required=True, help="the folder or URL that offline_load writes to")
    parser.add_argument("--target-mib", type=int, default=128, help="how large a merged file may become")
    chosen = parser.parse_args(arguments)
    if chosen.target_mib < 1:
        parser.error("--target-mib is 1 or more")
    return run_job(
        "compact_files",
        chosen,
        lambda session: compact_files(session, chosen.out, chosen.target_mib * MIB, chosen.dry_run),
    )


if __name__ == "__main__":
    main_of(main)
