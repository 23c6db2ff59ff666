"""Records as files in a bucket or folder, with the property names of the S3 sink connectors.

Each file holds `flush.size` records of one partition and is named after the offset of its first:
`<topics.dir>/<topic>/partition=<n>/<topic>+<n>+<start offset>.<ending>`. Boundaries are counted from the committed
offset, so whoever writes again after a crash writes the same files under the same names: each record is in one file,
once. With `rotate.schedule.interval.ms` a file may close with fewer records; written again after a crash it holds the
same records and those behind them, and replaces the shorter one.
"""

from __future__ import annotations

import base64
import gzip
import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from appliance.base.ids import TopicPartition
from connectors.api import Config, Connector, RetriableError, SinkRecord, SinkTask
from connectors.sinks.file import text_of

DEFAULT_FLUSH_SIZE = 10_000
FORMATS = {
    "io.confluent.connect.s3.format.json.JsonFormat": "json",
    "io.confluent.connect.s3.format.bytearray.ByteArrayFormat": "bytes",
    "json": "json",
    "bytes": "bytes",
    "envelope": "envelope",
}
ENDINGS = {"json": "json", "bytes": "bin", "envelope": "jsonl"}


@dataclass(slots=True)
class _OpenFile:
    start: int
    opened_s: float
    lines: list[bytes] = field(default_factory=list)
    next_offset: int = 0


class ObjectSinkTask(SinkTask):
    """Buffers at most `flush.size` records of each partition."""

    def start(self, config: Config) -> None:
        import fsspec
        import fsspec.implementations.local

        self._files: dict[TopicPartition, _OpenFile] = {}
        self._safe: dict[TopicPartition, int] = {}
        self._next: dict[TopicPartition, int] = {}
        self._flush_size = int(config.get("flush.size", DEFAULT_FLUSH_SIZE))
        self._rotate_s = int(config.get("rotate.schedule.interval.ms", "-1")) / 1000
        self._format = FORMATS[config.get("format.class", "json")]
        self._gzip = config.get("s3.compression.type", "none") == "gzip"
        self._topics_dir = config.get("topics.dir", "topics").strip("/")
        self._filesystem: Any
        self._filesystem, root = fsspec.core.url_to_fs(_root_url(config), **_filesystem_options(config))
        self._root = root.rstrip("/")
        self._is_local = isinstance(self._filesystem, fsspec.implementations.local.LocalFileSystem)

    def put(self, records: Sequence[SinkRecord]) -> None:
        for record in records:
            # After a write that failed the same records come again; what is buffered or written already counts.
            if record.offset < self._next.get(record.tp, 0):
                continue
            self._write_if_full(record.tp)
            file = self._files.get(record.tp)
            if file is None:
                file = self._files[record.tp] = _OpenFile(record.offset, time.monotonic())
            file.lines.append(self._line(record))
            self._next[record.tp] = record.offset + 1
            file.next_offset = record.offset + 1
            self._write_if_full(record.tp)

    def flush(self, closing: bool) -> Mapping[TopicPartition, int]:
        if self._rotate_s > 0:
            now_s = time.monotonic()
            for tp in [tp for tp, file in self._files.items() if now_s - file.opened_s >= self._rotate_s]:
                self._write(tp)
        safe, self._safe = self._safe, {}
        return safe

    def _write_if_full(self, tp: TopicPartition) -> None:
        file = self._files.get(tp)
        if file is not None and len(file.lines) >= self._flush_size:
            self._write(tp)

    def _write(self, tp: TopicPartition) -> None:
        file = self._files[tp]
        ending = ENDINGS[self._format] + (".gz" if self._gzip else "")
        name = f"{tp.topic}+{tp.partition}+{file.start:010d}.{ending}"
        path = "/".join((self._root, self._topics_dir, tp.topic, f"partition={tp.partition}", name))
        data = b"\n".join(file.lines) + b"\n"
        if self._gzip:
            # Without the time of compression equal records make equal files.
            data = gzip.compress(data, mtime=0)
        try:
            if self._is_local:
                _replace_file(Path(path), data)
            else:
                self._filesystem.pipe_file(path, data)
        except OSError as error:
            raise RetriableError(f"{path} cannot be written: {error}") from error
        # Only now, so that a failed write is tried again with the same records.
        del self._files[tp]
        self._safe[tp] = file.next_offset

    def _line(self, record: SinkRecord) -> bytes:
        if self._format != "envelope":
            return text_of(record.value)
        raw = record.raw
        row = {
            "topic": record.tp.topic,
            "partition": record.tp.partition,
            "offset": record.offset,
            "timestamp": record.timestamp,
            "key": _encoded(raw.key),
            "value": _encoded(raw.value),
            "headers": [[name, _encoded(value)] for name, value in raw.headers],
        }
        return json.dumps(row, separators=(",", ":")).encode()


def _encoded(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode("ascii")


def _replace_file(path: Path, data: bytes) -> None:
    """Whole or not at all, as a put to a bucket is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.unfinished")
    with unfinished.open("wb") as opened:
        opened.write(data)
        opened.flush()
        os.fsync(opened.fileno())
    unfinished.replace(path)


def _root_url(config: Config) -> str:
    bucket = config.get("s3.bucket.name")
    return f"s3://{bucket}" if bucket else config["store.url"]


def _filesystem_options(config: Config) -> dict[str, Any]:
    if not config.get("s3.bucket.name"):
        return {}
    options: dict[str, Any] = {}
    if config.get("aws.access.key.id"):
        options |= {"key": config["aws.access.key.id"], "secret": config.get("aws.secret.access.key", "")}
    if config.get("store.url"):
        options["endpoint_url"] = config["store.url"]
    if config.get("s3.region"):
        options["client_kwargs"] = {"region_name": config["s3.region"]}
    return options


class ObjectSink(Connector):
    """`s3.bucket.name` (with `store.url` as its endpoint) or `store.url` alone: a folder or any fsspec URL."""

    aliases = ("io.confluent.connect.s3.S3SinkConnector",)
    kind = "sink"
    task_class = ObjectSinkTask

    def check(self, config: Config) -> dict[str, str]:
        errors = {}
        if not config.get("s3.bucket.name") and not config.get("store.url"):
            errors["s3.bucket.name"] = "is missing (or store.url: a folder or URL)"
        for key, least in (("flush.size", 1), ("rotate.schedule.interval.ms", -1)):
            text = config.get(key, "1")
            if not text.lstrip("-").isdigit() or int(text) < least:
                errors[key] = f"is a whole number of {least} or more, not {text}"
        if config.get("format.class", "json") not in FORMATS:
            errors["format.class"] = f"is one of {', '.join(FORMATS)}, not {config['format.class']}"
        if config.get("s3.compression.type", "none") not in ("none", "gzip"):
            errors["s3.compression.type"] = "is none or gzip"
        return errors

    def task_configs(self, config: Config, max_tasks: int) -> list[dict[str, str]]:
        # The runtime deals the partitions out to as many tasks as there may be.
        return [dict(config) for _ in range(max_tasks)]
