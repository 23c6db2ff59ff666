"""Limits are set, removed and described."""

from __future__ import annotations

import math

import pytest

from appliance.base.config import BrokerConfig
from appliance.base.errors import ErrorCode
from appliance.base.randomness import SystemRandomness
from appliance.controller.client_quotas import ANY, DEFAULT, EXACT, alter_quotas, describe_quotas
from appliance.controller.decisions import Rules
from appliance.controller.delta import image_of
from appliance.controller.image import MetadataImage
from appliance.controller.snapshots import records_of
from appliance.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
    OpData,
)
from appliance.wire.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest

RULES = Rules(BrokerConfig(), SystemRandomness())


def entry(*entity: tuple[str, str | None], **values: float | None) -> EntryData:
    return EntryData(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
        ops=[OpData(key=key, value=value or 0.0, remove=value is None) for key, value in values.items()],
    )


def altered(image: MetadataImage, *entries: EntryData, validate_only: bool = False) -> tuple[MetadataImage, list[int]]:
    decision = alter_quotas(AlterClientQuotasRequest(entries=list(entries), validate_only=validate_only), image, RULES)
    response = decision.respond(image)
    assert isinstance(response, AlterClientQuotasResponse)
    return image_of([*records_of(image), *decision.records]), [row.error_code for row in response.entries]


def described(image: MetadataImage, *components: ComponentData, strict: bool = False) -> list[object]:
    response = describe_quotas(DescribeClientQuotasRequest(components=list(components), strict=strict), image)
    assert response.error_code == ErrorCode.NONE
    return [
        (
            [(part.entity_type, part.entity_name) for part in row.entity],
            {value.key: value.value for value in row.values},
        )
        for row in response.entries or []
    ]


def component(kind: str, match_type: int, match: str | None = None) -> ComponentData:
    return ComponentData(entity_type=kind, match_type=match_type, match=match)


def test_limits_are_set_changed_and_removed() -> None:
    image, codes = altered(MetadataImage(), entry(("user", "u"), producer_byte_rate=10.0, request_percentage=1.5))
    assert codes == [ErrorCode.NONE]
    assert described(image) == [([("user", "u")], {"producer_byte_rate": 10.0, "request_percentage": 1.5})]
    image, _ = altered(image, entry(("user", "u"), producer_byte_rate=20.0, request_percentage=None))
    assert described(image) == [([("user", "u")], {"producer_byte_rate": 20.0})]
    image, _ = altered(image, entry(("user", "u"), producer_byte_rate=None))
    assert described(image) == []
    assert image.client_quotas == {}


def test_a_limit_is_for_the_same_whatever_the_order_of_its_parts() -> None:
    image, _ = altered(MetadataImage(), entry(("user", "u"), ("client-id", "c"), consumer_byte_rate=1.0))
    image, _ = altered(image, entry(("client-id", "c"), ("user", "u"), consumer_byte_rate=2.0))
    assert described(image) == [([("client-id", "c"), ("user", "u")], {"consumer_byte_rate": 2.0})]


def test_validating_changes_nothing() -> None:
    image, codes = altered(MetadataImage(), entry(("user", "u"), producer_byte_rate=10.0), validate_only=True)
    assert codes == [ErrorCode.NONE]
    assert described(image) == []


@pytest.mark.parametrize(
    "wrong",
    [
        entry(producer_byte_rate=1.0),
        entry(("group", "g"), producer_byte_rate=1.0),
        entry(("user", "u"), ("user", "v"), producer_byte_rate=1.0),
        entry(("user", ""), producer_byte_rate=1.0),
        entry(("user", "u"), no_such_rate=1.0),
        entry(("user", "u"), connection_creation_rate=1.0),
        entry(("user", "u"), producer_byte_rate=0.5),
        entry(("user", "u"), producer_byte_rate=-1.0),
        entry(("user", "u"), request_percentage=math.nan),
        entry(("ip", "127.0.0.1"), producer_byte_rate=1.0),
        entry(("ip", "127.0.0.1"), ("user", "u"), connection_creation_rate=1.0),
        entry(("ip", "no address"), connection_creation_rate=1.0),
    ],
)
def test_what_makes_no_sense_is_refused_and_its_neighbour_is_not(wrong: EntryData) -> None:
    image, codes = altered(MetadataImage(), wrong, entry(("ip", None), connection_creation_rate=3.0))
    assert codes == [ErrorCode.INVALID_REQUEST, ErrorCode.NONE]
    assert described(image) == [([("ip", None)], {"connection_creation_rate": 3.0})]


def test_entities_are_found_by_name_by_default_or_any() -> None:
    image, _ = altered(
        MetadataImage(),
        entry(("user", "u"), producer_byte_rate=1.0),
        entry(("user", None), producer_byte_rate=2.0),
        entry(("client-id", "c"), ("user", "u"), producer_byte_rate=3.0),
    )

    def values(*components: ComponentData, strict: bool = False) -> list[float]:
        return sorted(row[1]["producer_byte_rate"] for row in described(image, *components, strict=strict))  # type: ignore[index]

    assert values() == [1, 2, 3]
    assert values(component("user", EXACT, "u")) == [1, 3]
    assert values(component("user", EXACT, "u"), strict=True) == [1]
    assert values(component("user", DEFAULT)) == [2]
    assert values(component("user", ANY)) == [1, 2, 3]
    assert values(component("client-id", ANY)) == [3]
    assert values(component("client-id", EXACT, "x")) == []


@pytest.mark.parametrize(
    "components",
    [
        [component("user", EXACT)],
        [component("user", DEFAULT, "u")],
        [component("user", 7)],
        [component("", ANY)],
        [component("user", ANY), component("user", ANY)],
        [component("user", ANY), component("ip", ANY)],
    ],
)
def test_a_filter_that_makes_no_sense_is_refused(components: list[ComponentData]) -> None:
    response = describe_quotas(DescribeClientQuotasRequest(components=components), MetadataImage())
    assert response.error_code == ErrorCode.INVALID_REQUEST
