"""What commands need for secured brokers: `--command-config`, a file of client configs as Kafka's own tools take it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from appliance.client.security import ClientSecurity

_file: Path | None = None
_read: dict[Path, ClientSecurity] = {}


def use(file: Path | None) -> None:
    """Take over what the command line said."""
    global _file
    _file = file


def security() -> ClientSecurity:
    """What the file says; nothing without one.

    Raises:
        UserError: it cannot be read, or names what is not known here.
    """
    # Here and not above: `--help` needs no client.
    from appliance.base.config_files import read_properties_file
    from appliance.client.security import PLAIN, client_security

    if _file is None:
        return PLAIN
    if _file not in _read:
        _read[_file] = client_security(read_properties_file(_file))
    return _read[_file]
