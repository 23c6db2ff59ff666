"""Kafka's small text files."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from appliance.base.ids import TopicPartition, uuid_to_text
from appliance.log.checkpoints import (
    CorruptCheckpoint,
    epochs_to_bytes,
    read_epochs,
    read_file,
    read_offsets,
    read_partition_metadata,
    read_properties,
    replace_file,
    write_offsets,
    write_partition_metadata,
    write_properties,
)
from tests.support.fault_disk import FaultDisk, PowerCut

FOLDER = Path("/data")


@pytest.fixture
def disk() -> FaultDisk:
    disk = FaultDisk()
    disk.mkdir(FOLDER)
    disk.fsync_directory(Path("/"))
    return disk


def write(disk: FaultDisk, name: str, content: bytes) -> Path:
    replace_file(disk, FOLDER / name, content)
    return FOLDER / name


def test_an_offset_checkpoint_is_a_version_a_count_and_lines(disk: FaultDisk) -> None:
    path = FOLDER / "recovery-point-offset-checkpoint"
    offsets = {TopicPartition("orders", 0): 12, TopicPartition("a.b_c-d", 11): 2**40}
    write_offsets(disk, path, offsets)
    assert read_file(disk, path) == b"0\n2\norders 0 12\na.b_c-d 11 1099511627776\n"
    assert read_offsets(disk, path) == offsets


def test_a_checkpoint_that_is_not_there_is_empty(disk: FaultDisk) -> None:
    assert read_offsets(disk, FOLDER / "nothing") == {}
    assert read_epochs(disk, FOLDER / "nothing") is None
    assert read_partition_metadata(disk, FOLDER / "nothing") is None
    assert read_properties(disk, FOLDER / "nothing") is None


@pytest.mark.parametrize(
    "content",
    [b"", b"0\n", b"1\n0\n", b"0\nx\n", b"0\n2\na 0 1\n", b"0\n1\na 0\n", b"0\n1\na 0 x\n", b"\xff\xfe", b"0\n-1\n"],
)
def test_a_damaged_offset_checkpoint_is_not_believed(disk: FaultDisk, content: bytes) -> None:
    with pytest.raises(CorruptCheckpoint):
        read_offsets(disk, write(disk, "checkpoint", content))


def test_leader_epochs_come_back(disk: FaultDisk) -> None:
    path = write(disk, "leader-epoch-checkpoint", epochs_to_bytes([(0, 0), (4, 100)]))
    assert read_file(disk, path) == b"0\n2\n0 0\n4 100\n"
    assert read_epochs(disk, path) == [(0, 0), (4, 100)]


@pytest.mark.parametrize("lines", ["4 100\n4 120", "4 100\n5 90", "4", "4 x"])
def test_epochs_that_do_not_rise_are_not_believed(disk: FaultDisk, lines: str) -> None:
    content = f"0\n{len(lines.splitlines())}\n{lines}\n".encode()
    with pytest.raises(CorruptCheckpoint):
        read_epochs(disk, write(disk, "epochs", content))


def test_partition_metadata_holds_the_topic_id(disk: FaultDisk) -> None:
    topic_id = uuid.uuid4()
    path = FOLDER / "partition.metadata"
    write_partition_metadata(disk, path, topic_id)
    assert read_file(disk, path) == f"version: 0\ntopic_id: {uuid_to_text(topic_id)}".encode()
    assert read_partition_metadata(disk, path) == topic_id


@pytest.mark.parametrize("content", [b"", b"version: 1\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA", b"version: 0\ntopic_id: x"])
def test_damaged_partition_metadata_is_not_believed(disk: FaultDisk, content: bytes) -> None:
    with pytest.raises(CorruptCheckpoint):
        read_partition_metadata(disk, write(disk, "partition.metadata", content))


def test_properties_may_have_comments(disk: FaultDisk) -> None:
    path = write(disk, "meta.properties", b"#\n#Mon Nov 20\nnode.id=1\ncluster.id=a=b\n\nversion=1\n")
    assert read_properties(disk, path) == {"node.id": "1", "cluster.id": "a=b", "version": "1"}
    write_properties(disk, path, {"node.id": "2"})
    assert read_file(disk, path) == b"node.id=2\n"


def test_a_file_is_replaced_whole_or_not_at_all() -> None:
    for cut_at in range(1, 12):
        for seed in range(10):
            disk = FaultDisk(seed)
            disk.mkdir(FOLDER)
            path = write(disk, "file", b"old content")
            disk.cut_at = disk.steps + cut_at
            try:
                replace_file(disk, path, b"new")
                survived = (b"new",)
            except PowerCut:
                survived = (b"old content", b"new")
            disk.restart(power_cut=True)
            assert read_file(disk, path) in survived
