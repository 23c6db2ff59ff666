from __future__ import annotations

from typing import Any

import pytest

from appliance.authorizer.authorizer import STANDARD
from appliance.base.config import BrokerConfig
from appliance.base.errors import ErrorCode
from appliance.base.randomness import SeededRandomness
from appliance.controller import acls as module
from appliance.controller.acls import create_acls, delete_acls, describe_acls
from appliance.controller.decisions import Decision, Rules
from appliance.controller.delta import MetadataDelta, image_of
from appliance.controller.image import MetadataImage
from appliance.controller.records import decode_records, encode_records
from appliance.controller.snapshots import records_of
from appliance.wire.messages.create_acls import AclCreation, CreateAclsRequest
from appliance.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from appliance.wire.messages.describe_acls import DescribeAclsRequest

RULES = Rules(BrokerConfig({"authorizer.class.name": STANDARD}), SeededRandomness(1))
ANY = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "pattern_type_filter": 1,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}


def creation(name: str = "t", **fields: Any) -> AclCreation:
    values = {"resource_type": 2, "principal": "User:a", "host": "*", "operation": 3, "permission_type": 3}
    return AclCreation(resource_name=name, **{**values, **fields})


def settled(image: MetadataImage, decision: Decision) -> MetadataImage:
    delta = MetadataDelta(image)
    delta.apply_commit(image.position + 1, decode_records(encode_records(decision.records)))
    return delta.build()


def create(image: MetadataImage, *creations: AclCreation) -> tuple[MetadataImage, list[int]]:
    decision = create_acls(CreateAclsRequest(creations=list(creations)), image, RULES)
    response: Any = decision.respond(image)
    return settled(image, decision), [row.error_code for row in response.results]


def test_an_entry_comes_once_survives_a_snapshot_and_goes() -> None:
    image, codes = create(MetadataImage(), creation(), creation(), creation(resource_pattern_type=4))
    assert codes == [0, 0, 0]
    assert len(image.acls) == 2
    assert create_acls(CreateAclsRequest(creations=[creation()]), image, RULES).records == []
    assert image_of(records_of(image)).acls == image.acls
    one = DeleteAclsFilter(**{**ANY, "pattern_type_filter": 4})
    decision = delete_acls(DeleteAclsRequest(filters=[one, one]), image, RULES)
    response: Any = decision.respond(image)
    assert [len(result.matching_acls) for result in response.filter_results] == [1, 1]
    assert len(decision.records) == 1
    left = settled(image, decision)
    assert [binding.pattern_type for binding in left.acls] == [3]
    assert settled(image, Decision()).acls is image.acls


@pytest.mark.parametrize(
    "wrong",
    [
        {"resource_type": 1},
        {"resource_type": 9},
        {"resource_type": 4},
        {"resource_pattern_type": 2},
        {"operation": 1},
        {"operation": 99},
        {"permission_type": 1},
        {"principal": "a"},
        {"resource_name": ""},
    ],
    ids=str,
)
def test_an_entry_that_cannot_be_is_refused_and_its_neighbour_is_not(wrong: dict[str, Any]) -> None:
    bad = creation()
    for name, value in wrong.items():
        setattr(bad, name, value)
    image, codes = create(MetadataImage(), bad, creation())
    assert codes == [ErrorCode.INVALID_REQUEST, ErrorCode.NONE]
    assert len(image.acls) == 1


def test_without_an_authorizer_lists_are_neither_made_nor_removed() -> None:
    rules = Rules(BrokerConfig(), SeededRandomness(1))
    made: Any = create_acls(CreateAclsRequest(creations=[creation()]), MetadataImage(), rules)
    assert [row.error_code for row in made.respond(MetadataImage()).results] == [ErrorCode.SECURITY_DISABLED]
    gone: Any = delete_acls(DeleteAclsRequest(filters=[DeleteAclsFilter(**ANY)]), MetadataImage(), rules)
    assert [row.error_code for row in gone.respond(MetadataImage()).filter_results] == [ErrorCode.SECURITY_DISABLED]
    assert not made.records
    assert not gone.records


def test_entries_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ACLS_MAX", 2)
    image, codes = create(MetadataImage(), *(creation(f"t{number}") for number in range(3)))
    assert codes == [0, 0, ErrorCode.POLICY_VIOLATION]
    assert len(image.acls) == 2


def test_entries_are_told_by_their_patterns() -> None:
    image, _ = create(MetadataImage(), creation("b"), creation("a", operation=4), creation("a"))
    answer = describe_acls(DescribeAclsRequest(**ANY), image)
    assert [(row.resource_name, [one.operation for one in row.acls]) for row in answer.resources] == [
        ("a", [3, 4]),
        ("b", [3]),
    ]
    assert describe_acls(DescribeAclsRequest(**{**ANY, "operation": 0}), image).error_code == ErrorCode.INVALID_REQUEST
