from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from appliance.tiering.manifest import Garbage, Manifest, SegmentItem, encode_manifest
from appliance.tiering.names import ObjectName, manifest_name, partition_folder
from appliance.tiering.verify import KnownTopics, PartitionReport, compare_topics, verify_partition, verify_tier
from tests.support.tier_objects import TOPIC_ID
from tests.support.tiered import Tiered

FOLDER = partition_folder(TOPIC_ID, 0)


@pytest.fixture
def tiered(tmp_path: Path) -> Tiered:
    tiered = Tiered(tmp_path, leader_epoch=3)
    for _ in range(3):
        tiered.hosted.append_segment()
    tiered.tier()
    return tiered


def report_of(tiered: Tiered, *, read_data: bool = True) -> PartitionReport:
    return verify_partition(tiered.store, TOPIC_ID, 0, read_data=read_data)


def kinds(report: PartitionReport) -> list[str]:
    return [problem.kind for problem in report.problems]


def damage(tiered: Tiered, number: int, position: int) -> None:
    """Flip a byte of an object, behind everybody's back."""
    name = tiered.object_name(number)
    stored = tiered.store.inner.get(name)
    data = bytearray(stored.data)
    data[position] ^= 1
    tiered.store.inner.swap(name, bytes(data), stored.etag)


def test_a_whole_tier_has_no_problem(tiered: Tiered) -> None:
    report = verify_tier(tiered.store)
    assert report.is_whole
    (partition,) = report.partitions
    assert (partition.topic, partition.segments, partition.records) == ("flights", 3, 36)
    assert (partition.start_offset, partition.end_offset, partition.in_flight) == (0, 36, [])


def test_a_missing_object_is_found(tiered: Tiered) -> None:
    tiered.store.inner.delete(tiered.object_name(1))
    (problem,) = report_of(tiered).problems
    assert (problem.kind, problem.detail) == ("missing", "holds [12, 24)")


def test_a_flipped_byte_of_data_is_found_when_data_is_read(tiered: Tiered) -> None:
    damage(tiered, 1, 100)
    assert kinds(report_of(tiered)) == ["damaged"]
    assert kinds(report_of(tiered, read_data=False)) == []


def test_a_flipped_byte_of_the_tail_is_found_without_reading_data(tiered: Tiered) -> None:
    damage(tiered, 1, -45)
    assert kinds(report_of(tiered, read_data=False)) == ["damaged"]


def test_an_object_of_another_size_is_found(tiered: Tiered) -> None:
    name = tiered.object_name(0)
    stored = tiered.store.inner.get(name)
    tiered.store.inner.swap(name, b"x" + stored.data, stored.etag)
    assert kinds(report_of(tiered, read_data=False)) == ["damaged"]


def test_an_object_that_does_not_cover_its_item_is_found(tiered: Tiered) -> None:
    first, second, third = tiered.manifest.items
    assert isinstance(first, SegmentItem) and isinstance(second, SegmentItem)
    wrong = second._replace(start=12, end=24, name=first.name, size=first.size, tail=first.tail)
    tiered.write_manifest(replace(tiered.manifest, version=99, items=(first, wrong, third)))
    assert "damaged" in kinds(report_of(tiered)) and "manifest" in kinds(report_of(tiered))


def test_an_unlisted_name_of_an_older_epoch_is_an_orphan_and_one_of_the_present_epoch_in_flight(
    tiered: Tiered,
) -> None:
    old, own = ObjectName("seg", 36, 40, 2, 0), ObjectName("seg", 36, 40, 3, 77)
    for name in (old, own):
        tiered.store.inner.create(FOLDER + str(name), b"")
    report = report_of(tiered)
    assert [(problem.kind, problem.name) for problem in report.problems] == [("orphan", str(old))]
    assert report.in_flight == [str(own)]


def rewrite(tiered: Tiered, manifest: Manifest) -> None:
    """Put a manifest in place that no leader would write."""
    name = manifest_name(TOPIC_ID, 0)
    tiered.store.inner.swap(name, encode_manifest(manifest), tiered.store.inner.get(name).etag)


def test_a_range_that_no_item_covers_is_a_hole(tiered: Tiered) -> None:
    whole = tiered.manifest
    first, _, third = whole.items
    rewrite(tiered, replace(whole, items=(first, third)))
    found = [(one.kind, one.detail) for one in report_of(tiered).problems]
    assert ("hole", "nothing covers [12, 24)") in found
    rewrite(tiered, replace(whole, items=(first,)))
    assert [problem.detail for problem in report_of(tiered).problems if problem.kind == "hole"] == [
        "[12, 36) at the end 36"
    ]


def test_items_over_each_other_are_an_overlap(tiered: Tiered) -> None:
    whole = tiered.manifest
    first, second, third = whole.items
    rewrite(tiered, replace(whole, items=(first, second._replace(start=10), third)))
    assert "overlap" in kinds(report_of(tiered))


def test_an_unknown_topic_id_is_told_and_a_deleted_one_is_on_its_way_out(tiered: Tiered) -> None:
    tiered.store.inner.delete(tiered.object_name(1))
    report = verify_tier(tiered.store)
    compare_topics(report, KnownTopics({}, {TOPIC_ID: "flights"}))
    assert report.is_whole and report.partitions[0].is_deleted
    report = verify_tier(tiered.store)
    compare_topics(report, KnownTopics({}, {}))
    assert [one.kind for one in report.problems] == ["missing", "unknown"]


def test_only_the_topics_asked_for_are_verified(tiered: Tiered) -> None:
    assert verify_tier(tiered.store, topics=["trains"]).partitions == []
    assert len(verify_tier(tiered.store, topics=["flights"]).partitions) == 1


def test_garbage_is_no_orphan(tiered: Tiered) -> None:
    name = str(ObjectName("seg", 0, 5, 1, 0))
    tiered.store.inner.create(FOLDER + name, b"")
    tiered.write_manifest(replace(tiered.manifest, version=99, garbage=(Garbage(name, 0),)))
    report = report_of(tiered)
    assert (report.problems, report.garbage) == ([], 1)


def test_a_damaged_manifest_is_found(tiered: Tiered) -> None:
    name = manifest_name(TOPIC_ID, 0)
    stored = tiered.store.inner.get(name)
    tiered.store.inner.swap(name, stored.data.replace(b'"start_offset":0', b'"start_offset":1'), stored.etag)
    assert kinds(report_of(tiered)) == ["manifest"]


def test_names_that_are_not_ours_are_strangers(tiered: Tiered) -> None:
    tiered.store.inner.create(FOLDER + "seg/readme", b"")
    tiered.store.inner.create("tier/what is this", b"")
    report = verify_tier(tiered.store)
    assert [problem.kind for problem in report.problems] == ["stranger", "stranger"]


def test_retention_under_way_is_no_problem(tiered: Tiered) -> None:
    done = False

    def rule(operation: str, name: str) -> str | None:
        nonlocal done
        if operation == "get" and "/seg/" in name and not done:
            done = True
            tiered.hosted.raise_log_start(24)
            tiered.tier()
            tiered.tier()
        return None

    tiered.store.rule = rule
    report = report_of(tiered)
    assert (report.problems, report.start_offset) == ([], 24)
