"""The source of a decoder: `decode(b, p)` reads a message from memoryview `b` at position `p`.

What a peer sent decides nothing but its own fate: each length is compared with the bytes that are left before anything
is cut or allocated, and running off the end raises IndexError or struct.error, which the codec turns into WireError. An
element of two bytes on the wire is an object of a hundred in memory and half a microsecond of a shared loop, so `left`
counts down how many a message may still have.
"""

from __future__ import annotations

import struct
import uuid
from functools import lru_cache
from typing import Any

from appliance.base.errors import invariant
from appliance.wire import types
from appliance.wire.encoder_source import FEW
from appliance.wire.schema import Field, Request, Struct, WireError, fields_of
from appliance.wire.types import Scalar
from appliance.wire.varint import decode_unsigned_varint, skip_tag_section

MAX_REQUEST_ELEMENTS = 500_000
"""Array elements and tags in one request: more than a broker has partitions."""
MAX_ELEMENTS = 16_000_000
"""In everything else; it comes from a broker that we chose to ask, or from our own log."""


@lru_cache(maxsize=4096)
def uuid_of(data: bytes) -> uuid.UUID:
    """The same topic and directory ids come in every request; making a UUID costs a microsecond."""
    return uuid.UUID(bytes=data)


class DecoderSource:
    """Writes the decoder of one version, line by line.

    `run` holds the fixed-size values that still wait to be unpacked together: letter, target, statement afterwards.
    """

    def __init__(self, flexible: bool, version: int) -> None:
        self.flexible = flexible
        self.version = version
        self.names: dict[str, Any] = {
            "new": object.__new__,
            "uuid_of": uuid_of,
            "varint": decode_unsigned_varint,
            "skip_tag_section": skip_tag_section,
            "WireError": WireError,
        }
        self.lines: list[str] = []
        self.depth = 0
        self.counter = 0
        self.run: list[tuple[str, str, str]] = []

    def write(self, cls: type[Struct]) -> list[str]:
        """The lines of `decode` for a whole message."""
        self.line("def decode(b, p):")
        self.depth = 1
        self.line(f"end = len(b); left = {MAX_REQUEST_ELEMENTS if issubclass(cls, Request) else MAX_ELEMENTS}")
        self.struct(cls, "o")
        self.flush()
        self.line("return o, p")
        return self.lines

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def name(self, prefix: str) -> str:
        self.counter += 1
        return f"{prefix}{self.counter}"

    def constant(self, prefix: str, value: Any) -> str:
        name = self.name(prefix)
        self.names[name] = value
        return name

    def flush(self) -> None:
        """Unpack the waiting values."""
        if not self.run:
            return
        codes = "".join(code for code, _, _ in self.run)
        targets = ", ".join(target for _, target, _ in self.run)
        if codes == "B":
            self.line(f"{targets} = b[p]; p += 1")
        else:
            layout = struct.Struct(f">{codes}")
            unpacker = f"unpack_{codes.replace('?', 't')}"
            self.names[unpacker] = layout.unpack_from
            self.line(f"{targets}{',' if len(self.run) == 1 else ''} = {unpacker}(b, p); p += {layout.size}")
        for _, _, afterwards in self.run:
            if afterwards:
                self.line(afterwards)
        self.run = []

    def struct(self, cls: type[Struct], owner: str) -> None:
        """All fields of a struct and, in flexible versions, its tag section."""
        self.line(f"{owner} = new({self.constant(cls.__name__, cls)})")
        tagged: list[Field] = []
        for field in fields_of(cls):
            if not field.is_in(self.version) or field.is_tagged_in(self.version):
                self.line(f"{owner}.{field.name} = {self.default(field)}")
                if field.is_in(self.version):
                    tagged.append(field)
            else:
                self.value(field, f"{owner}.{field.name}", field.is_nullable_in(self.version))
        if tagged:
            self.tag_section(cls, tagged, owner)
        elif self.flexible:
            count = self.name("count")
            self.run.append(("B", count, f"if {count}: p, left = skip_tag_section(b, p - 1, left)"))
            self.flush()

    def default(self, field: Field) -> str:
        if field.default is None or isinstance(field.default, bool | int | str | bytes):
            return repr(field.default)
        if field.is_array:
            return "[]"
        if isinstance(field.type, Scalar):
            return self.constant("default", field.default)
        return f"{self.constant(field.type.__name__, field.type)}()"

    def tag_section(self, cls: type[Struct], tagged: list[Field], owner: str) -> None:
        count, tag, size, stop = self.name("count"), self.name("tag"), self.name("size"), self.name("stop")
        self.run.append(("B", count, f"if {count} > 127: {count}, p = varint(b, p - 1)"))
        self.flush()
        self.line(f"left -= {count}")
        self.line(f"if left < 0: raise WireError('{cls.__name__}: too many tagged fields')")
        self.line(f"while {count}:")
        self.depth += 1
        self.line(f"{count} -= 1")
        self.line(f"{tag}, p = varint(b, p)")
        self.line(f"{size}, p = varint(b, p)")
        self.line(f"{stop} = p + {size}")
        self.line(f"if {stop} > end: raise WireError('{cls.__name__}: a tagged field ends behind the message')")
        for field in tagged:
            self.line(f"if {tag} == {field.tag}:")
            self.depth += 1
            self.value(field, f"{owner}.{field.name}", field.is_nullable_in(self.version))
            self.flush()
            self.line(f"if p != {stop}: raise WireError('{cls.__name__}.{field.name}: wrong size of tagged field')")
            self.depth -= 1
        self.line(f"p = {stop}")
        self.depth -= 1

    def value(self, field: Field, target: str, nullable: bool) -> None:
        """One field, or one array of them."""
        if field.is_array:
            self.array(field.type, target, nullable)
        elif isinstance(field.type, Scalar):
            self.scalar(field.type, target, nullable)
        else:
            self.nested(field.type, target, nullable)

    def scalar(self, kind: Scalar, target: str, nullable: bool) -> None:
        if kind is types.UUID:
            raw = self.name("raw")
            self.run.append((kind.code, raw, f"{target} = uuid_of({raw})"))
        elif kind.code:
            self.run.append((kind.code, target, ""))
        else:
            self.variable_length(kind, target, nullable)

    def length(self, code: str) -> str:
        """Reads a length, with the values that wait before it; below 0 is null."""
        length = self.name("length")
        if self.flexible:
            long = f"if {length} > 127: {length}, p = varint(b, p - 1)"
            self.run.append(("B", length, long))
            self.flush()
            self.line(f"{length} -= 1")
        else:
            self.run.append((code, length, ""))
            self.flush()
        return length

    def variable_length(self, kind: Scalar, target: str, nullable: bool) -> None:
        length = self.length("h" if kind is types.STRING else "i")
        stop = self.name("stop")
        if nullable:
            self.line(f"if {length} < 0: {target} = None")
            self.line("else:")
            self.depth += 1
        refused = f"{stop} > end" if nullable else f"{length} < 0 or {stop} > end"
        self.line(f"{stop} = p + {length}")
        self.line(f"if {refused}: raise WireError(f'{_label(target)}: length {{{length}}} at byte {{p}} of {{end}}')")
        if kind is types.STRING:
            self.line(f"{target} = b[p:{stop}].tobytes().decode(); p = {stop}")
        elif kind is types.BYTES:
            self.line(f"{target} = b[p:{stop}].tobytes(); p = {stop}")
        else:
            self.line(f"{target} = b[p:{stop}]; p = {stop}")
        if nullable:
            self.depth -= 1

    def array(self, kind: Scalar | type[Struct], target: str, nullable: bool) -> None:
        length = self.length("i")
        least = self.least_bytes(kind)
        invariant(least > 0, f"an element of {target} may be empty: its count could not be bounded")
        if nullable:
            self.line(f"if {length} < 0: {target} = None")
            self.line("else:")
            self.depth += 1
        # Before anything is allocated: so many elements must be able to stand in the bytes that are left.
        refused = f"{length} * {least} > end - p"
        refused = refused if nullable else f"{length} < 0 or {refused}"
        self.line(f"if {refused}: raise WireError(f'{_label(target)}: count {{{length}}} at byte {{p}} of {{end}}')")
        self.line(f"left -= {length}")
        self.line(f"if left < 0: raise WireError('{_label(target)}: too many elements in one message')")
        if isinstance(kind, Scalar) and kind.code and kind is not types.UUID:
            few = f"few_{kind.code.replace('?', 't')}"
            self.names[few] = [struct.Struct(f">{count}{kind.code}").unpack_from for count in range(FEW)]
            many = f"unpack_from(f'>{{{length}}}{kind.code}', b, p)"
            self.line(
                f"{target} = list({few}[{length}](b, p) if {length} < {FEW} else {many}); p += {length} * {least}"
            )
        else:
            items, item = self.name("items"), self.name("item")
            self.line(f"{target} = {items} = []")
            # Mostly there are few: counting down costs less than making a range.
            self.line(f"while {length}:")
            self.depth += 1
            self.line(f"{length} -= 1")
            if isinstance(kind, Scalar):
                self.scalar(kind, item, False)
            else:
                self.struct(kind, item)
            self.flush()
            self.line(f"{items}.append({item})")
            self.depth -= 1
        if nullable:
            self.depth -= 1

    def nested(self, kind: type[Struct], target: str, nullable: bool) -> None:
        """A struct in place; one that may be null has a byte before it, negative for null."""
        owner = self.name("nested")
        if not nullable:
            self.struct(kind, owner)
            self.line(f"{target} = {owner}")
            return
        there = self.name("there")
        self.run.append(("b", there, ""))
        self.flush()
        self.line(f"if {there} < 0: {target} = None")
        self.line("else:")
        self.depth += 1
        self.struct(kind, owner)
        self.flush()
        self.line(f"{target} = {owner}")
        self.depth -= 1

    def least_bytes(self, kind: Scalar | type[Struct]) -> int:
        """The fewest bytes that a value can take in this version."""
        if isinstance(kind, Scalar):
            if kind.code:
                return kind.size_in_bytes
            return 1 if self.flexible else 2 if kind is types.STRING else 4
        total = 1 if self.flexible else 0
        for field in fields_of(kind):
            if not field.is_in(self.version) or field.is_tagged_in(self.version):
                continue
            if field.is_array:
                total += 1 if self.flexible else 4
            elif isinstance(field.type, Scalar):
                total += self.least_bytes(field.type)
            else:
                total += 1 if field.is_nullable_in(self.version) else self.least_bytes(field.type)
        return total


def _label(target: str) -> str:
    """How an error names the field, without the variable that held its struct."""
    return target.rpartition(".")[2]
