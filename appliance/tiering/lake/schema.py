"""Columns of rows: from text to Arrow types and back, and how inferred ones grow.

The text is that of Spark and Hive: `id bigint, name string, tags array<string>, at struct<city:string,since:date>`.

An inferred schema is a fold over the values in offset order. New columns join at the end, nullable. Of numbers, a
column that is new in this plan becomes double when both whole and other numbers occur; one that has files already stays
what it is. Of other types that do not agree the first holds. A value that does not fit into its column makes its record
a dead letter. Text that looks like a time stays text. What was always null, an empty object or list, is no column yet.
"""

from __future__ import annotations

import re

import pyarrow as pa

from appliance.tiering.lake.spec import BadSpec

NESTING_MAX = 64
_SIMPLE: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
}
_TEXT = {type_: text for text, type_ in _SIMPLE.items()}
_TOKEN = re.compile(r"\s*(`(?:[^`]|``)*`|[A-Za-z_][\w.\-]*|\d+|[<>(),:])")


def parse_schema(text: str) -> pa.Schema:
    """Raises: BadSpec: what is wrong with it."""
    parser = _Parser(text)
    fields = parser.fields(separator="", end="")
    names = [field.name for field in fields]
    if len(set(names)) != len(names):
        raise BadSpec(f"lake.schema names a column twice: {text}")
    return pa.schema(fields)


def schema_text(schema: pa.Schema) -> str:
    """What `parse_schema` reads."""
    return ", ".join(f"{_name(field.name)} {_type_text(field.type)}" for field in schema)


def _name(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z_]\w*", name) else "`" + name.replace("`", "``") + "`"


def _type_text(type_: pa.DataType) -> str:
    if pa.types.is_struct(type_):
        return f"struct<{','.join(f'{_name(one.name)}:{_type_text(one.type)}' for one in type_)}>"
    if pa.types.is_list(type_):
        return f"array<{_type_text(type_.value_type)}>"
    if pa.types.is_decimal(type_):
        return f"decimal({type_.precision},{type_.scale})"
    return _TEXT[type_]


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[str] = []
        at, text = 0, text.rstrip()
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None:
                raise BadSpec(f"lake.schema: not understood from {text[at : at + 20]!r} on")
            self._tokens.append(match.group(1))
            at = match.end()
        self._at = 0
        self._depth = 0

    def _take(self, wanted: str = "") -> str:
        token = self._tokens[self._at] if self._at < len(self._tokens) else ""
        if not token or (wanted and token != wanted):
            raise BadSpec(f"lake.schema: {wanted or 'more'} is missing in {self._text!r}")
        self._at += 1
        return token

    def _is_next(self, token: str) -> bool:
        return self._at < len(self._tokens) and self._tokens[self._at] == token

    def fields(self, separator: str, end: str) -> list[pa.Field]:
        found = []
        while True:
            name = self._take()
            if name.startswith("`"):
                name = name[1:-1].replace("``", "`")
            elif not re.fullmatch(r"[A-Za-z_][\w.\-]*", name):
                raise BadSpec(f"lake.schema: a name was expected, not {name!r}")
            if separator:
                self._take(separator)
            found.append(pa.field(name, self._type()))
            if not self._is_next(","):
                break
            self._take()
        if end:
            self._take(end)
        elif self._at < len(self._tokens):
            raise BadSpec(f"lake.schema: {self._tokens[self._at]!r} was not expected in {self._text!r}")
        return found

    def _type(self) -> pa.DataType:
        self._depth += 1
        if self._depth > NESTING_MAX:
            raise BadSpec(f"lake.schema: more than {NESTING_MAX} levels")
        try:
            return self._one_type()
        finally:
            self._depth -= 1

    def _one_type(self) -> pa.DataType:
        word = self._take().lower()
        if word in _SIMPLE:
            return _SIMPLE[word]
        if word == "long":
            return pa.int64()
        if word == "integer":
            return pa.int32()
        if word == "array":
            self._take("<")
            item = self._type()
            self._take(">")
            return pa.list_(item)
        if word == "struct":
            self._take("<")
            return pa.struct(self.fields(separator=":", end=">"))
        if word == "decimal":
            self._take("(")
            precision = int(self._take())
            self._take(",")
            scale = int(self._take())
            self._take(")")
            if not 0 < precision <= 38 or not 0 <= scale <= precision:
                raise BadSpec(f"lake.schema: no decimal({precision},{scale})")
            return pa.decimal128(precision, scale)
        raise BadSpec(
            f"lake.schema: there is no type {word!r}; there are {', '.join(sorted(_SIMPLE))}, decimal(p,s), "
            "array<…> and struct<…>"
        )


def folded_schema(known: pa.Schema, found: pa.Schema, settled: pa.Schema) -> pa.Schema:
    """`known` with what `found` adds. `settled` are the columns of files that are there already."""
    of_files = {field.name: field.type for field in settled}
    return pa.schema(_folded(list(known), list(found), of_files))


def _folded(known: list[pa.Field], found: list[pa.Field], settled: dict[str, pa.DataType]) -> list[pa.Field]:
    types = {field.name: field.type for field in known}
    for field in found:
        usable = storable(field.type)
        if usable is None:
            continue
        present = types.get(field.name)
        types[field.name] = usable if present is None else _joined(present, usable, settled.get(field.name))
    return [pa.field(name, type_) for name, type_ in types.items()]


def _joined(known: pa.DataType, found: pa.DataType, settled: pa.DataType | None) -> pa.DataType:
    if pa.types.is_struct(known) and pa.types.is_struct(found):
        below = {field.name: field.type for field in settled} if settled is not None else {}
        return pa.struct(_folded(list(known), list(found), below))
    if pa.types.is_list(known) and pa.types.is_list(found):
        item = settled.value_type if settled is not None else None
        return pa.list_(_joined(known.value_type, found.value_type, item))
    if settled is None and {known, found} == {pa.int64(), pa.float64()}:
        return pa.float64()
    return known


def storable(type_: pa.DataType) -> pa.DataType | None:
    """What an inferred type is kept as; None where nothing is known of it yet."""
    if pa.types.is_null(type_):
        return None
    if pa.types.is_struct(type_):
        fields = [(field.name, storable(field.type)) for field in type_]
        known = [pa.field(name, one) for name, one in fields if one is not None]
        return pa.struct(known) if known else None
    if pa.types.is_list(type_):
        item = storable(type_.value_type)
        return None if item is None else pa.list_(item)
    if pa.types.is_timestamp(type_) or pa.types.is_date(type_):
        return pa.string()
    return type_ if type_ in _TEXT else pa.string()
