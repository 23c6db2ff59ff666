"""The source of an encoder: `encode(o, append)` appends the parts of message `o` to a list."""

from __future__ import annotations

import struct
from typing import Any

from appliance.wire import types
from appliance.wire.schema import Field, Struct, WireError, fields_of
from appliance.wire.types import Scalar
from appliance.wire.varint import encode_unsigned_varint

FEW = 9
"""Below so many numbers an array has a packer of its own: replicas and ISR are such arrays, in each partition."""


class EncoderSource:
    """Writes the encoder of one version, line by line.

    `run` holds the fixed-size values that still wait to be packed together.
    """

    def __init__(self, flexible: bool, version: int) -> None:
        self.flexible = flexible
        self.version = version
        self.names: dict[str, Any] = {"varint": encode_unsigned_varint, "WireError": WireError}
        self.lines: list[str] = []
        self.depth = 0
        self.counter = 0
        self.run: list[tuple[str, str]] = []
        self.append = "append"

    def write(self, cls: type[Struct]) -> list[str]:
        """The lines of `encode` for a whole message."""
        self.line("def encode(o, append):")
        self.depth = 1
        self.struct(cls, "o")
        self.flush()
        self.line("return None")
        return self.lines

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def name(self, prefix: str) -> str:
        self.counter += 1
        return f"{prefix}{self.counter}"

    def flush(self) -> None:
        """Pack the waiting values."""
        if self.run == [("B", "0")]:
            self.run = []
            self.line(f"{self.append}(b'\\0')")
        elif self.run:
            self.line(f"{self.append}({self.packed()})")

    def packed(self) -> str:
        """An expression that packs the waiting values; they wait no longer."""
        codes = "".join(code for code, _ in self.run)
        values = ", ".join(value for _, value in self.run)
        self.run = []
        packer = f"pack_{codes.replace('?', 't')}"
        self.names[packer] = struct.Struct(f">{codes}").pack
        return f"{packer}({values})"

    def struct(self, cls: type[Struct], owner: str) -> None:
        """All fields of a struct and, in flexible versions, its tag section."""
        tagged: list[Field] = []
        for field in fields_of(cls):
            if not field.is_in(self.version):
                if not field.ignorable:
                    self.refuse_value(cls, field, owner)
            elif field.is_tagged_in(self.version):
                tagged.append(field)
            else:
                self.value(field, f"{owner}.{field.name}", field.is_nullable_in(self.version))
        if tagged:
            self.tag_section(sorted(tagged, key=lambda field: field.tag or 0), owner)
        elif self.flexible:
            self.run.append(("B", "0"))

    def refuse_value(self, cls: type[Struct], field: Field, owner: str) -> None:
        """A value that this version cannot carry must not vanish."""
        self.line(f"if {self.differs(field, f'{owner}.{field.name}', every_field=True)}:")
        message = f"{cls.__name__} version {self.version} cannot carry {field.name}"
        self.line(f"    raise WireError({message!r})")

    def differs(self, field: Field, value: str, *, every_field: bool = False) -> str:
        """An expression that is true if a field does not hold its default."""
        if field.default is None:
            return f"{value} is not None"
        if field.is_array:
            return f"({value} is None or {value})" if field.nullable_since is not None else value
        if isinstance(field.type, Scalar):
            if isinstance(field.default, bool | int | str | bytes):
                return f"{value} != {field.default!r}"
            default = self.name("default")
            self.names[default] = field.default
            # Mostly it is the default itself, and comparing two UUIDs is slow.
            return f"({value} is not {default} and {value} != {default})"
        parts = [
            self.differs(inner, f"{value}.{inner.name}", every_field=every_field)
            for inner in fields_of(field.type)
            if every_field or inner.is_in(self.version)
        ]
        return f"({' or '.join(parts)})"

    def tag_section(self, tagged: list[Field], owner: str) -> None:
        self.flush()
        section, count = self.name("section"), self.name("count")
        self.line(f"{section} = b''; {count} = 0")
        outer = self.append
        for field in tagged:
            value = f"{owner}.{field.name}"
            parts = self.name("parts")
            self.line(f"if {self.differs(field, value)}:")
            self.depth += 1
            self.append = f"{parts}.append"
            self.line(f"{parts} = []")
            self.value(field, value, field.is_nullable_in(self.version))
            self.flush()
            self.line(f"{parts} = b''.join({parts})")
            self.line(f"{section} += varint({field.tag}) + varint(len({parts})) + {parts}; {count} += 1")
            self.depth -= 1
        self.append = outer
        self.line(f"{self.append}(varint({count}) + {section} if {count} else b'\\0')")

    def value(self, field: Field, value: str, nullable: bool) -> None:
        """One field, or one array of them."""
        if field.is_array:
            self.array(field.type, value, nullable)
        elif isinstance(field.type, Scalar):
            self.scalar(field.type, value, nullable)
        else:
            self.nested(field.type, value, nullable)

    def scalar(self, kind: Scalar, value: str, nullable: bool) -> None:
        if kind is types.UUID:
            self.run.append((kind.code, f"{value}.bytes"))
        elif kind.code:
            self.run.append((kind.code, value))
        else:
            self.variable_length(kind, value, nullable)

    def variable_length(self, kind: Scalar, value: str, nullable: bool) -> None:
        """A length and the bytes: int16 before strings, int32 before the rest, or length + 1 as a varint; 0 is null."""
        data, length = self.name("data"), self.name("length")
        extra = " + 1" if self.flexible else ""
        content = f"{value}.encode()" if kind is types.STRING else value
        if nullable:
            null = 0 if self.flexible else -1
            self.line(f"{data} = {value}")
            self.line(f"if {data} is None: {data} = b''; {length} = {null}")
            content = f"{data} = {data}.encode(); " if kind is types.STRING else ""
            self.line(f"else: {content}{length} = len({data}){extra}")
        else:
            self.line(f"{data} = {content}; {length} = len({data}){extra}")
        self.length(length, "h" if kind is types.STRING else "i")
        self.line(f"{self.append}({data})")

    def length(self, length: str, code: str) -> None:
        """A length together with the values that wait before it."""
        if not self.flexible:
            self.run.append((code, length))
            self.flush()
        elif self.run:
            waiting = list(self.run)
            long = f"{self.packed()} + varint({length})"
            self.run = [*waiting, ("B", length)]
            self.line(f"{self.append}({self.packed()} if {length} < 128 else {long})")
        else:
            self.line(f"{self.append}(varint({length}))")

    def array(self, kind: Scalar | type[Struct], value: str, nullable: bool) -> None:
        items, length = self.name("items"), self.name("length")
        extra = " + 1" if self.flexible else ""
        self.line(f"{items} = {value}")
        if nullable:
            self.line(f"if {items} is None: {items} = (); {length} = {0 if self.flexible else -1}")
            self.line(f"else: {length} = len({items}){extra}")
        else:
            self.line(f"{length} = len({items}){extra}")
        self.length(length, "i")
        if isinstance(kind, Scalar) and kind.code and kind is not types.UUID:
            few = f"few_{kind.code.replace('?', 't')}"
            self.names[few] = [struct.Struct(f">{count}{kind.code}").pack for count in range(FEW)]
            many = f"pack(f'>{{len({items})}}{kind.code}', *{items})"
            self.line(f"{self.append}({few}[len({items})](*{items}) if len({items}) < {FEW} else {many})")
            return
        item = self.name("item")
        self.line(f"for {item} in {items}:")
        self.depth += 1
        if isinstance(kind, Scalar):
            self.scalar(kind, item, False)
        else:
            self.struct(kind, item)
        self.flush()
        self.depth -= 1

    def nested(self, kind: type[Struct], value: str, nullable: bool) -> None:
        """A struct in place; one that may be null has a byte before it: -1 null, 1 there."""
        if not nullable:
            self.struct(kind, value)
            return
        self.flush()
        owner = self.name("nested")
        self.line(f"{owner} = {value}")
        self.line(f"if {owner} is None: {self.append}(b'\\xff')")
        self.line("else:")
        self.depth += 1
        self.run.append(("b", "1"))
        self.struct(kind, owner)
        self.flush()
        self.depth -= 1
