"""How records about groups of the later protocols stand in `__consumer_offsets`, in Kafka's formats.

```
key    int16 kind, then a group id, and for some kinds a member id or a regular expression
value  int16 version (0), then the value message in that version; no value deletes
```
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

from appliance.wire.codec import decode, encode
from appliance.wire.messages.consumer_group_records import GroupKey, MemberKey
from appliance.wire.schema import Struct, WireError

_INT16 = struct.Struct(">h")
_VERSION_0 = _INT16.pack(0)
KEYS_KEPT_MAX = 10_000
"""Encoded keys of a kind of groups that are kept: a rebalance writes about the same members again and again."""

V = TypeVar("V", bound=Struct)


@dataclass(frozen=True, slots=True, eq=False)
class Form:
    """One kind of records: names as in the key, then the fields that the value says."""

    kind: int
    record: type
    key: type[Struct]
    value: type[Struct]
    write: Callable[..., Struct]
    """Takes the fields behind the names, of which the first is not None."""
    read: Callable[[Any], tuple[Any, ...]]
    """The way back."""


def group_form(
    kind: int,
    record: type,
    value: type[V],
    write: Callable[..., V],
    read: Callable[[V], Any],
    key: type[Struct] = GroupKey,
) -> Form:
    """Of a record that says one thing about a group, or about what else `key` names."""
    return Form(kind, record, key, value, write, lambda message: (read(message),))


def member_form(kind: int, record: type, value: type[V], write: Callable[..., V], read: Callable[[V], Any]) -> Form:
    """Of a record that says one thing about a member."""
    return group_form(kind, record, value, write, read, MemberKey)


def epoch_form(kind: int, record: type, value: type[Any]) -> Form:
    """Of the epoch of a group."""
    return Form(
        kind,
        record,
        GroupKey,
        value,
        lambda epoch, metadata_hash: value(epoch=epoch, metadata_hash=metadata_hash),
        lambda message: (message.epoch, message.metadata_hash),
    )


def target_epoch_form(kind: int, record: type, value: type[Any]) -> Form:
    """Of the epoch that a group's target was made for."""
    return Form(
        kind,
        record,
        GroupKey,
        value,
        lambda epoch, timestamp_ms: value(assignment_epoch=epoch, assignment_timestamp=timestamp_ms),
        lambda message: (message.assignment_epoch, message.assignment_timestamp),
    )


def names_only_form(kind: int, record: type) -> Form:
    """Of a record that says nothing any more."""
    return Form(kind, record, GroupKey, Struct, Struct, lambda message: ())


def _key_of(form: Form, *names: str) -> bytes:
    return _INT16.pack(form.kind) + encode(form.key(**dict(zip(form.key.__wire__.declared, names, strict=True))), 0)


class Forms:
    """All kinds of records of one kind of groups."""

    def __init__(self, *forms: Form) -> None:
        self._by_kind = {form.kind: form for form in forms}
        self._by_record = {form.record: form for form in forms}
        self._key_of = lru_cache(KEYS_KEPT_MAX)(_key_of)

    def __contains__(self, record: object) -> bool:
        return type(record) in self._by_record

    def encode(self, record: Any) -> tuple[bytes, bytes | None]:
        """Key and value of one of these records."""
        form = self._by_record[type(record)]
        fields = [getattr(record, name) for name in record.__match_args__]
        count = len(form.key.__wire__.declared)
        said = fields[count:]
        key = self._key_of(form, *fields[:count])
        if not said or said[0] is None:
            return key, None
        return key, _VERSION_0 + encode(form.write(*said), 0)

    def decode(self, key: bytes, value: bytes | None) -> Any:
        """Read a record; None if it is none of these.

        Raises:
            WireError: it is one of them, but cannot be read.
        """
        form = self._by_kind.get(_INT16.unpack_from(key)[0]) if len(key) >= 2 else None
        if form is None:
            return None
        read = decode(form.key, memoryview(key)[2:], 0)
        names = [getattr(read, name) for name in form.key.__wire__.declared]
        if form.value is Struct:
            return form.record(*names)
        if value is None:
            return form.record(*names, None)
        if value[:2] != _VERSION_0:
            raise WireError(f"{form.value.__name__} of an unknown version")
        return form.record(*names, *form.read(decode(form.value, memoryview(value)[2:], 0)))
