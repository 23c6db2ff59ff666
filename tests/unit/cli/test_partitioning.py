"""Keys go where Kafka's producers send them."""

from __future__ import annotations

from appliance.cli.partitioning import Partitioner


def test_a_key_stays_in_its_partition_and_the_rest_goes_round() -> None:
    partitioner = Partitioner([2, 1, 0])
    # -790332482 is Kafka's hash of this key.
    assert {partitioner.of_key(b"foobar") for _ in range(5)} == {(-790332482 & 0x7FFFFFFF) % 3}
    assert [partitioner.next_without_key() for _ in range(4)] == [0, 1, 2, 0]


def test_one_partition_takes_everything() -> None:
    assert Partitioner([7]).of_key(b"any") == Partitioner([7]).next_without_key() == 7
