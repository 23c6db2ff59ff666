"""Run the clients' suites against the appliance and against Apache Kafka, and write what passed into docs/compat.md.

    python -m tests.support.compat_table                  every suite, on both sides
    python -m tests.support.compat_table kafkajs sarama   these suites; the others' rows stay as they are
    python -m tests.support.compat_table --only ours      no Apache Kafka; the table stays as it is

It ends with 1 when a test fails here, or passes there and is not passed here.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from tests.support.kafka_jars import KAFKA_VERSION
from tests.support.repo import REPO

SUITES = REPO / "tests" / "compat"
DOCUMENT = REPO / "docs" / "compat.md"
DIFFERENCES = REPO / "docs" / "differences.md"
BEGIN, END = "<!-- written by make compat -->", "<!-- end -->"
HEAD = (
    "| Client | Version | Passed here | Passed on Apache Kafka | Only asked of one | Differences | As of |\n"
    "| --- | --- | --- | --- | --- | --- | --- |\n"
)
SIDES = {"ours": "appliance", "kafka": "kafka"}
RESULTS_VARIABLE = "COMPAT_RESULTS"
"""Names the file into which tests/compat/conftest.py writes the outcome of each test."""

Outcomes = Mapping[str, str]
"""`passed`, `failed` or `skipped` by a test's id."""


@dataclass(frozen=True)
class Client:
    title: str
    version: Callable[[Path], str]


def _of_python(name: str) -> Callable[[Path], str]:
    return lambda folder: version(name)


def _of_file(name: str, pattern: str) -> Callable[[Path], str]:
    def read(folder: Path) -> str:
        found = re.search(pattern, (folder / name).read_text())
        assert found, f"{folder / name} names no version"
        return found[1]

    return read


def _of_kcat(folder: Path) -> str:
    said = subprocess.run(["kcat", "-V"], capture_output=True, text=True, timeout=30, check=False).stdout
    found = re.search(r"[Vv]ersion (\d\S*)", said)
    return found[1] if found else "unknown"


def _of_kafka(folder: Path) -> str:
    return KAFKA_VERSION


CLIENTS: dict[str, Client] = {
    "confluent": Client("confluent-kafka, librdkafka", _of_python("confluent-kafka")),
    "kafka_python": Client("kafka-python", _of_python("kafka-python")),
    "aiokafka": Client("aiokafka", _of_python("aiokafka")),
    "kcat": Client("kcat", _of_kcat),
    "java": Client("Apache Kafka's command-line tools", _of_kafka),
    "streams": Client("Kafka Streams", _of_kafka),
    "connect": Client("Kafka Connect, MirrorMaker 2", _of_kafka),
    "kafkajs": Client("kafkajs (JavaScript)", _of_file("package.json", r'"kafkajs": "([^"]+)"')),
    "sarama": Client("sarama (Go)", _of_file("go.mod", r"IBM/sarama v(\S+)")),
    "franz_go": Client("franz-go (Go)", _of_file("go.mod", r"twmb/franz-go v(\S+)")),
    "rskafka": Client("rskafka (Rust)", _of_file("Cargo.toml", r'rskafka = "=([^"]+)"')),
    "spark_kafka": Client(
        "Spark's Kafka source", _of_file("../../benchmarks/spark_peer.py", r'SPARK_VERSION = "([^"]+)"')
    ),
    "security": Client("TLS and SASL with several clients", _of_python("confluent-kafka")),
    "differential": Client("bare requests, answers compared", _of_kafka),
}


def row(client: str, ours: Outcomes, theirs: Outcomes, as_of: str, client_version: str) -> str:
    """The line of a client. A difference is a test that Apache Kafka passes and we do not."""
    here = {test for test, outcome in ours.items() if outcome == "passed"}
    there = {test for test, outcome in theirs.items() if outcome == "passed"}
    asked_here = {test for test, outcome in ours.items() if outcome != "skipped"}
    asked_there = {test for test, outcome in theirs.items() if outcome != "skipped"}
    differences = ", ".join(f"`{test.rpartition('::')[2]}`" for test in sorted(there - here)) or "none"
    cells = (
        CLIENTS[client].title,
        client_version,
        f"{len(here)} of {len(asked_here)}",
        f"{len(there)} of {len(asked_there)}",
        str(len(asked_here ^ asked_there)),
        differences,
        as_of,
    )
    return "| " + " | ".join(cells) + " |"


def with_rows(document: str, rows: Mapping[str, str]) -> str:
    """The document with these clients' lines; lines of others stay."""
    begin, end = document.index(BEGIN) + len(BEGIN), document.index(END)
    kept = dict(re.findall(r"^(\| ([^|]+) \|.*)$", document[begin:end], re.MULTILINE))
    titles = {title: line for line, title in kept.items()}
    lines = [rows.get(name) or titles.get(client.title, "") for name, client in CLIENTS.items()]
    table = HEAD + "".join(f"{line}\n" for line in lines if line)
    return f"{document[:begin]}\n{table}{document[end:]}"


def by_client(outcomes: Outcomes) -> dict[str, dict[str, str]]:
    """Results of suites; the file that stands beside them belongs to none."""
    sorted_out: dict[str, dict[str, str]] = {}
    for test, outcome in outcomes.items():
        client = test.removeprefix("tests/compat/").partition("/")[0]
        if client in CLIENTS:
            sorted_out.setdefault(client, {})[test] = outcome
    return sorted_out


def run_suites(side: str, clients: list[str]) -> tuple[int, dict[str, dict[str, str]]]:
    paths = [str(SUITES / client) for client in clients] or [str(SUITES)]
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder, "results.json")
        environment = {**os.environ, "COMPAT_SERVER": SIDES[side], RESULTS_VARIABLE: str(results)}
        command = [sys.executable, "-m", "pytest", *paths]
        code = subprocess.run(command, cwd=REPO, env=environment, check=False).returncode
        return code, by_client(json.loads(results.read_text()) if results.exists() else {})


def differences_written_down() -> int:
    return len(re.findall(r"^(?:- |\| `)", DIFFERENCES.read_text(), re.MULTILINE))


def _as_of() -> str:
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=REPO, capture_output=True, text=True, check=False
    ).stdout.strip()
    return f"{datetime.date.today().isoformat()}, {commit or 'no commit'}"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("clients", nargs="*", metavar="CLIENT", help=", ".join(CLIENTS))
    parser.add_argument("--only", choices=SIDES)
    given = parser.parse_args(arguments)
    if not CLIENTS.keys() >= set(given.clients):
        parser.error(f"clients are {', '.join(CLIENTS)}")
    code, ours = run_suites("ours", given.clients) if given.only != "kafka" else (0, {})
    _, theirs = run_suites("kafka", given.clients) if given.only != "ours" else (0, {})
    if given.only:
        return code
    as_of = _as_of()
    rows = {
        client: row(client, ours.get(client, {}), theirs[client], as_of, CLIENTS[client].version(SUITES / client))
        for client in theirs
    }
    DOCUMENT.write_text(with_rows(DOCUMENT.read_text(), rows))
    print("\n".join(rows.values()))
    print(f"{differences_written_down()} differences are written down in {DIFFERENCES.relative_to(REPO)}")
    missing = [test for client in theirs for test, outcome in theirs[client].items() if outcome == "passed"
               and ours.get(client, {}).get(test) != "passed"]  # fmt: skip
    return code or (1 if missing else 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
