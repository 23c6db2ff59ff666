"""Values as lines of a file, as Kafka's FileStreamSink. At least once: what was not flushed is written again."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from appliance.base.ids import TopicPartition
from connectors.api import Config, Connector, SinkRecord, SinkTask


class FileSinkTask(SinkTask):
    def __init__(self) -> None:
        self._file: BinaryIO | None = None
        self._next: dict[TopicPartition, int] = {}

    def start(self, config: Config) -> None:
        self._file = Path(config["file"]).open("ab")  # noqa: SIM115 (closed by stop)

    def put(self, records: Sequence[SinkRecord]) -> None:
        assert self._file is not None
        for record in records:
            self._file.write(text_of(record.value) + b"\n")
            self._next[record.tp] = record.offset + 1

    def flush(self, closing: bool) -> Mapping[TopicPartition, int]:
        assert self._file is not None
        self._file.flush()
        os.fdatasync(self._file.fileno())
        done, self._next = self._next, {}
        return done

    def stop(self) -> None:
        if self._file is not None:
            self._file.close()


def text_of(value: object) -> bytes:
    """One line for a value: text and bytes as they are, anything else as JSON."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


class FileSink(Connector):
    """`file`, `topics`."""

    aliases = (
        "org.apache.kafka.connect.file.FileStreamSinkConnector",
        "org.apache.kafka.connect.file.FileStreamSink",
        "FileStreamSink",
    )
    kind = "sink"
    task_class = FileSinkTask

    def check(self, config: Config) -> dict[str, str]:
        return {} if config.get("file") else {"file": "is missing"}
