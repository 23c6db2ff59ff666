"""AlterClientQuotas and DescribeClientQuotas: limits for users, clients and addresses (KIP-546)."""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Mapping, Sequence

from appliance.base.errors import ErrorCode, KafkaError
from appliance.controller.decisions import Decision, Rules, answer
from appliance.controller.image import MetadataImage, QuotaEntity
from appliance.controller.records import ClientQuotaSet, Record
from appliance.quotas.table import CLIENT_ID, IP, IP_KEYS, USER, USER_KEYS, WHOLE_KEYS
from appliance.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
    EntryDataResponse,
    OpData,
)
from appliance.wire.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    ValueData,
)
from appliance.wire.messages.describe_client_quotas import EntityData as DescribedEntity
from appliance.wire.messages.describe_client_quotas import EntryData as DescribedEntry

EXACT, DEFAULT, ANY = range(3)
ENTRIES_MAX = 100_000
"""Entities that may have limits: the tables are looked up for each new client."""


def alter_quotas(request: AlterClientQuotasRequest, image: MetadataImage, rules: Rules) -> Decision:
    """One row for each entry; each is judged by itself."""
    records: list[Record] = []
    rows: list[EntryDataResponse] = []
    for entry in request.entries:
        row = EntryDataResponse(error_message=None, entity=entry.entity)
        rows.append(row)
        try:
            records += _changes(entry, image)
        except KafkaError as error:
            row.error_code, row.error_message = error.code, error.message
    return answer(AlterClientQuotasResponse(entries=rows), [] if request.validate_only else records)


def _changes(entry: EntryData, image: MetadataImage) -> list[Record]:
    whom = _entity(entry.entity)
    keys = IP_KEYS if whom[0][0] == IP else USER_KEYS
    present = image.client_quotas.get(whom)
    if present is None and len(image.client_quotas) >= ENTRIES_MAX:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, f"limits for {ENTRIES_MAX} users, clients and addresses are set")
    wanted: dict[str, float | None] = {}
    for op in entry.ops:
        if op.key not in keys:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"no limit {op.key!r} can be set for {entry.entity!r}")
        wanted[op.key] = None if op.remove else _checked(op)
    return [ClientQuotaSet(whom, key, value) for key, value in wanted.items() if (present or {}).get(key) != value]


def _checked(op: OpData) -> float:
    if not math.isfinite(op.value) or op.value <= 0:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{op.key} must be more than 0")
    if op.key in WHOLE_KEYS and abs(op.value - round(op.value)) > 1e-6:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{op.key} must be a whole number")
    return op.value


def _entity(parts: Sequence[EntityData]) -> QuotaEntity:
    if not parts:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "an entry says for whom it is")
    named: dict[str, str | None] = {}
    for part in parts:
        if part.entity_type in named:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{part.entity_type} is named twice")
        if part.entity_type not in (USER, CLIENT_ID, IP):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"there is no type {part.entity_type!r}")
        if part.entity_name == "":
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"the name of a {part.entity_type} is empty")
        named[part.entity_type] = part.entity_name
    if IP in named:
        if len(named) > 1:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "an address stands alone")
        _check_address(named[IP])
    return tuple(sorted(named.items()))


def _check_address(name: str | None) -> None:
    if name is None:
        return
    try:
        ipaddress.ip_address(name)
    except ValueError:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{name!r} is no address") from None


def describe_quotas(request: DescribeClientQuotasRequest, image: MetadataImage) -> DescribeClientQuotasResponse:
    """The entities that match all components."""
    try:
        wanted = _components(request.components)
    except KafkaError as error:
        return DescribeClientQuotasResponse(error_code=error.code, error_message=error.message, entries=None)
    entries = [
        DescribedEntry(
            entity=[DescribedEntity(entity_type=kind, entity_name=name) for kind, name in whom],
            values=[ValueData(key=key, value=value) for key, value in sorted(values.items())],
        )
        for whom, values in sorted(image.client_quotas.items(), key=repr)
        if _matches(dict(whom), wanted, strict=request.strict)
    ]
    return DescribeClientQuotasResponse(entries=entries)


def _components(components: Sequence[ComponentData]) -> dict[str, ComponentData]:
    named: dict[str, ComponentData] = {}
    for component in components:
        kind = component.entity_type
        if kind in named:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{kind} is named twice")
        if kind == "":
            raise KafkaError(ErrorCode.INVALID_REQUEST, "a component has no type")
        if component.match_type not in (EXACT, DEFAULT, ANY):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"there is no match type {component.match_type}")
        if (component.match is None) == (component.match_type == EXACT):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "a name stands with an exact match, and with no other")
        if kind not in (USER, CLIENT_ID, IP):
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"there is no type {kind!r}")
        named[kind] = component
    if IP in named and len(named) > 1:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "an address stands alone")
    return named


def _matches(whom: Mapping[str, str | None], wanted: Mapping[str, ComponentData], *, strict: bool) -> bool:
    if strict and whom.keys() != wanted.keys():
        return False
    for kind, component in wanted.items():
        if kind not in whom:
            return False
        name = whom[kind]
        if component.match_type == EXACT and name != component.match:
            return False
        if component.match_type == DEFAULT and name is not None:
            return False
    return True
