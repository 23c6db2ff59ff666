"""JSON objects that people can read and nobody can damage unseen: one row a line, a checksum at the end.

```
{
"format":…,"format_version":…, further values
"rows":[
[…],
[…]
],
"crc32c":…         of everything before this line
}
```
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from crc32c import crc32c

DOCUMENT_MAX_BYTES = 16 << 20


class CorruptDocument(ValueError):
    """Not the document that was expected, or damaged."""


def encode_document(head: Mapping[str, object], lists: Sequence[tuple[str, Sequence[Sequence[object]]]]) -> bytes:
    """The bytes of a document: values, then lists of rows."""
    lines = ["{"]
    lines += [f"{_json(key)}:{_json(value)}," for key, value in head.items()]
    for key, rows in lists:
        lines.append(f"{_json(key)}:[")
        lines += [_json(row) + ("," if number < len(rows) else "") for number, row in enumerate(rows, 1)]
        lines.append("],")
    body = "\n".join(lines).encode("ascii") + b"\n"
    return body + b'"crc32c":%d\n}\n' % crc32c(body)


def parse_document(data: bytes, wanted: str, version: int) -> dict[str, Any]:
    """The values of a document. Raises: CorruptDocument."""
    if len(data) > DOCUMENT_MAX_BYTES:
        raise CorruptDocument(f"{len(data)} bytes are too many")
    body_length = data.rfind(b'"crc32c":')
    try:
        values = json.loads(data)
        if not isinstance(values, dict) or values["format"] != wanted or values["format_version"] != version:
            raise CorruptDocument(f"not an {wanted} of version {version}")
        if values["crc32c"] != crc32c(data[:body_length]):
            raise CorruptDocument("crc differs")
    except (KeyError, ValueError, RecursionError) as error:
        if isinstance(error, CorruptDocument):
            raise
        raise CorruptDocument(f"not an {wanted}: {error!r}") from error
    return values


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))
