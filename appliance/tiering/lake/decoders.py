"""Values of records to columns. A decoder takes many values at once, and whole or not at all; `decoded` finds the bad.

The seam for formats that need a registry (Avro, Protobuf): one more class with `infer` and `decode`.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import pyarrow as pa
import pyarrow.csv
import pyarrow.json

from appliance.tiering.lake.schema import folded_schema, parse_schema
from appliance.tiering.lake.spec import BadSpec, LakeSpec

JSON_NESTING_MAX = 200
"""Arrow's parser has no limit of its own, and ends the process somewhere above 5,000."""
_BRACKETS_MAX = 400


class DecodeError(ValueError):
    """One of the values cannot become a row; which one is not said."""


class DeadLetter(NamedTuple):
    """A value that does not parse, by its place among those that were given."""

    place: int
    reason: str


class Decoder(Protocol):
    """Values to columns. Same values and schema, same rows, whatever else is decoded beside them."""

    @property
    def fixed_schema(self) -> pa.Schema | None:
        """The columns where they are known beforehand; None: `infer` finds them."""

    def infer(self, values: Sequence[bytes]) -> pa.Schema:
        """The columns of these values. Raises: DecodeError."""

    def decode(self, values: Sequence[bytes], schema: pa.Schema) -> pa.Table:
        """One row for each value. Raises: DecodeError."""


class RawDecoder:
    """The value as it is, in the column `value`."""

    fixed_schema = pa.schema([("value", pa.binary())])

    def infer(self, values: Sequence[bytes]) -> pa.Schema:
        return self.fixed_schema

    def decode(self, values: Sequence[bytes], schema: pa.Schema) -> pa.Table:
        return pa.table({"value": pa.array(values, pa.binary())})


class JsonDecoder:
    """One JSON object in each value."""

    def __init__(self, schema: str) -> None:
        self.fixed_schema = parse_schema(schema) if schema else None

    def infer(self, values: Sequence[bytes]) -> pa.Schema:
        return self._read(values, None, "infer").schema

    def decode(self, values: Sequence[bytes], schema: pa.Schema) -> pa.Table:
        table = self._read(values, pa.schema([(one.name, _readable(one.type)) for one in schema]), "ignore")
        try:
            return table.select(schema.names).cast(schema)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise DecodeError(_reason(error)) from None

    def _read(self, values: Sequence[bytes], schema: pa.Schema | None, unexpected: str) -> pa.Table:
        for value in values:
            # Then no value can end within another one's braces: as many rows as values means one row each.
            if not value.startswith(b"{") or not value.endswith(b"}"):
                value = value.strip()
                if not value.startswith(b"{") or not value.endswith(b"}"):
                    raise DecodeError("not a JSON object")
        data = b"\n".join(values) + b"\n"
        if data.count(b"[") + data.count(b"{") - len(values) > _BRACKETS_MAX:
            _require_shallow(values)
        read = pyarrow.json.ReadOptions(use_threads=False, block_size=len(data) + 1)
        parse = pyarrow.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior=unexpected)
        try:
            table = pyarrow.json.read_json(io.BytesIO(data), read, parse)
            table.validate(full=True)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowKeyError) as error:
            raise DecodeError(_reason(error)) from None
        if table.num_rows != len(values):
            raise DecodeError("more than one JSON object")
        return table


class CsvDecoder:
    """One line of CSV in each value, columns as the schema has them."""

    def __init__(self, schema: str, delimiter: str) -> None:
        self.fixed_schema = parse_schema(schema)
        for field in self.fixed_schema:
            if pa.types.is_nested(field.type):
                raise BadSpec(f"CSV has no values of the type of column {field.name}")
        self._delimiter = delimiter

    def infer(self, values: Sequence[bytes]) -> pa.Schema:
        return self.fixed_schema

    def decode(self, values: Sequence[bytes], schema: pa.Schema) -> pa.Table:
        if any(not value.strip() for value in values):
            raise DecodeError("an empty line")
        if any(value.count(b'"') & 1 for value in values):
            raise DecodeError("a quotation mark is not closed")
        data = b"\n".join(values) + b"\n"
        read = pyarrow.csv.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=schema.names)
        parse = pyarrow.csv.ParseOptions(delimiter=self._delimiter, newlines_in_values=True)
        convert = pyarrow.csv.ConvertOptions(column_types=schema, strings_can_be_null=False)
        try:
            table = pyarrow.csv.read_csv(io.BytesIO(data), read, parse, convert)
            table.validate(full=True)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise DecodeError(_reason(error)) from None
        if table.num_rows != len(values):
            raise DecodeError("more than one line")
        return table


