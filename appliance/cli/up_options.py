"""What `appliance up` runs with: flag > `APPLIANCE_…` variable > file > default."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from appliance.base.config import BROKER_CONFIGS, definition_of, unknown_key_message
from appliance.base.config_definitions_up import UP_CONFIGS
from appliance.base.config_files import read_environment, read_properties_file
from appliance.base.config_types import BadValue, ConfigKey
from appliance.base.errors import UserError
from appliance.broker_actors.plan import ApplianceSettings

ALL_KEYS: dict[str, ConfigKey] = {**BROKER_CONFIGS, **UP_CONFIGS}
CONFIG_VARIABLE = "APPLIANCE_CONFIG"


def resolve(
    flags: Mapping[str, str | None], environment: Mapping[str, str], config_file: Path | None
) -> tuple[ApplianceSettings, list[str]]:
    """The settings, and warnings for the user.

    Args:
        flags: by key (`data.dir`); None where a flag was not given.
        environment: of this process.
        config_file: from `--config`; else the one that `APPLIANCE_CONFIG` names.

    Raises:
        UserError: an unknown key (names the nearest), a value that its key does not take, an unreadable file.
    """
    if config_file is None and environment.get(CONFIG_VARIABLE):
        config_file = Path(environment[CONFIG_VARIABLE])
    variables = {name: text for name, text in environment.items() if name != CONFIG_VARIABLE}
    layers = [
        read_properties_file(config_file) if config_file is not None else {},
        read_environment(variables, ALL_KEYS),
        {name: text for name, text in flags.items() if text is not None},
    ]
    merged: dict[str, str] = {}
    for layer in layers:
        merged.update(_with_up_keys(layer))
    warnings = []
    for name in merged:
        key = ALL_KEYS.get(name) or definition_of(name)
        if key is None:
            raise UserError(unknown_key_message(name, ALL_KEYS))
        if key.no_effect:
            warnings.append(f"{name} has no effect: {key.no_effect}")

    def value(name: str) -> Any:
        try:
            return UP_CONFIGS[name].parse(merged[name]) if name in merged else UP_CONFIGS[name].default
        except BadValue as error:
            raise UserError(str(error)) from None

    log_dirs = [Path(folder) for folder in merged.get("log.dirs", "").split(",") if folder]
    settings = ApplianceSettings(
        data_dir=Path(value("data.dir")),
        brokers=value("brokers"),
        controllers=value("controllers") or 0,
        host=value("host"),
        advertised_host=value("advertised.host") or "",
        port=value("port"),
        http_port=value("http.port"),
        connect_port=value("connect.port"),
        runtime=value("runtime"),
        ray_address=value("ray.address") or "",
        object_store=merged.get("object.store.url", ""),
        insecure=value("insecure"),
        services=value("services"),
        log_level=value("log.level"),
        properties={name: text for name, text in merged.items() if definition_of(name) and name != "log.dirs"},
        log_dirs=tuple(log_dirs),
    )
    return settings.checked(), warnings


def _with_up_keys(layer: Mapping[str, str]) -> dict[str, str]:
    """Kafka's names for what `up` decides, in ours; one of ours in the same layer goes before them."""
    entries = dict(layer)
    derived: dict[str, str] = {}
    if "listeners" in entries and (plain := _only_plain(entries["listeners"])) is not None:
        del entries["listeners"]
        derived["port"] = str(plain[1])
        if plain[0]:
            derived["host"] = plain[0]
        if "advertised.listeners" in entries and (told := _only_plain(entries["advertised.listeners"])) is not None:
            del entries["advertised.listeners"]
            derived["advertised.host"] = told[0]
    for name in ("log.dir", "log.dirs"):
        if name in entries:
            folders = [folder.strip() for folder in entries.pop(name).split(",") if folder.strip()]
            if not folders:
                raise UserError(f"{name}: no folder")
            # One alone is the folder of everything; of several the first is. Unless that is named beside them.
            derived["data.dir"] = folders[0]
            derived["log.dirs"] = ",".join(folders) if len(folders) > 1 or "data.dir" in entries else ""
    return {**derived, **entries}


def _only_plain(text: str) -> tuple[str, int] | None:
    """Host and port of the only listener for clients, where that is PLAINTEXT; its brokers need no names."""
    listeners = [part.strip() for part in text.split(",") if part.strip()]
    clients = [part for part in listeners if not part.upper().startswith("CONTROLLER:")]
    if len(clients) != 1 or not clients[0].upper().startswith("PLAINTEXT://"):
        return None
    host, _, port = clients[0].partition("://")[2].rpartition(":")
    if not port.isascii() or not port.isdigit():
        raise UserError(f"listeners: {clients[0]!r} is not NAME://host:port")
    return host.strip("[]"), int(port)
