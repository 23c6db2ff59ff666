"""How a message is declared: `Struct` with typed fields, once for all versions.

    class FetchPartition(Struct):
        partition: Int32 = 0
        current_leader_epoch: Int32 = field(since=9, default=-1, ignorable=True)

A declaration becomes a class with `__slots__`, a keyword-only constructor with a default for every field, `==` and
`repr`. Fields keep their order: it is the order on the wire. A field that a version does not have holds its default.
Annotations are resolved, and constructors made, at first use: importing a declaration costs next to nothing.
"""

from __future__ import annotations

import types as python_types
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, dataclass_transform

from appliance.wire.types import Scalar

UNSET: Any = type("Unset", (), {"__repr__": lambda self: "UNSET", "__slots__": ()})()

Encoder = Callable[[Any, Callable[[Any], None]], None]
"""Appends the parts of a message to a list by the given `append`."""
Decoder = Callable[[memoryview, int], tuple[Any, int]]
"""Reads a message at a position; returns it and the position behind it."""


class WireError(ValueError):
    """These bytes are not such a message, or this message cannot be written in that version."""


class UnsupportedVersion(WireError):
    """The message has no such version."""


@dataclass(frozen=True, slots=True)
class FieldOptions:
    """What `field` says about a field, apart from its name and type."""

    since: int
    until: int | None
    default: Any
    nullable_since: int | None
    tag: int | None
    tagged_since: int | None
    ignorable: bool


def field(
    *,
    since: int = 0,
    until: int | None = None,
    default: Any = UNSET,
    nullable_since: int | None = None,
    tag: int | None = None,
    tagged_since: int | None = None,
    ignorable: bool = False,
) -> Any:
    """Describe a field that needs more than a plain default.

    Args:
        since: first version that has it.
        until: last version that has it; None = the newest.
        default: its value where nothing is said; the type's zero, an empty list or a new struct if not given.
        nullable_since: for a type `... | None`, the first version that may say null; all if not given.
        tag: its number in the tag section (KIP-482), for optional fields.
        tagged_since: first version in which it stands there; `since` if not given.
        ignorable: a version without this field may silently drop a value; otherwise encoding refuses one that differs
            from the default.
    """
    return FieldOptions(since, until, default, nullable_since, tag, tagged_since, ignorable)


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a declaration, resolved."""

    name: str
    type: Scalar | type[Struct]
    is_array: bool
    nullable_since: int | None
    since: int
    until: int | None
    tag: int | None
    tagged_since: int
    ignorable: bool
    default: Any
    """UNSET: a new empty list or a new struct each time."""

    def is_in(self, version: int) -> bool:
        """Whether this version has the field."""
        return self.since <= version and (self.until is None or version <= self.until)

    def is_nullable_in(self, version: int) -> bool:
        """Whether this version may say null."""
        return self.nullable_since is not None and version >= self.nullable_since

    def is_tagged_in(self, version: int) -> bool:
        """Whether the field stands in this version's tag section."""
        return self.tag is not None and version >= self.tagged_since

    def default_value(self) -> Any:
        """The default; lists and structs are new each time."""
        if self.default is not UNSET:
            return self.default
        return [] if self.is_array else typing.cast("type[Struct]", self.type)()


@dataclass(slots=True)
class Declaration:
    """What a class line says about its message, and what was made from it so far; `__wire__` of each struct.

    `latest_version_unstable`: Kafka does not offer the newest version to clients by default.
    """

    declared: dict[str, Any]
    api_key: int | None
    versions: tuple[int, int] | None
    flexible_from: int | None
    latest_version_unstable: bool
    encoders: dict[int, Encoder]
    decoders: dict[int, Decoder]
    fields: tuple[Field, ...] | None = None

    def is_flexible_in(self, version: int) -> bool:
        """Whether this version has compact lengths and tag sections (KIP-482)."""
        return self.flexible_from is not None and version >= self.flexible_from


