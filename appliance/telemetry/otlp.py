"""Metrics of OpenTelemetry as clients push them: protobuf's wire format, read by hand and with limits.

Only what clients send is read; what is unknown is passed over, as protobuf has it. Field numbers are those of
opentelemetry/proto/metrics/v1/metrics.proto:

MetricsData             1 resource_metrics
ResourceMetrics         1 resource  2 scope_metrics
Resource                1 attributes
ScopeMetrics            2 metrics
Metric                  1 name  5 gauge  7 sum  9 histogram
Gauge, Sum, Histogram   1 data_points
NumberDataPoint         4 as_double  6 as_int (sfixed64)  7 attributes
HistogramDataPoint      4 count (fixed64)  5 sum (double)  9 attributes
KeyValue                1 key  2 value
AnyValue                1 string  2 bool  3 int  4 double

A tag is a varint: the field's number, and in its last three bits how the value is written (0 varint, 1 eight bytes,
2 length and bytes, 5 four bytes).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

SERIES_MAX = 1_000
"""Values that are taken of one push; a client has a few hundred."""
TEXT_MAX = 256
"""Characters that are kept of a name or a value."""
ATTRIBUTES_MAX = 20

_VARINT, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5
_double = struct.Struct("<d").unpack_from
_fixed = struct.Struct("<Q").unpack_from
_sfixed = struct.Struct("<q").unpack_from

Attributes: TypeAlias = tuple[tuple[str, str], ...]


class BadTelemetry(ValueError):
    """Bytes that are no metrics."""


class Series(NamedTuple):
    """One value that a client tells."""

    name: str
    attributes: Attributes
    value: float


class Pushed(NamedTuple):
    """What one push holds."""

    resource: Attributes
    """What its sender says of itself: its rack, its group."""
    series: tuple[Series, ...]
    dropped: int
    """Values beyond the limit."""


_Field: TypeAlias = tuple[int, int, int, int]
"""Number, kind, and where the value begins and ends; of a varint the value itself and -1."""


def decode(data: bytes) -> Pushed:
    """Raises: BadTelemetry."""
    resource: dict[str, str] = {}
    series: list[Series] = []
    dropped = 0
    try:
        for start, end in _parts(data, 0, len(data), 1):
            for at, stop in _parts(data, start, end, 1):
                resource.update(_attributes(data, at, stop, 1))
            for at, stop in _parts(data, start, end, 2):
                for metric_at, metric_stop in _parts(data, at, stop, 2):
                    for one in _metric(data, metric_at, metric_stop):
                        if len(series) < SERIES_MAX:
                            series.append(one)
                        else:
                            dropped += 1
    except (IndexError, struct.error) as error:
        raise BadTelemetry(f"metrics of {len(data)} bytes are cut off: {error}") from error
    return Pushed(tuple(resource.items())[:ATTRIBUTES_MAX], tuple(series), dropped)


def _metric(data: bytes, start: int, end: int) -> Iterator[Series]:
    name, points = "", []
    for number, kind, at, stop in _fields(data, start, end):
        if kind != _BYTES:
            continue
        if number == 1:
            name = _text(data, at, stop)
        elif number in (5, 7, 9):
            points += [(number == 9, *part) for part in _parts(data, at, stop, 1)]
    for is_histogram, at, stop in points:
        yield from _histogram(name, data, at, stop) if is_histogram else _number(name, data, at, stop)


def _number(name: str, data: bytes, start: int, end: int) -> Iterator[Series]:
    value: float | None = None
    for number, kind, at, _ in _fields(data, start, end):
        if kind == _EIGHT and number == 4:
            value = _double(data, at)[0]
        elif kind == _EIGHT and number == 6:
            value = _sfixed(data, at)[0]
    if value is not None:
        yield Series(name, _attributes(data, start, end, 7), value)


def _histogram(name: str, data: bytes, start: int, end: int) -> Iterator[Series]:
    attributes = _attributes(data, start, end, 9)
    for number, kind, at, _ in _fields(data, start, end):
        if kind == _EIGHT and number == 4:
            yield Series(name + ".count", attributes, _fixed(data, at)[0])
        elif kind == _EIGHT and number == 5:
            yield Series(name + ".sum", attributes, _double(data, at)[0])


def _attributes(data: bytes, start: int, end: int, number: int) -> Attributes:
    pairs: list[tuple[str, str]] = []
    for at, stop in _parts(data, start, end, number):
        key = value = ""
        for inner, kind, value_at, value_stop in _fields(data, at, stop):
            if kind == _BYTES and inner == 1:
                key = _text(data, value_at, value_stop)
            elif kind == _BYTES and inner == 2:
                value = _any_value(data, value_at, value_stop)
        if key and len(pairs) < ATTRIBUTES_MAX:
            pairs.append((key, value))
    return tuple(pairs)


def _any_value(data: bytes, start: int, end: int) -> str:
    for number, kind, at, stop in _fields(data, start, end):
        if number == 1 and kind == _BYTES:
            return _text(data, at, stop)
        if number == 2 and kind == _VARINT:
            return "true" if at else "false"
        if number == 3 and kind == _VARINT:
            return str(at - (1 << 64) if at >> 63 else at)
        if number == 4 and kind == _EIGHT:
            return str(_double(data, at)[0])
    return ""


def _text(data: bytes, start: int, end: int) -> str:
    return data[start : min(end, start + 4 * TEXT_MAX)].decode(errors="replace")[:TEXT_MAX]


def _parts(data: bytes, start: int, end: int, wanted: int) -> Iterator[tuple[int, int]]:
    """Where each field of this number lies that is a message of its own."""
    for number, kind, at, stop in _fields(data, start, end):
        if number == wanted and kind == _BYTES:
            yield at, stop


def _fields(data: bytes, position: int, end: int) -> Iterator[_Field]:
    """Raises: BadTelemetry, IndexError where a varint is cut off."""
    while position < end:
        tag, position = _varint(data, position)
        number, kind = tag >> 3, tag & 7
        if kind == _VARINT:
            value, position = _varint(data, position)
            yield number, kind, value, -1
        else:
            length = 8 if kind == _EIGHT else 4
            if kind == _BYTES:
                length, position = _varint(data, position)
            elif kind not in (_EIGHT, _FOUR):
                raise BadTelemetry(f"a field of kind {kind}")
            if position + length > end:
                raise BadTelemetry(f"a field of {length} bytes reaches beyond the {end - position} that are left")
            yield number, kind, position, position + length
            position += length


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, position
        shift += 7
        if shift > 63:
            raise BadTelemetry("a number of more than ten bytes")
