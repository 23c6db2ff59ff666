"""The data folder of `appliance up`: held by one appliance at a time, and what it remembers between starts.

`DIR/lock` names the supervisor's process; the lock on it is inherited by the children, so that it is free only when the
last of them is gone. `DIR/appliance.json` holds what the next start should find again:
`{"version": 1, "controller_ports": [int], "placement": {"<broker id>": "<node>"}}`.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from appliance.base.errors import UserError

FOLDER_NOT_USABLE = 3
ORPHANS_END_S = 8.0
"""How long to wait for the children of a supervisor that was killed; they end by themselves."""
_POLL_S = 0.05
_STATE_VERSION = 1


@dataclass(slots=True)
class ApplianceState:
    """What one start leaves for the next."""

    version: int = _STATE_VERSION
    controller_ports: list[int] = field(default_factory=list)
    placement: dict[str, str] = field(default_factory=dict)


class DataFolder:
    """A data folder that this process holds.

    Raises:
        UserError(exit_code=3): it cannot be made or written, or another appliance holds it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise UserError(f"data folder {path} is not usable: {error.strerror}", FOLDER_NOT_USABLE) from None
        try:
            self._lock()
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)
            self.state = self._load()
            self.save()
        except OSError as error:
            os.close(self._descriptor)
            raise UserError(f"data folder {path} is not usable: {error.strerror}", FOLDER_NOT_USABLE) from None
        except UserError:
            os.close(self._descriptor)
            raise

    @property
    def lock_descriptor(self) -> int:
        return self._descriptor

    def save(self) -> None:
        """Write the state so that a crash leaves the old one or the new one."""
        target = self.path / "appliance.json"
        temporary = self.path / "appliance.json.tmp"
        with temporary.open("w", encoding="utf-8") as file:
            json.dump(asdict(self.state), file, indent=2, sort_keys=True)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)

    def close(self) -> None:
        """Let the folder go; children that inherited the lock still hold it."""
        with contextlib.suppress(OSError):
            os.close(self._descriptor)

    def _lock(self) -> None:
        deadline = time.monotonic() + ORPHANS_END_S
        while True:
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                holder = self._holder()
                if time.monotonic() >= deadline or (holder is not None and _is_alive(holder)):
                    whom = f" (process {holder})" if holder is not None else ""
                    raise UserError(
                        f"data folder {self.path} is in use by another appliance{whom}", FOLDER_NOT_USABLE
                    ) from None
                time.sleep(_POLL_S)

    def _holder(self) -> int | None:
        text = os.pread(self._descriptor, 20, 0).strip()
        return int(text) if text.isdigit() else None

    def _load(self) -> ApplianceState:
        path = self.path / "appliance.json"
        try:
            content = json.loads(path.read_text("utf-8"))
            if content.get("version") != _STATE_VERSION:
                raise UserError(
                    f"{path} has version {content.get('version')}; this appliance knows {_STATE_VERSION}",
                    FOLDER_NOT_USABLE,
                )
            return ApplianceState(
                controller_ports=_ports_of(content),
                placement={str(broker): str(node) for broker, node in content["placement"].items()},
            )
        except FileNotFoundError:
            return ApplianceState()
        except (ValueError, KeyError, TypeError, AttributeError):
            raise UserError(f"{path} cannot be read; remove it to begin anew", FOLDER_NOT_USABLE) from None


def _ports_of(content: dict[str, Any]) -> list[int]:
    """Appliances of one controller wrote `controller_port`."""
    if "controller_port" in content:
        return [int(content["controller_port"])]
    return [int(port) for port in content["controller_ports"]]


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
