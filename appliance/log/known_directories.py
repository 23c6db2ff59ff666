"""What each data directory of a broker remembers of the others, so that a log is not begun anew where it is missed.

The metadata does not say in which directory a partition lies. When one directory cannot be used at the start, the
partitions that are missing may lie in it: they must not be made again, empty, in another one. So every directory
holds a list of all directories that the broker has ever put logs into, written before the first log comes into a new
one:

```
known-directories   0 (version) / number of lines / "<directory.id> <path when it was last used>" ...
```

A broker with a single directory writes none. To give a lost directory up for good, its line is removed from the file
in every other one while the broker is stopped.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from pathlib import Path

from appliance.base.disk import Disk
from appliance.base.ids import uuid_from_text, uuid_to_text
from appliance.log.checkpoints import CorruptCheckpoint, read_file, replace_file

KNOWN_DIRECTORIES_FILE = "known-directories"
_VERSION = "0"


def read_known_directories(disk: Disk, directory: Path) -> dict[uuid.UUID, str]:
    """Directory ids and where they were; empty when there is no list.

    Raises:
        CorruptCheckpoint: the file is not in its format.
    """
    path = directory / KNOWN_DIRECTORIES_FILE
    content = read_file(disk, path)
    if content is None:
        return {}
    lines = content.decode("utf-8", "replace").splitlines()
    if len(lines) < 2 or lines[0] != _VERSION or lines[1] != str(len(lines) - 2):
        raise CorruptCheckpoint(f"{path}: not version {_VERSION}, a number of lines, and that many lines")
    known: dict[uuid.UUID, str] = {}
    for line in lines[2:]:
        text, _, place = line.partition(" ")
        try:
            known[uuid_from_text(text)] = place
        except ValueError:
            raise CorruptCheckpoint(f"{path}: not a directory.id and its path: {line!r}") from None
    return known


def write_known_directories(disk: Disk, directory: Path, known: Mapping[uuid.UUID, str]) -> None:
    """Durable when it returns. Raises OSError."""
    lines = sorted(f"{uuid_to_text(directory_id)} {place}" for directory_id, place in known.items())
    content = "\n".join([_VERSION, str(len(lines)), *lines, ""]).encode()
    replace_file(disk, directory / KNOWN_DIRECTORIES_FILE, content)
