"""Request bodies to records. Pure: bytes in, records and complaints out.

A record is `{"key", "value", "headers", "timestamp", "partition"}`, only `value` required. A JSON string is stored as
the UTF-8 bytes of its text, null as no value at all, any other JSON value as the bytes it has in the body;
`key_base64`/`value_base64` carry arbitrary bytes. With `raw` a whole NDJSON line is the value.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec

MAX_TIMESTAMP_MS = (1 << 63) - 1


class BadRequest(Exception):
    """The request as a whole cannot be done; `status` is the HTTP status."""

    def __init__(self, status: int, error: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.error = error
        self.message = message


@dataclass(slots=True)
class IngestRecord:
    """One record as the body gave it; `timestamp` in milliseconds, None = when it was received."""

    value: bytes | None
    key: bytes | None = None
    headers: list[tuple[str, bytes | None]] = field(default_factory=list)
    timestamp: int | None = None
    partition: int | None = None

    @property
    def size_in_bytes(self) -> int:
        """About what it takes in a batch."""
        size = 24 + (len(self.value) if self.value is not None else 0) + (len(self.key) if self.key is not None else 0)
        return size + sum(len(name) * 3 + len(value or b"") + 10 for name, value in self.headers)


@dataclass(slots=True)
class BadRecord:
    """One record that cannot be taken; its neighbours can."""

    error: str
    message: str


class _Row(msgspec.Struct, forbid_unknown_fields=True):
    value: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    value_base64: str | msgspec.UnsetType | None = msgspec.UNSET
    key: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    key_base64: str | msgspec.UnsetType | None = msgspec.UNSET
    headers: dict[str, str | None] | None = None
    timestamp: int | None = None
    partition: int | None = None


class _Wrapped(msgspec.Struct, forbid_unknown_fields=True):
    records: list[msgspec.Raw]


class _Probe(msgspec.Struct):
    records: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_probe = msgspec.json.Decoder(_Probe)
_row = msgspec.json.Decoder(_Row)
_wrapped = msgspec.json.Decoder(_Wrapped)
_rows = msgspec.json.Decoder(list[msgspec.Raw])
_text = msgspec.json.Decoder(str)
_NULL = b"null"
_QUOTE = ord('"')


def records_of_json(body: bytes) -> Iterator[IngestRecord | BadRecord]:
    """The records of a JSON body: one object, an array, or `{"records": [...]}`.

    Raises:
        BadRequest: the body is not JSON of one of these shapes.
    """
    start = body.lstrip()[:1]
    try:
        if start == b"[":
            rows = _rows.decode(body)
        elif start == b"{":
            rows = _wrapped.decode(body).records if _is_wrapped(body) else [msgspec.Raw(body)]
        else:
            raise BadRequest(400, "INVALID_JSON", 'the body is one record, an array of records, or {"records": [...]}')
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadRequest(400, "INVALID_JSON", f"the body is not readable: {error}") from None
    if not rows:
        raise BadRequest(400, "NO_RECORDS", "the body has no records")
    return (record_of(row) for row in rows)


def _is_wrapped(body: bytes) -> bool:
    return _probe.decode(body).records is not msgspec.UNSET


def record_of(text: bytes | msgspec.Raw, raw: bool = False) -> IngestRecord | BadRecord:
    """One record from its JSON text, or with `raw` the text itself as the value."""
    if raw:
        return IngestRecord(bytes(text))
    try:
        row = _row.decode(text)
        return _record_of_row(row)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return BadRecord("INVALID_JSON", str(error))
    except _Complaint as complaint:
        return BadRecord("INVALID_RECORD", str(complaint))


class _Complaint(Exception):
    pass


def _record_of_row(row: _Row) -> IngestRecord:
    value = _bytes_of("value", row.value, row.value_base64)
    if value is msgspec.UNSET:
        raise _Complaint("a record needs a value (null writes a tombstone)")
    key = _bytes_of("key", row.key, row.key_base64)
    if row.timestamp is not None and not 0 <= row.timestamp <= MAX_TIMESTAMP_MS:
        raise _Complaint(f"timestamp is milliseconds since 1970, not {row.timestamp}")
    if row.partition is not None and row.partition < 0:
        raise _Complaint(f"partition is 0 or more, not {row.partition}")
    headers = [(name, None if text is None else text.encode()) for name, text in (row.headers or {}).items()]
    return IngestRecord(value, None if key is msgspec.UNSET else key, headers, row.timestamp, row.partition)


def _bytes_of(
    name: str, plain: msgspec.Raw | msgspec.UnsetType, encoded: str | msgspec.UnsetType | None
) -> bytes | msgspec.UnsetType | None:
    if encoded is not msgspec.UNSET:
        if plain is not msgspec.UNSET:
            raise _Complaint(f"{name} and {name}_base64 exclude each other")
        if encoded is None:
            return None
        try:
            return base64.b64decode(encoded, validate=True)
        except (binascii.Error, ValueError):
            raise _Complaint(f"{name}_base64 is not base64") from None
    if plain is msgspec.UNSET:
        return msgspec.UNSET
    text = bytes(plain)
    if text[0] == _QUOTE:
        return _text.decode(text).encode()
    return None if text == _NULL else text


class LineReader:
    """Bytes as they arrive in, whole lines out; a line's end is `\\n` or `\\r\\n`, empty lines are passed over."""

    def __init__(self, max_line_bytes: int) -> None:
        self._max_line_bytes = max_line_bytes
        self._rest = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """Lines that are complete now.

        Raises:
            BadRequest: 413, a line has no end within the limit.
        """
        self._rest += data
        end = self._rest.rfind(b"\n")
        if end < 0:
            self._check(len(self._rest))
            return []
        whole = bytes(memoryview(self._rest)[:end])
        del self._rest[: end + 1]
        self._check(len(self._rest))
        return _lines(whole)

    def finish(self) -> list[bytes]:
        """The last line, if it had no end."""
        whole = bytes(self._rest)
        self._rest.clear()
        return _lines(whole)

    def _check(self, pending_bytes: int) -> None:
        if pending_bytes > self._max_line_bytes:
            raise BadRequest(413, "MESSAGE_TOO_LARGE", f"a line is longer than {self._max_line_bytes} bytes")


def _lines(whole: bytes) -> list[bytes]:
    return [line for line in (line.removesuffix(b"\r") for line in whole.split(b"\n")) if line.strip()]
