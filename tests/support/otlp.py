"""Metrics of OpenTelemetry in protobuf, written by hand: what a client could push."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*out, value))


def part(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(data)) + data


def attribute(number: int, key: str, value: str | int | float | bool) -> bytes:
    if isinstance(value, bool):
        said = b"\x10" + varint(int(value))
    elif isinstance(value, int):
        said = b"\x18" + varint(value & 0xFFFF_FFFF_FFFF_FFFF)
    elif isinstance(value, float):
        said = b"\x21" + struct.pack("<d", value)
    else:
        said = part(1, value.encode())
    return part(number, part(1, key.encode()) + part(2, said))


def number_point(value: float | int, attributes: Mapping[str, str | int | float | bool]) -> bytes:
    times = b"\x11" + struct.pack("<Q", 1) + b"\x19" + struct.pack("<Q", 2)
    said = b"\x31" + struct.pack("<q", value) if isinstance(value, int) else b"\x21" + struct.pack("<d", value)
    return times + said + b"".join(attribute(7, key, each) for key, each in attributes.items())


def gauge(name: str, *points: bytes) -> bytes:
    return part(1, name.encode()) + part(3, b"ms") + part(5, b"".join(part(1, point) for point in points))


def total(name: str, *points: bytes) -> bytes:
    return part(1, name.encode()) + part(7, b"".join(part(1, point) for point in points) + b"\x10\x02\x18\x01")


def histogram(name: str, count: int, value: float) -> bytes:
    point = b"\x21" + struct.pack("<Q", count) + b"\x29" + struct.pack("<d", value) + part(6, bytes(16))
    return part(1, name.encode()) + part(9, part(1, point))


def metrics(found: Sequence[bytes], resource: Mapping[str, str] | None = None) -> bytes:
    of_resource = b"".join(attribute(1, key, value) for key, value in (resource or {}).items())
    scope = part(1, part(1, b"scope")) + b"".join(part(2, metric) for metric in found)
    return part(1, part(1, of_resource) + part(2, scope))
