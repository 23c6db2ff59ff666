"""Names of the lake's objects. The name of a file tells which plan it belongs to, and is used once.

```
lake/{topic id}/current.json                             which output of the topic counts
lake/{topic id}-{generation:04}/{partition:05}/ledger.json
lake/{topic id}-{generation:04}/{partition:05}/page/{number:06}
lake/{topic id}-{generation:04}/data/{field=value}/…/{partition:05}-{plan:010}-{number:04}.parquet
lake/{topic id}-{generation:04}/dead/{partition:05}-{plan:010}-{number:04}.parquet
```
"""

from __future__ import annotations

import re
import uuid
from typing import NamedTuple
from urllib.parse import quote

from appliance.base.ids import uuid_from_text, uuid_to_text

LAKE = "lake/"
DATA = "data"
DEAD = "dead"
NULL_VALUE = "__HIVE_DEFAULT_PARTITION__"
"""What Hive and Spark call a folder of rows without a value."""
VALUE_MAX_BYTES = 200
"""The longest value that names a folder; a row with a longer one is a dead letter."""

_OUTPUT = re.compile(r"lake/([A-Za-z0-9_-]{22})-(\d{4,10})/")
_FILE = re.compile(r"(data|dead)/(?:.*/)?(\d{5,10})-(\d{10})-(\d{4,10})\.parquet")


class Output(NamedTuple):
    """One making of a topic's files; a backfill is another."""

    topic_id: uuid.UUID
    generation: int

    def __str__(self) -> str:
        return f"{uuid_to_text(self.topic_id)}-{self.generation:04}"

    @property
    def folder(self) -> str:
        """Where everything of it lies; ends with a slash."""
        return f"{LAKE}{self}/"


class FileName(NamedTuple):
    """What the name of a file says of it."""

    kind: str
    partition: int
    plan: int
    number: int


def current_name(topic_id: uuid.UUID) -> str:
    return f"{LAKE}{uuid_to_text(topic_id)}/current.json"


def ledger_name(output: Output, partition: int) -> str:
    return f"{output.folder}{partition:05}/ledger.json"


def page_name(number: int) -> str:
    """Relative to the partition's folder."""
    return f"page/{number:06}"


def file_name(kind: str, folder: str, partition: int, plan: int, number: int) -> str:
    """Relative to the output's folder; `folder` is empty or ends with a slash."""
    return f"{kind}/{folder}{partition:05}-{plan:010}-{number:04}.parquet"


def folder_part(field: str, value: str | None) -> str:
    """`field=value/` as Hive writes it, with anything unusual as %XX."""
    return f"{quote(field, safe='')}={NULL_VALUE if value is None else quote(value, safe=' ')}/"


def parse_file_name(text: str) -> FileName | None:
    """Read the name of a file, relative to the output's folder; None when it is not one of ours."""
    match = _FILE.fullmatch(text)
    if match is None:
        return None
    return FileName(match.group(1), *(int(number) for number in match.group(2, 3, 4)))


def parse_output(name: str) -> tuple[Output, str] | None:
    """The output of a full object name, and the rest of it; None when it lies in none."""
    match = _OUTPUT.match(name)
    if match is None:
        return None
    try:
        return Output(uuid_from_text(match.group(1)), int(match.group(2))), name[match.end() :]
    except ValueError:
        return None
