"""Random messages of any declared class: what a version can carry, with edge values more often than chance would."""

from __future__ import annotations

import importlib
import random
import uuid
from pkgutil import iter_modules
from typing import Any

from appliance.wire import messages, types
from appliance.wire.api import APIS
from appliance.wire.messages import group_records, share_group_records, share_state_records, transaction_records
from appliance.wire.schema import Field, Struct, fields_of
from appliance.wire.types import Scalar

RECORD_SCHEMAS: tuple[type[Struct], ...] = (
    group_records.OffsetCommitKey,
    group_records.OffsetCommitValue,
    group_records.GroupMetadataKey,
    group_records.GroupMetadataValue,
    transaction_records.TransactionLogKey,
    transaction_records.TransactionLogValue,
    share_group_records.ShareGroupMemberMetadataValue,
    share_group_records.ShareGroupMetadataValue,
    share_group_records.ShareGroupTargetAssignmentMetadataValue,
    share_group_records.ShareGroupTargetAssignmentMemberValue,
    share_group_records.ShareGroupCurrentMemberAssignmentValue,
    share_group_records.ShareGroupStatePartitionMetadataValue,
    share_state_records.ShareSnapshotKey,
    share_state_records.ShareSnapshotValue,
    share_state_records.ShareUpdateKey,
    share_state_records.ShareUpdateValue,
)
OUR_OWN_TAGS = 10_000
"""Tagged fields of our own, in Kafka's messages between our own processes, have this number or a higher one."""
BITS = {"b": 7, "h": 15, "H": 16, "i": 31, "I": 32, "q": 63}
LETTERS = "abz019._- ~äß€漢🦆\x00\n"


def declared_messages() -> list[type[Struct]]:
    """Every whole message: requests, responses and records."""
    pairs = [message for api in APIS.values() for message in (api.request, api.response)]
    return [*pairs, *RECORD_SCHEMAS]


def is_our_own(field: Field) -> bool:
    """Whether Kafka's message has no such field."""
    return field.tag is not None and field.tag >= OUR_OWN_TAGS


def versions_of(cls: type[Struct]) -> range:
    """All versions of a message."""
    lowest, highest = cls.__wire__.versions or (0, -1)
    return range(lowest, highest + 1)


def versions_of_all_that_is_read() -> list[tuple[type[Struct], int]]:
    """Every version of everything that is read whole: messages, and keys and values of all kinds of records."""
    modules = [importlib.import_module(f"{messages.__name__}.{each.name}") for each in iter_modules(messages.__path__)]
    found = {value: None for module in modules for value in vars(module).values() if _is_whole(value)}
    return [(cls, version) for cls in found for version in versions_of(cls)]


def _is_whole(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, Struct) and value.__wire__.versions is not None


def declared_versions() -> list[tuple[type[Struct], int]]:
    """Every version of every whole message."""
    return [(cls, version) for cls in declared_messages() for version in versions_of(cls)]


def random_message(cls: type[Struct], version: int, source: random.Random, most: int = 3) -> Struct:
    """A message whose fields hold values where the version has them, and defaults where not; `most` bounds arrays."""
    values = {f.name: _field(f, version, source, most) for f in fields_of(cls) if f.is_in(version)}
    return cls(**values)


def _field(field: Field, version: int, source: random.Random, most: int) -> Any:
    if field.is_tagged_in(version) and source.random() < 0.3:
        return field.default_value()
    if field.is_nullable_in(version) and source.random() < 0.2:
        return None
    if field.is_array:
        return [_value(field.type, version, source, most) for _ in range(source.randint(0, most))]
    return _value(field.type, version, source, most)


def _value(kind: Scalar | type[Struct], version: int, source: random.Random, most: int) -> Any:
    if not isinstance(kind, Scalar):
        return random_message(kind, version, source, most)
    if kind is types.BOOL:
        return source.random() < 0.5
    if kind is types.UUID:
        return uuid.UUID(int=source.choice([0, 1, source.getrandbits(128)]))
    if kind is types.FLOAT64:
        return source.choice([0.0, -1.5, source.random()])
    if kind is types.STRING:
        return "".join(source.choices(LETTERS, k=source.choice([0, 1, 5, 40, 130])))
    if kind.code:
        bits = BITS[kind.code]
        lowest = 0 if kind.code.isupper() else -(1 << bits)
        return source.choice([0, 1, lowest, (1 << bits) - 1, source.randint(lowest, (1 << bits) - 1)])
    return source.randbytes(source.choice([0, 1, 61, 127, 128, 300]))