@dataclass_transform(kw_only_default=True)
class StructMeta(type):
    """Turns the annotations of a class body into slots and keeps what `field` said about them."""

    __wire__: Declaration

    def __new__(
        mcs,
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        *,
        api_key: int | None = None,
        versions: tuple[int, int] | None = None,
        flexible_from: int | None = None,
        latest_version_unstable: bool = False,
    ) -> StructMeta:
        names = tuple(namespace.get("__annotations__", ()))
        declared = {n: namespace.pop(n, UNSET) for n in names}
        namespace["__slots__"] = names
        made = super().__new__(mcs, name, bases, namespace)
        made.__wire__ = Declaration(declared, api_key, versions, flexible_from, latest_version_unstable, {}, {})
        return made


class Struct(metaclass=StructMeta):
    """A message, or a part of one.

    Whole messages say `versions=(lowest, highest)` and `flexible_from` (None = never flexible) in their class line,
    requests and responses also their `api_key`; parts follow the message that they stand in.
    """

    def __init__(self, **values: Any) -> None:
        # Runs once for each class: from then on the constructor made for it stands in its place.
        cls = type(self)
        cls.__init__ = _constructor_of(cls)  # type: ignore[method-assign]
        cls.__init__(self, **values)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in type(self).__wire__.declared)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        values = (f"{name}={_short(getattr(self, name))}" for name in type(self).__wire__.declared)
        return f"{type(self).__name__}({', '.join(values)})"


ResponseType = TypeVar("ResponseType", bound=Struct)


class Request(Struct, Generic[ResponseType]):
    """A request; the parameter is the class of its response."""


def _short(value: object) -> str:
    if isinstance(value, memoryview) or (isinstance(value, bytes) and len(value) > 64):
        return f"<{len(value)} bytes>"
    return repr(value)


def fields_of(cls: type[Struct]) -> tuple[Field, ...]:
    """The fields of a declaration, in the order of the wire.

    Raises:
        TypeError: an annotation is not one of the protocol's types.
    """
    wire = cls.__wire__
    if wire.fields is None:
        hints = typing.get_type_hints(cls, include_extras=True)
        wire.fields = tuple(_resolve(cls, name, hints[name], said) for name, said in wire.declared.items())
    return wire.fields


def _resolve(cls: type[Struct], name: str, hint: Any, said: Any) -> Field:
    options = said if isinstance(said, FieldOptions) else FieldOptions(0, None, said, None, None, None, False)
    hint, nullable = _without_none(hint)
    is_array = typing.get_origin(hint) is list
    if is_array:
        hint = typing.get_args(hint)[0]
    kind: Any = next((m for m in getattr(hint, "__metadata__", ()) if isinstance(m, Scalar)), hint)
    if not isinstance(kind, Scalar | StructMeta):
        raise TypeError(f"{cls.__name__}.{name}: {hint!r} is not a type of the protocol")
    default = options.default
    if default is UNSET and isinstance(kind, Scalar) and not is_array:
        default = kind.zero
    nullable_since = options.nullable_since or options.since if nullable else None
    tagged_since = options.since if options.tagged_since is None else options.tagged_since
    return Field(
        name,
        kind,
        is_array,
        nullable_since,
        options.since,
        options.until,
        options.tag,
        tagged_since,
        options.ignorable,
        default,
    )


def _without_none(hint: Any) -> tuple[Any, bool]:
    if typing.get_origin(hint) not in (typing.Union, python_types.UnionType):
        return hint, False
    rest = [part for part in typing.get_args(hint) if part is not type(None)]
    # `Records` is itself a union below its annotation, so exactly one part is left beside None.
    return rest[0], len(rest) < len(typing.get_args(hint))


def _constructor_of(cls: type[Struct]) -> Callable[..., None]:
    """Make `__init__` for a declaration: keyword-only, no loop over fields at run time."""
    fields = fields_of(cls)
    namespace: dict[str, Any] = {"UNSET": UNSET}
    lines, parameters = [], []
    for index, declared in enumerate(fields):
        name, value = declared.name, declared.name
        if declared.default is UNSET:
            namespace[f"new{index}"] = list if declared.is_array else declared.type
            value = f"new{index}() if {name} is UNSET else {name}"
        namespace[f"default{index}"] = declared.default
        parameters.append(f"{name}=default{index}")
        lines.append(f"    self.{name} = {value}")
    signature = ", ".join(["self", *(["*", *parameters] if parameters else [])])
    exec("\n".join([f"def __init__({signature}):", *lines, "    return None"]), namespace)
    made: Callable[..., None] = namespace["__init__"]
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    return made
