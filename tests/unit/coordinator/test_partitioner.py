from __future__ import annotations

import pytest

from appliance.coordinator.partitioner import java_hash, partition_for


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99_162_322),
        ("my-group", -1_906_497_762),
        ("grüße", 98_768_023),
        ("😀", 1_772_899),
        ("polygenelubricants", -(2**31)),
    ],
)
def test_hashes_are_javas(text: str, value: int) -> None:
    assert java_hash(text) == value


def test_the_partition_is_the_one_that_kafka_computes() -> None:
    assert partition_for("hello", 50) == 22
    assert partition_for("my-group", 50) == 12


def test_the_smallest_hash_belongs_to_partition_zero() -> None:
    assert partition_for("polygenelubricants", 50) == 0
