"""Whose a data directory is, who holds it now, and how it was left the last time.

```
DIR/lock               held as long as the broker lives
DIR/meta.properties    cluster.id, node.id, directory.id, version=1
DIR/boot-id            of the host's boot in which the directory was last used
DIR/.kafka_cleanshutdown   {"version":0,"brokerEpoch":n}; there only between a clean stop and the next start
```
"""

from __future__ import annotations

import fcntl
import json
import os
import uuid
from enum import Enum
from pathlib import Path

from appliance.base.disk import Disk
from appliance.base.errors import UserError
from appliance.base.ids import is_usable_uuid, uuid_from_text, uuid_to_text
from appliance.base.randomness import Randomness, random_uuid
from appliance.log.checkpoints import META_PROPERTIES_FILE, read_file, read_properties, replace_file, write_properties

LOCK_FILE = "lock"
BOOT_ID_FILE = "boot-id"
CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"
FOLDER_EXIT_CODE = 3
_BOOT_ID_SOURCE = Path("/proc/sys/kernel/random/boot_id")


class Shutdown(Enum):
    """How a directory was left the last time: what a broker reports when it registers."""

    CLEAN = "clean"
    SAME_BOOT = "same-boot"
    """The process died, but the host did not: what was written is in the page cache."""
    UNCLEAN = "unclean"
    EMPTY = "empty"


def host_boot_id() -> str:
    """An id of this boot of the host, "" where it cannot be known."""
    try:
        return _BOOT_ID_SOURCE.read_text().strip()
    except OSError:
        return ""


class DirectoryLock:
    """The right to use a data directory, held until `release` or the end of the process."""

    def __init__(self, directory: Path) -> None:
        """Make the directory if need be, and lock it.

        Raises:
            OSError: the folder cannot be used.
            UserError: another process holds it (exit code 3).
        """
        directory.mkdir(parents=True, exist_ok=True)
        self._descriptor = os.open(directory / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._descriptor)
            raise UserError(f"another process uses the data folder {directory}", FOLDER_EXIT_CODE) from error

    def release(self) -> None:
        os.close(self._descriptor)


def read_identity(disk: Disk, path: Path, cluster_id: str, broker_id: int) -> uuid.UUID | None:
    """The id of the directory; None of one that is new.

    Raises:
        UserError: it belongs to another (exit code 3).
        OSError: it cannot be read.
    """
    stored = read_properties(disk, path / META_PROPERTIES_FILE)
    if stored is None:
        return None

    def refuse(what: str) -> UserError:
        return UserError(f"the data folder {path} {what}", FOLDER_EXIT_CODE)

    if stored.get("cluster.id") != cluster_id:
        raise refuse(f"belongs to cluster {stored.get('cluster.id')}, not {cluster_id}")
    if stored.get("node.id") != str(broker_id):
        raise refuse(f"belongs to broker {stored.get('node.id')}, not {broker_id}")
    try:
        return uuid_from_text(stored.get("directory.id", ""))
    except ValueError:
        raise refuse(f"has no directory.id in {META_PROPERTIES_FILE}") from None


def take_identity(disk: Disk, path: Path, cluster_id: str, broker_id: int, randomness: Randomness) -> uuid.UUID:
    """Give a new directory an id of its own. Raises OSError."""
    directory_id = random_uuid(randomness)
    while not is_usable_uuid(directory_id):
        directory_id = random_uuid(randomness)
    properties = {
        "cluster.id": cluster_id,
        "directory.id": uuid_to_text(directory_id),
        "node.id": str(broker_id),
        "version": "1",
    }
    write_properties(disk, path / META_PROPERTIES_FILE, properties)
    return directory_id


def take_last_shutdown(disk: Disk, path: Path, boot_id: str) -> Shutdown:
    """How a directory that is not new was left; from now on it counts as in use. Raises OSError."""
    clean_path = path / CLEAN_SHUTDOWN_FILE
    if disk.exists(clean_path):
        # From now on a crash would be one: the mark goes before anything is written.
        disk.unlink(clean_path)
        return Shutdown.CLEAN
    last_boot_id = (read_file(disk, path / BOOT_ID_FILE) or b"").decode("ascii", "replace").strip()
    return Shutdown.SAME_BOOT if boot_id and last_boot_id == boot_id else Shutdown.UNCLEAN


def note_boot(disk: Disk, path: Path, boot_id: str) -> None:
    """Note in which boot of the host the directory is used. Raises OSError."""
    replace_file(disk, path / BOOT_ID_FILE, f"{boot_id}\n".encode())


def mark_clean(disk: Disk, path: Path, broker_epoch: int) -> None:
    """The last thing of a clean end. Raises OSError."""
    content = json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":"))
    replace_file(disk, path / CLEAN_SHUTDOWN_FILE, content.encode())
