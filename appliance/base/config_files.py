"""Configuration from files in the form of server.properties, and from environment variables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from appliance.base.errors import UserError

MAX_FILE_BYTES = 1 << 20
ENVIRONMENT_PREFIX = "APPLIANCE_"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def read_properties_file(path: Path) -> dict[str, str]:
    """The entries of a file; of a key that stands twice, the last.

    Raises:
        UserError: not readable, not UTF-8, too large, or a broken escape.
    """
    try:
        size = path.stat().st_size
        if size > MAX_FILE_BYTES:
            raise UserError(f"configuration file {path} has {size} bytes; at most {MAX_FILE_BYTES} are read")
        return parse_properties(path.read_text("utf-8"))
    except OSError as error:
        raise UserError(f"configuration file {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UserError(f"configuration file {path} is not UTF-8") from None
    except ValueError as error:
        raise UserError(f"configuration file {path}: {error}") from None


def parse_properties(text: str) -> dict[str, str]:
    """Entries in the format of java.util.Properties.

    A line is `key=value`, `key: value` or `key value`; `#` and `!` begin a comment; a backslash at the end joins the
    next line; `\\t \\n \\r \\f \\uXXXX` are escapes, any other escaped character stands for itself.

    Raises:
        ValueError: a `\\u` without four hexadecimal digits.
    """
    entries: dict[str, str] = {}
    for line in _logical_lines(text):
        key_end = _key_end(line)
        key, rest = line[:key_end], line[key_end:].lstrip(" \t\f")
        if rest[:1] in ("=", ":"):
            rest = rest[1:].lstrip(" \t\f")
        entries[_unescaped(key)] = _unescaped(rest)
    return entries


def _logical_lines(text: str) -> Iterable[str]:
    joined = ""
    joining = False
    for raw in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        line = raw.lstrip(" \t\f")
        if not joining and (not line or line[0] in "#!"):
            continue
        backslashes = len(line) - len(line.rstrip("\\"))
        joining = backslashes % 2 == 1
        joined += line[:-1] if joining else line
        if not joining:
            yield joined
            joined = ""
    if joined:
        yield joined


def _key_end(line: str) -> int:
    position = 0
    while position < len(line) and line[position] not in "=: \t\f":
        position += 2 if line[position] == "\\" else 1
    return min(position, len(line))


def _unescaped(text: str) -> str:
    if "\\" not in text:
        return text
    out: list[str] = []
    position = 0
    while position < len(text):
        character = text[position]
        position += 1
        if character != "\\" or position == len(text):
            out.append(character)
            continue
        escaped = text[position]
        position += 1
        if escaped == "u":
            digits = text[position : position + 4]
            position += 4
            try:
                out.append(chr(int(digits, 16)))
            except ValueError:
                raise ValueError(f"\\u{digits} is no character") from None
        else:
            out.append(_ESCAPES.get(escaped, escaped))
    return "".join(out)


def read_environment(environment: Mapping[str, str], keys: Iterable[str]) -> dict[str, str]:
    """Entries from variables: `APPLIANCE_LOG_RETENTION_MS` is `log.retention.ms`.

    A variable with the prefix that is no key stays in the result under its lower-case name with dots, so that whoever
    checks the entries names it as unknown.
    """
    names = {ENVIRONMENT_PREFIX + key.upper().replace(".", "_").replace("-", "_"): key for key in keys}
    return {
        names.get(variable, variable.removeprefix(ENVIRONMENT_PREFIX).lower().replace("_", ".")): text
        for variable, text in sorted(environment.items())
        if variable.startswith(ENVIRONMENT_PREFIX)
    }
