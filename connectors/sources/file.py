"""Lines of a file, as Kafka's FileStreamSource: each line is a value; a growing file is followed.

The committed offset is the position in bytes behind the last whole line, so a restart continues exactly there. A last
line without a line end waits until its end is written.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import BinaryIO

from connectors.api import Config, ConnectError, Connector, OffsetReader, SourceRecord, SourceTask

DEFAULT_BATCH_SIZE = 2_000
IDLE_WAIT_S = 0.2
MAX_LINE_BYTES = 16 * 1024 * 1024


class FileSourceTask(SourceTask):
    def __init__(self) -> None:
        self._file: BinaryIO | None = None

    def start(self, config: Config, offsets: OffsetReader, stopping: threading.Event) -> None:
        self._path = Path(config["file"])
        self._topic = config["topic"]
        self._batch_size = int(config.get("batch.size", DEFAULT_BATCH_SIZE))
        self._stopping = stopping
        self._partition = {"filename": str(self._path)}
        committed = offsets.offset(self._partition)
        self._position = int(committed["position"]) if committed else 0

    def poll(self) -> list[SourceRecord]:
        records: list[SourceRecord] = []
        opened = self._open()
        if opened is not None:
            while len(records) < self._batch_size:
                line = opened.readline(MAX_LINE_BYTES)
                if not line.endswith(b"\n"):
                    if len(line) == MAX_LINE_BYTES:
                        raise ConnectError(
                            f"{self._path}: the line at byte {self._position} is longer than {MAX_LINE_BYTES} bytes"
                        )
                    # Half a line: whoever writes the file is not done with it.
                    opened.seek(self._position)
                    break
                self._position += len(line)
                records.append(self._record(line))
        if not records:
            self._stopping.wait(IDLE_WAIT_S)
        return records

    def stop(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self) -> BinaryIO | None:
        if self._file is None:
            try:
                self._file = self._path.open("rb")
            except FileNotFoundError:
                return None
            size = self._file.seek(0, 2)
            if size < self._position:
                raise ConnectError(
                    f"{self._path} has {size} bytes, {self._position} were read before: it is another file"
                )
            self._file.seek(self._position)
        return self._file

    def _record(self, line: bytes) -> SourceRecord:
        try:
            text = line.removesuffix(b"\n").removesuffix(b"\r").decode()
        except UnicodeDecodeError as error:
            raise ConnectError(f"{self._path}: the line before byte {self._position} is not UTF-8: {error}") from None
        return SourceRecord(
            self._topic, text, source_partition=self._partition, source_offset={"position": self._position}
        )


class FileSource(Connector):
    """`file`, `topic`, `batch.size`."""

    aliases = (
        "org.apache.kafka.connect.file.FileStreamSourceConnector",
        "org.apache.kafka.connect.file.FileStreamSource",
        "FileStreamSource",
    )
    kind = "source"
    task_class = FileSourceTask

    def check(self, config: Config) -> dict[str, str]:
        errors = {key: "is missing" for key in ("file", "topic") if not config.get(key)}
        size = config.get("batch.size", "1")
        if not size.isdigit() or int(size) < 1:
            errors["batch.size"] = f"is a whole number of 1 or more, not {size}"
        return errors
