"""Names of the tier's objects. Each is given once; it carries who uploaded it.

```
tier/{topic id}/{partition:05}/manifest.json
tier/{topic id}/{partition:05}/seg/{start:020}-{end:020}-{epoch:010}-{seq:010}
tier/{topic id}/{partition:05}/page/{start:020}-{end:020}-{epoch:010}-{seq:010}
groups/{topic id}/{partition:05}
```
`end` is exclusive. `epoch` is the leader epoch of the uploader, not of the data; `seq` counts within that epoch.
"""

from __future__ import annotations

import re
import uuid
from typing import NamedTuple

from appliance.base.ids import uuid_from_text, uuid_to_text

TIER = "tier/"
GROUPS = "groups/"
MANIFEST = "manifest.json"
SEGMENT = "seg"
PAGE = "page"

_NAME = re.compile(r"(seg|page)/(\d{20})-(\d{20})-(\d{10})-(\d{10})")
_FOLDER = re.compile(r"tier/([A-Za-z0-9_-]{22})/(\d{5,10})/")


class ObjectName(NamedTuple):
    """The name of a segment or page object, relative to its partition's folder."""

    kind: str
    start: int
    end: int
    epoch: int
    seq: int

    def __str__(self) -> str:
        return f"{self.kind}/{self.start:020}-{self.end:020}-{self.epoch:010}-{self.seq:010}"


def parse_name(text: str) -> ObjectName | None:
    """Read a name back; None when it is not one of ours."""
    match = _NAME.fullmatch(text)
    if match is None:
        return None
    start, end, epoch, seq = (int(number) for number in match.group(2, 3, 4, 5))
    return ObjectName(match.group(1), start, end, epoch, seq)


def topic_folder(topic_id: uuid.UUID) -> str:
    """Where everything of one topic lies; ends with a slash."""
    return f"{TIER}{uuid_to_text(topic_id)}/"


def partition_folder(topic_id: uuid.UUID, partition: int) -> str:
    """Where everything of one partition lies; ends with a slash."""
    return f"{topic_folder(topic_id)}{partition:05}/"


def manifest_name(topic_id: uuid.UUID, partition: int) -> str:
    return partition_folder(topic_id, partition) + MANIFEST


def groups_folder(topic_id: uuid.UUID) -> str:
    """Where the committed offsets of a topic of groups are backed up; ends with a slash."""
    return f"{GROUPS}{uuid_to_text(topic_id)}/"


def groups_name(topic_id: uuid.UUID, partition: int) -> str:
    """The backup of one partition of `__consumer_offsets` or `__share_group_state`."""
    return f"{groups_folder(topic_id)}{partition:05}"


def parse_folder(name: str) -> tuple[uuid.UUID, int, str] | None:
    """Topic id, partition and the rest of a full object name; None when it is not in any partition's folder."""
    match = _FOLDER.match(name)
    if match is None:
        return None
    try:
        topic_id = uuid_from_text(match.group(1))
    except ValueError:
        return None
    return topic_id, int(match.group(2)), name[match.end() :]
