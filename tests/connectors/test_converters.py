"""Converters and plugins by the names that Kafka Connect's configs use."""

from __future__ import annotations

import pytest

from connectors.api import ConfigError, ConnectError
from connectors.converters import converter_for
from connectors.plugins import connector_class
from connectors.sinks.objects import ObjectSink
from connectors.sources.file import FileSource


def test_strings_json_and_bytes_go_there_and_back() -> None:
    text = converter_for({"value.converter": "org.apache.kafka.connect.storage.StringConverter"}, "value")
    assert (text.to_bytes("grün"), text.from_bytes("grün".encode())) == ("grün".encode(), "grün")
    plain = converter_for({"key.converter": "JsonConverter", "key.converter.schemas.enable": "false"}, "key")
    assert (plain.to_bytes({"a": [1, "ü"]}), plain.from_bytes(b'{"a":1}')) == ('{"a":[1,"ü"]}'.encode(), {"a": 1})
    whole = converter_for({"value.converter": "org.apache.kafka.connect.json.JsonConverter"}, "value")
    assert whole.from_bytes(whole.to_bytes([1])) == [1]
    raw = converter_for({"value.converter": "ByteArrayConverter"}, "value")
    assert raw.from_bytes(raw.to_bytes(b"\xff")) == b"\xff"


def test_nothing_stays_nothing() -> None:
    for name in ("StringConverter", "JsonConverter", "ByteArrayConverter"):
        converter = converter_for({"value.converter": name}, "value")
        assert converter.to_bytes(None) is None and converter.from_bytes(None) is None


def test_what_cannot_be_converted_is_an_error() -> None:
    with pytest.raises(ConnectError, match="not JSON"):
        converter_for({"value.converter": "JsonConverter"}, "value").from_bytes(b"{")
    with pytest.raises(ConnectError, match="payload"):
        converter_for({"value.converter": "JsonConverter"}, "value").from_bytes(b"{}")
    with pytest.raises(ConnectError, match="UTF-8"):
        converter_for({}, "value").from_bytes(b"\xff")
    with pytest.raises(ConfigError, match="AvroConverter is not known"):
        converter_for({"value.converter": "io.confluent.connect.avro.AvroConverter"}, "value")


def test_connectors_are_found_by_java_class_short_name_and_python_path() -> None:
    for name in (
        "org.apache.kafka.connect.file.FileStreamSourceConnector",
        "FileStreamSourceConnector",
        "FileStreamSource",
        "FileSource",
        "connectors.sources.file:FileSource",
    ):
        assert connector_class(name) is FileSource
    assert connector_class("io.confluent.connect.s3.S3SinkConnector") is ObjectSink
    with pytest.raises(ConfigError, match="not known"):
        connector_class("com.example.Missing")
    with pytest.raises(ConfigError, match="cannot be loaded"):
        connector_class("nowhere.at.all:Thing")
    with pytest.raises(ConfigError, match="is not a connector"):
        connector_class("json:JSONDecoder")
