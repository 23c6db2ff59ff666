"""The pages of docs/ that follow from the definitions: `python -m appliance.base.config_documents docs` writes them.

docs/configuration.md is written as a whole; in docs/differences.md only what stands between the two marks.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from appliance.base.config import BROKER_CONFIGS, TOPIC_CONFIGS
from appliance.base.config_definitions_broker import KAFKA_BROKER_CONFIGS
from appliance.base.config_definitions_up import UP_CONFIGS
from appliance.base.config_differences import DIFFERENT_DEFAULTS
from appliance.base.config_types import ConfigKey

BEGIN_MARK = "<!-- written by appliance.base.config_documents -->"
END_MARK = "<!-- end -->"

_INTRODUCTION = """# Configuration

This page is written by `python -m appliance.base.config_documents docs` from the definitions in `appliance/base/`.

`appliance up` takes each key from the first place that names it: a flag, a variable, the file of `--config`, the
default below. A variable is the key in capitals with underscores behind `APPLIANCE_`: `APPLIANCE_LOG_RETENTION_MS` is
`log.retention.ms`. The file has the form of Kafka's server.properties. A key that does not exist ends the start with
one line that names the nearest one. Kafka's `listeners` and `advertised.listeners` with one PLAINTEXT listener mean
`host` and `port`, and `advertised.host`; [security](security.md) tells of several, and of keys for one of them alone;
`log.dirs` means `data.dir` when it names one folder and no `data.dir` stands beside it.

Names, types, defaults and limits are those of Apache Kafka 4.3 where Kafka has the key; [what
differs](differences.md) has its reasons.

Between the keys of leases must hold: twice `broker.heartbeat.interval.ms` plus `broker.loop.stall.max.ms` is less than
`broker.lease.ms`, or healthy brokers are fenced; `broker.lease.margin.ms` is above twice the error of the clocks' rates
over a lease, or a broker may still serve when its successor begins.
"""


def configuration_page() -> str:
    """The text of docs/configuration.md."""
    honoured = [key for key in KAFKA_BROKER_CONFIGS.values() if not key.no_effect]
    ignored = [key for key in KAFKA_BROKER_CONFIGS.values() if key.no_effect]
    parts = [
        _INTRODUCTION,
        "## `appliance up`\n\nEach is also a flag: `data.dir` is `--data-dir`.\n",
        _table(UP_CONFIGS.values()),
        "## Topics\n\nSet when a topic is created or altered. The broker config in the last column gives the default "
        "of all topics.\n",
        _topic_table(TOPIC_CONFIGS.values()),
        "## Brokers and gateways: leases, tiering, limits\n\nKafka has none of these.\n",
        _table(key for key in BROKER_CONFIGS.values() if key.ours),
        "## Brokers: as in Kafka\n\nThose marked with * may be altered while the cluster runs.\n",
        _table(honoured),
        "## Without effect\n\nTaken from files and shown by tools, so that a server.properties carries over; setting "
        "one logs a warning.\n",
        _rows(("Key", "Why"), [(f"`{key.name}`", key.no_effect) for key in ignored]),
    ]
    return "\n".join(parts)


def differences_table() -> str:
    """The generated part of docs/differences.md."""
    rows = []
    for name, difference in DIFFERENT_DEFAULTS.items():
        key = TOPIC_CONFIGS.get(name) or BROKER_CONFIGS[name]
        rows.append((f"`{name}`", _code(difference.kafka), _default(key), difference.reason))
    return _rows(("Key", "Kafka's default", "Ours", "Why"), rows)


def _table(keys: Iterable[ConfigKey]) -> str:
    rows = [
        (
            f"`{key.name}`" + ("*" if key.dynamic else ""),
            key.type.name.lower(),
            _default(key),
            key.allowed,
            key.doc + (" For tests." if key.internal else ""),
        )
        for key in keys
    ]
    return _rows(("Key", "Type", "Default", "Allowed", "Meaning"), rows)


def _topic_table(keys: Iterable[ConfigKey]) -> str:
    rows = [
        (
            f"`{key.name}`",
            key.type.name.lower(),
            _default(key),
            key.allowed,
            key.doc,
            ", ".join(f"`{synonym}`" for synonym in key.synonyms),
        )
        for key in keys
    ]
    return _rows(("Key", "Type", "Default", "Allowed", "Meaning", "Default of all topics"), rows)


def _default(key: ConfigKey) -> str:
    return _code(key.text(key.default))


def _code(text: str | None) -> str:
    """A default as people read it: nothing set is a dash, an empty list says so."""
    if text is None:
        return "–"
    return f"`{text}`" if text else "empty"


def _rows(header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [header, tuple("---" for _ in header), *rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)


def write_pages(folder: Path) -> None:
    """Write the pages anew.

    Raises:
        OSError, ValueError: docs/differences.md is not there, or its marks are not.
    """
    (folder / "configuration.md").write_text(configuration_page(), "utf-8")
    page = folder / "differences.md"
    text = page.read_text("utf-8")
    before, after = text[: text.index(BEGIN_MARK)], text[text.index(END_MARK) :]
    page.write_text(f"{before}{BEGIN_MARK}\n{differences_table()}{after}", "utf-8")


if __name__ == "__main__":
    write_pages(Path(sys.argv[1]))
