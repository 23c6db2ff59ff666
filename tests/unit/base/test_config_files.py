"""Files in the form of server.properties, and variables."""

from __future__ import annotations

from pathlib import Path

import pytest

from appliance.base.config_files import MAX_FILE_BYTES, parse_properties, read_environment, read_properties_file
from appliance.base.errors import UserError


@pytest.mark.parametrize(
    ("text", "entries"),
    [
        ("a=1\nb: 2\nc 3\n", {"a": "1", "b": "2", "c": "3"}),
        ("  a = 1 \r\nb=\n", {"a": "1 ", "b": ""}),
        ("# a comment\n! another\n\n   # a third\na=1", {"a": "1"}),
        ("a=1,\\\n   2,\\\n   3\nb=4", {"a": "1,2,3", "b": "4"}),
        ("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
        ("a=x=y:z", {"a": "x=y:z"}),
        ("a\\ b=1\na\\=b=2", {"a b": "1", "a=b": "2"}),
        ("a=\\u00e4\\t\\q", {"a": "ä\tq"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=1\\\n# not a comment", {"a": "1# not a comment"}),
        ("a", {"a": ""}),
        ("listeners=PLAINTEXT://:9092", {"listeners": "PLAINTEXT://:9092"}),
        ("", {}),
        ("a=\\", {"a": ""}),
    ],
)
def test_properties_are_read_as_java_reads_them(text: str, entries: dict[str, str]) -> None:
    assert parse_properties(text) == entries


def test_a_broken_escape_is_an_error_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text("a=\\u12g4")
    with pytest.raises(UserError, match=r"server\.properties"):
        read_properties_file(path)


def test_a_file_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="No such file"):
        read_properties_file(tmp_path / "nowhere")
    latin = tmp_path / "latin"
    latin.write_bytes(b"a=\xe4")
    with pytest.raises(UserError, match="not UTF-8"):
        read_properties_file(latin)
    huge = tmp_path / "huge"
    huge.write_bytes(b"#" * (MAX_FILE_BYTES + 1))
    with pytest.raises(UserError, match="at most"):
        read_properties_file(huge)


def test_variables_are_keys_in_capitals() -> None:
    environment = {"APPLIANCE_LOG_RETENTION_MS": "5", "LOG_RETENTION_MS": "6", "APPLIANCE_NO_SUCH": "7"}
    assert read_environment(environment, ["log.retention.ms"]) == {"log.retention.ms": "5", "no.such": "7"}