def decoder_of(spec: LakeSpec) -> Decoder:
    """Raises: BadSpec."""
    match spec.value_format:
        case "raw":
            return RawDecoder()
        case "json":
            return JsonDecoder(spec.schema)
        case "csv":
            return CsvDecoder(spec.schema, spec.csv_delimiter)
    raise BadSpec(f"lake.value.format: there is no {spec.value_format!r}")


def decoded(
    decoder: Decoder, values: Sequence[bytes | None], schema: pa.Schema
) -> tuple[pa.Table, list[int], list[DeadLetter]]:
    """Rows, the places that they come from, and what does not parse. No value gives a row of nulls."""
    there = [index for index, value in enumerate(values) if value is not None]
    tables: list[pa.Table] = []
    kept: list[int] = []
    dead: list[DeadLetter] = []

    def take(places: list[int]) -> None:
        try:
            tables.append(decoder.decode([values[index] or b"" for index in places], schema))
            kept.extend(places)
        except DecodeError as error:
            if len(places) == 1:
                dead.append(DeadLetter(places[0], str(error)))
                return
            take(places[: len(places) // 2])
            take(places[len(places) // 2 :])

    if there:
        take(there)
    table = pa.concat_tables([*tables, schema.empty_table()]).combine_chunks() if tables else schema.empty_table()
    if len(there) == len(values):
        return table, kept, dead
    of_place = {place: row for row, place in enumerate(kept)}
    places = [place for place, value in enumerate(values) if value is None or place in of_place]
    return table.take(pa.array([of_place.get(place) for place in places], pa.int64())), places, dead


def inferred(decoder: Decoder, values: Sequence[bytes | None], known: pa.Schema, settled: pa.Schema) -> pa.Schema:
    """The schema folded over these values, in their order; those that do not parse say nothing."""

    def fold(some: list[bytes], schema: pa.Schema) -> pa.Schema:
        try:
            return folded_schema(schema, decoder.infer(some), settled)
        except DecodeError:
            if len(some) == 1:
                return schema
            return fold(some[len(some) // 2 :], fold(some[: len(some) // 2], schema))

    there = [value for value in values if value is not None]
    return fold(there, known) if there else known


def _require_shallow(values: Sequence[bytes]) -> None:
    for value in values:
        if len(value) <= JSON_NESTING_MAX or value.count(b"[") + value.count(b"{") <= JSON_NESTING_MAX:
            continue
        depth = 0
        in_text = escaped = False
        for byte in value:
            if escaped:
                escaped = False
            elif in_text:
                escaped, in_text = byte == 0x5C, byte != 0x22
            elif byte == 0x22:
                in_text = True
            elif byte in b"[{":
                depth += 1
                if depth > JSON_NESTING_MAX:
                    raise DecodeError(f"JSON of more than {JSON_NESTING_MAX} levels")
            elif byte in b"]}":
                depth -= 1


def _readable(type_: pa.DataType) -> pa.DataType:
    """What Arrow reads from JSON in the place of a type that it only casts to."""
    if pa.types.is_struct(type_):
        return pa.struct([pa.field(one.name, _readable(one.type)) for one in type_])
    if pa.types.is_list(type_):
        return pa.list_(_readable(type_.value_type))
    return pa.string() if pa.types.is_date(type_) else type_


def _reason(error: Exception) -> str:
    return " ".join(str(error).removeprefix("JSON parse error: ").split())[:200]
