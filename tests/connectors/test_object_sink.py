"""The sink to buckets and folders: names and boundaries follow from offsets alone, so a repetition changes nothing."""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path

import boto3
import pytest

from appliance.base.ids import TopicPartition
from appliance.records.reader import Record
from connectors.api import RetriableError, SinkRecord
from connectors.sinks.objects import ObjectSink, ObjectSinkTask
from tests.support.moto_server import MotoServer

TP = TopicPartition("t", 2)


def records(start: int, end: int) -> list[SinkRecord]:
    made = []
    for offset in range(start, end):
        raw = Record(offset, 1000 + offset, b"k", b"v%d" % offset, (("h", None),))
        made.append(SinkRecord(TP, offset, raw.timestamp, "k", f"v{offset}", raw.headers, raw))
    return made


def started(**config: str) -> ObjectSinkTask:
    task = ObjectSinkTask()
    task.start({"flush.size": "4", **config})
    return task


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_a_file_is_named_after_its_first_offset_and_holds_flush_size_records(tmp_path: Path) -> None:
    task = started(**{"store.url": str(tmp_path)})
    task.put(records(10, 19))
    assert files(tmp_path) == {
        "topics/t/partition=2/t+2+0000000010.json": b"v10\nv11\nv12\nv13\n",
        "topics/t/partition=2/t+2+0000000014.json": b"v14\nv15\nv16\nv17\n",
    }
    assert task.flush(closing=False) == {TP: 18}
    assert task.flush(closing=True) == {}


def test_whoever_repeats_after_a_crash_writes_the_same_files(tmp_path: Path) -> None:
    task = started(**{"store.url": str(tmp_path)})
    task.put(records(0, 6))
    before = files(tmp_path)
    repeated = started(**{"store.url": str(tmp_path)})  # nothing was committed
    repeated.put(records(0, 3))
    repeated.put(records(3, 8))
    after = files(tmp_path)
    assert {name: after[name] for name in before} == before
    assert b"".join(after.values()) == b"".join(b"v%d\n" % offset for offset in range(8))


def test_a_write_that_failed_is_repeated_without_doubling_records(tmp_path: Path) -> None:
    task = started(**{"store.url": str(tmp_path)})
    blocked = tmp_path / "topics"
    blocked.write_text("a file in the folder's place")
    task.put(records(0, 2))
    with pytest.raises(RetriableError):
        task.put(records(2, 6))
    blocked.unlink()
    task.put(records(2, 6))
    assert files(tmp_path) == {"topics/t/partition=2/t+2+0000000000.json": b"v0\nv1\nv2\nv3\n"}
    task.put(records(6, 8))
    assert files(tmp_path)["topics/t/partition=2/t+2+0000000004.json"] == b"v4\nv5\nv6\nv7\n"


def test_time_closes_a_file_early(tmp_path: Path) -> None:
    task = started(**{"store.url": str(tmp_path), "rotate.schedule.interval.ms": "1"})
    task.put(records(0, 2))
    for file in task._files.values():
        file.opened_s -= 1
    assert task.flush(closing=False) == {TP: 2}
    assert list(files(tmp_path)) == ["topics/t/partition=2/t+2+0000000000.json"]


def test_envelopes_keep_everything_and_gzip_is_repeatable(tmp_path: Path) -> None:
    config = {"store.url": str(tmp_path), "format.class": "envelope", "s3.compression.type": "gzip", "flush.size": "1"}
    started(**config).put(records(7, 8))
    first = files(tmp_path)
    started(**config).put(records(7, 8))
    assert files(tmp_path) == first
    row = json.loads(gzip.decompress(first["topics/t/partition=2/t+2+0000000007.jsonl.gz"]))
    assert row == {
        "topic": "t",
        "partition": 2,
        "offset": 7,
        "timestamp": 1007,
        "key": base64.b64encode(b"k").decode(),
        "value": base64.b64encode(b"v7").decode(),
        "headers": [["h", None]],
    }


def test_a_bucket_gets_the_same_files_as_a_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    with MotoServer() as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        bucket = server.bucket()
        task = started(**{"s3.bucket.name": bucket, "store.url": server.endpoint_url, "topics.dir": "a/b"})
        task.put(records(0, 9))
        s3 = boto3.client("s3", **server.client_options)
        names = [row["Key"] for row in s3.list_objects_v2(Bucket=bucket)["Contents"]]
        assert names == ["a/b/t/partition=2/t+2+0000000000.json", "a/b/t/partition=2/t+2+0000000004.json"]
        assert s3.get_object(Bucket=bucket, Key=names[1])["Body"].read() == b"v4\nv5\nv6\nv7\n"


def test_a_wrong_config_is_told_whole() -> None:
    errors = ObjectSink().check({"flush.size": "0", "format.class": "xml", "s3.compression.type": "lzma"})
    assert sorted(errors) == ["flush.size", "format.class", "s3.bucket.name", "s3.compression.type"]
