"""Values to bytes and back. Known by Connect's Java class names, their short names, or a Python path."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Protocol

from connectors.api import ConfigError, ConnectError


class Converter(Protocol):
    """One direction each; None stays None (no key, a tombstone)."""

    def to_bytes(self, value: Any) -> bytes | None: ...

    def from_bytes(self, data: bytes | None) -> Any: ...


class StringConverter:
    """Text in UTF-8."""

    def to_bytes(self, value: Any) -> bytes | None:
        return None if value is None else str(value).encode()

    def from_bytes(self, data: bytes | None) -> Any:
        if data is None:
            return None
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise ConnectError(f"not UTF-8 text: {error}") from None


class ByteArrayConverter:
    """The bytes as they are."""

    def to_bytes(self, value: Any) -> bytes | None:
        if value is None or isinstance(value, bytes):
            return value
        raise ConnectError(f"ByteArrayConverter takes bytes, not {type(value).__name__}")

    def from_bytes(self, data: bytes | None) -> Any:
        return data


class JsonConverter:
    """JSON; with `schemas.enable` (Connect's default) as `{"schema", "payload"}`, of which the payload counts."""

    def __init__(self, schemas: bool) -> None:
        self._schemas = schemas

    def to_bytes(self, value: Any) -> bytes | None:
        if value is None:
            return None
        content = {"schema": None, "payload": value} if self._schemas else value
        try:
            return json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode()
        except (TypeError, ValueError) as error:
            raise ConnectError(f"not a JSON value: {error}") from None

    def from_bytes(self, data: bytes | None) -> Any:
        if data is None:
            return None
        try:
            content = json.loads(data)
        except ValueError as error:
            raise ConnectError(f"not JSON: {error}") from None
        if not self._schemas:
            return content
        if not isinstance(content, dict) or "payload" not in content:
            raise ConnectError('JsonConverter with schemas.enable takes {"schema": ..., "payload": ...}')
        return content["payload"]


_NAMES = {
    "org.apache.kafka.connect.storage.StringConverter": "string",
    "StringConverter": "string",
    "org.apache.kafka.connect.converters.ByteArrayConverter": "bytes",
    "ByteArrayConverter": "bytes",
    "org.apache.kafka.connect.json.JsonConverter": "json",
    "JsonConverter": "json",
}


def converter_for(config: Mapping[str, str], role: str, default: str = "StringConverter") -> Converter:
    """The converter of `key` or `value` (`role`), with its own settings below `<role>.converter.`.

    Raises:
        ConfigError: the class is not known.
    """
    name = config.get(f"{role}.converter", default)
    match _NAMES.get(name):
        case "string":
            return StringConverter()
        case "bytes":
            return ByteArrayConverter()
        case "json":
            return JsonConverter(config.get(f"{role}.converter.schemas.enable", "true").lower() == "true")
        case _:
            known = ", ".join(sorted(short for short in _NAMES if "." not in short))
            raise ConfigError({f"{role}.converter": f"{name} is not known; there are {known}"})
