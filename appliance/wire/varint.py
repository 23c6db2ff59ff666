"""Unsigned variable-length integers (KIP-482): 7 bits a byte, lowest first, the top bit says that more follow."""

from __future__ import annotations

from collections.abc import Sequence

from appliance.wire.schema import WireError

MAX_BYTES = 5
"""An unsigned varint of the protocol holds 32 bits at most."""


def _encode(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


_SMALL = [_encode(value) for value in range(1 << 14)]


def encode_unsigned_varint(value: int) -> bytes:
    """The bytes of an unsigned varint."""
    return _SMALL[value] if value < 1 << 14 else _encode(value)


def decode_unsigned_varint(view: Sequence[int], position: int) -> tuple[int, int]:
    """Read an unsigned varint; returns it and the position behind it.

    Raises:
        WireError: it has more than 32 bits.
        IndexError: the bytes end within it.
    """
    value = shift = 0
    for _ in range(MAX_BYTES):
        byte = view[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0xFFFFFFFF:
                break
            return value, position
        shift += 7
    raise WireError("an unsigned varint has more than 32 bits")


def skip_tag_section(view: memoryview, position: int, budget: int) -> tuple[int, int]:
    """Step over a tag section of which no tag is known.

    Returns the position behind it and what is left of `budget`, the elements and tags that a message may still have.

    Raises:
        WireError: a tag reaches beyond the end, or there are too many.
        IndexError: the bytes end within it.
    """
    count, position = decode_unsigned_varint(view, position)
    budget -= count
    if budget < 0:
        raise WireError("too many tagged fields")
    end = len(view)
    for _ in range(count):
        _, position = decode_unsigned_varint(view, position)
        size, position = decode_unsigned_varint(view, position)
        position += size
        if position > end:
            raise WireError(f"a tagged field ends {position - end} bytes behind the message")
    return position, budget
