"""The scalar types of Kafka's protocol, as they are written in a declaration.

Each is the Python type that a reader sees, annotated with how it lies on the wire. Numbers are big-endian.
`Records` fields are views into the input when decoded; every other type is copied out of it.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Annotated

from appliance.base.ids import ZERO_UUID


@dataclass(frozen=True, slots=True)
class Scalar:
    """How one scalar type lies on the wire. `code` is its letter in `struct`, empty when its length varies."""

    name: str
    code: str
    size_in_bytes: int
    zero: object


BOOL = Scalar("bool", "?", 1, False)
INT8 = Scalar("int8", "b", 1, 0)
INT16 = Scalar("int16", "h", 2, 0)
UINT16 = Scalar("uint16", "H", 2, 0)
INT32 = Scalar("int32", "i", 4, 0)
UINT32 = Scalar("uint32", "I", 4, 0)
INT64 = Scalar("int64", "q", 8, 0)
FLOAT64 = Scalar("float64", "d", 8, 0.0)
UUID = Scalar("uuid", "16s", 16, ZERO_UUID)
STRING = Scalar("string", "", 0, "")
BYTES = Scalar("bytes", "", 0, b"")
RECORDS = Scalar("records", "", 0, None)

Bool = Annotated[bool, BOOL]
Int8 = Annotated[int, INT8]
Int16 = Annotated[int, INT16]
UInt16 = Annotated[int, UINT16]
Int32 = Annotated[int, INT32]
UInt32 = Annotated[int, UINT32]
Int64 = Annotated[int, INT64]
Float64 = Annotated[float, FLOAT64]
Uuid = Annotated[uuid.UUID, UUID]
String = Annotated[str, STRING]
Bytes = Annotated[bytes, BYTES]
Records = Annotated[bytes | memoryview, RECORDS]
