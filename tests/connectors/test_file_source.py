"""The file source: whole lines, exact positions."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from connectors.api import ConnectError, OffsetReader, SourceOffset, SourcePartition
from connectors.sources.file import FileSource, FileSourceTask


class Committed(OffsetReader):
    def __init__(self, position: int | None = None) -> None:
        self.position = position

    def offset(self, source_partition: SourcePartition) -> SourceOffset | None:
        return None if self.position is None else {"position": self.position}


def started(path: Path, position: int | None = None, **config: str) -> FileSourceTask:
    stopping = threading.Event()
    stopping.set()  # so that an empty poll does not wait
    task = FileSourceTask()
    task.start({"file": str(path), "topic": "t", **config}, Committed(position), stopping)
    return task


def polled(task: FileSourceTask) -> list[tuple[Any, int]]:
    return [(record.value, record.source_offset["position"]) for record in task.poll()]


def test_each_line_is_a_value_and_knows_where_it_ends(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes("one\r\nzwölf\n\nlast".encode())
    assert polled(started(path)) == [("one", 5), ("zwölf", 12), ("", 13)]


def test_a_restart_goes_on_exactly_behind_the_committed_line(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"one\ntwo\nthree\n")
    assert polled(started(path, 4)) == [("two", 8), ("three", 14)]


def test_a_growing_file_is_followed_and_half_a_line_waits_for_its_end(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    task = started(path)
    assert polled(task) == []
    path.write_bytes(b"one\ntw")
    assert polled(task) == [("one", 4)]
    assert polled(task) == []
    with path.open("ab") as more:
        more.write(b"o\n")
    assert polled(task) == [("two", 8)]
    task.stop()


def test_a_poll_brings_at_most_a_batch(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"x\n" * 7)
    task = started(path, **{"batch.size": "3"})
    assert [len(task.poll()) for _ in range(4)] == [3, 3, 1, 0]


def test_a_file_that_became_shorter_is_another_file(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"x\n")
    with pytest.raises(ConnectError, match="another file"):
        started(path, 10).poll()


def test_what_is_not_text_fails_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"fine\n\xff\n")
    with pytest.raises(ConnectError, match="before byte 7 is not UTF-8"):
        started(path).poll()


def test_a_wrong_config_is_told_whole() -> None:
    assert FileSource().check({"batch.size": "many"}) == {
        "file": "is missing",
        "topic": "is missing",
        "batch.size": "is a whole number of 1 or more, not many",
    }
