from __future__ import annotations

import pytest

from appliance.base.errors import InvariantBroken
from appliance.base.ids import ZERO_UUID
from appliance.wire.codec import decode, encode
from appliance.wire.messages.fetch import FetchRequest, FetchTopic, ReplicaState
from appliance.wire.messages.metadata import MetadataRequest
from appliance.wire.schema import Request, Struct, field, fields_of
from appliance.wire.types import Bytes, Int32, String, Uuid


class Leaf(Struct):
    number: Int32 = 7


class Blob(Struct):
    data: Bytes = b""


class Tree(Struct, versions=(0, 3), flexible_from=2):
    name: String | None = field(nullable_since=1, default="n")
    leaf: Leaf = field()
    leaves: list[Leaf] = field(since=1, ignorable=True)
    topic_id: Uuid = ZERO_UUID
    late: Int32 = field(since=3, tag=0, default=-1)


class Hollow(Struct):
    gone: Int32 = field(since=9)


class HollowList(Struct, versions=(0, 0)):
    items: list[Hollow] = field()


class Odd(Struct, versions=(0, 0)):
    value: dict[str, int] = field()


def test_every_field_has_a_default() -> None:
    tree = Tree()
    assert (tree.name, tree.leaf, tree.leaves, tree.topic_id, tree.late) == ("n", Leaf(number=7), [], ZERO_UUID, -1)


def test_lists_and_structs_are_never_shared_between_messages() -> None:
    first, second = Tree(), Tree()
    first.leaves.append(Leaf())
    first.leaf.number = 1
    assert second == Tree()


def test_a_constructor_takes_names_only_and_no_others() -> None:
    with pytest.raises(TypeError):
        Tree("x")  # type: ignore[misc]
    with pytest.raises(TypeError):
        Tree(nmae="x")  # type: ignore[call-arg]


def test_a_misspelt_field_cannot_be_set() -> None:
    with pytest.raises(AttributeError):
        Tree().nmae = "x"  # type: ignore[attr-defined]


def test_messages_are_equal_if_class_and_fields_are() -> None:
    assert Leaf(number=1) == Leaf(number=1)
    assert Leaf(number=1) != Leaf(number=2)
    assert Leaf(number=1) != 1
    assert FetchTopic() != Leaf()


def test_messages_cannot_be_keys() -> None:
    with pytest.raises(TypeError):
        hash(Leaf())


def test_repr_names_the_fields_and_counts_long_bytes() -> None:
    assert repr(Leaf(number=3)) == "Leaf(number=3)"
    assert repr(Blob(data=b"x" * 65)) == "Blob(data=<65 bytes>)"


def test_a_default_of_none_can_be_given_and_kept() -> None:
    assert MetadataRequest(topics=None).topics is None
    assert FetchRequest().cluster_id is None
    assert FetchRequest().replica_state == ReplicaState(replica_id=-1, replica_epoch=-1)


def test_fields_keep_the_order_of_the_wire() -> None:
    assert [declared.name for declared in fields_of(Tree)] == ["name", "leaf", "leaves", "topic_id", "late"]


def test_a_version_has_only_its_fields() -> None:
    tree = Tree(name="t", leaves=[Leaf()], late=5)
    assert decode(Tree, encode(tree, 3), 3) == tree
    tree.late = -1
    assert decode(Tree, encode(tree, 0), 0) == Tree(name="t")


def test_an_annotation_that_is_no_type_of_the_protocol_is_refused() -> None:
    with pytest.raises(TypeError, match=r"Odd\.value"):
        Odd()


def test_a_list_of_what_takes_no_bytes_cannot_be_declared() -> None:
    with pytest.raises(InvariantBroken, match="items"):
        decode(HollowList, bytes(4), 0)


def test_a_part_of_a_message_cannot_be_written_alone() -> None:
    with pytest.raises(ValueError, match="has no version"):
        encode(Leaf(), 0)


def test_a_request_knows_its_response_by_its_parameter() -> None:
    assert issubclass(FetchRequest, Request)
    assert FetchRequest.__wire__.api_key == 1
