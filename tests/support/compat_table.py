"""Run the clients' suites against the appliance and against Apache Kafka, and write what passed into docs/compat.md.

    python -m tests.support.compat_table                  every suite, on both sides
    python -m tests.support.compat_table kafkajs sarama   these suites; the others' rows stay as they are
    python -m tests.support.compat_table --only ours      on one side; what the other side passed last stays
    python -m tests.support.compat_table connect --part 1/3   every third test, from the first
    python -m tests.support.compat_table java -k quotas   tests with such names, as pytest takes it

What each test came to last, on each side and in which state of the sources, is kept in `.cache/compat/`. So a suite
may run in pieces; its row is written once each of its tests has run on both sides, and is as old as the oldest of them.

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

import confluent_kafka

from tests.support.kafka_jars import KAFKA_VERSION
from tests.support.kafka_peer import die_with_parent
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
KEPT = REPO / ".cache" / "compat"
RESULTS_VARIABLE = "COMPAT_RESULTS"
"""Names the file into which tests/compat/conftest.py writes what there is to be run, and the outcome of each test."""
PART_VARIABLE = "COMPAT_PART"

Outcomes = Mapping[str, str]
"""`passed`, `failed` or `skipped` by a test's id."""
KeptOutcomes = dict[str, tuple[str, str]]
"""Outcome, and day and commit, by a test's id."""


@dataclass(frozen=True)
class Client:
    title: str
    version: Callable[[Path], str]


def _of_python(*names: str) -> Callable[[Path], str]:
    return lambda folder: ", ".join(map(version, names))


def _of_librdkafka(folder: Path) -> str:
    return f"{version('confluent-kafka')}, {confluent_kafka.libversion()[0]}"


def _of_secured(folder: Path) -> str:
    return f"{_of_python('confluent-kafka', 'kafka-python', 'aiokafka')(folder)}, {KAFKA_VERSION}"


def _of_file(name: str, pattern: str) -> Callable[[Path], str]:
    def read(folder: Path) -> str:
        found = re.search(pattern, (folder / name).read_text())
        assert found, f"{folder / name} names no version"
        return found[1]

    return read


def _of_kcat(folder: Path) -> str:
    said = subprocess.run(["kcat", "-V"], capture_output=True, text=True, timeout=30, check=False).stdout
    found = re.search(r"[Vv]ersion (\d\S*).*librdkafka (\d\S*)", said)
    return f"{found[1]}, {found[2]}" if found else "unknown"


def _of_kafka(folder: Path) -> str:
    return KAFKA_VERSION


CLIENTS: dict[str, Client] = {
    "confluent": Client("confluent-kafka, librdkafka", _of_librdkafka),
    "kafka_python": Client("kafka-python", _of_python("kafka-python")),
    "aiokafka": Client("aiokafka", _of_python("aiokafka")),
    "kcat": Client("kcat, librdkafka", _of_kcat),
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
    "security": Client("TLS, SASL and ACLs: confluent-kafka, kafka-python, aiokafka, Kafka's tools", _of_secured),
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


def run_suites(side: str, clients: list[str], part: str, keyword: str) -> tuple[int, Outcomes, list[str]]:
    """Exit code, outcomes, and the ids of all tests of these suites, run or not."""
    paths = [str(SUITES / client) for client in clients] or [str(SUITES)]
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder, "results.json")
        told = {"COMPAT_SERVER": SIDES[side], RESULTS_VARIABLE: str(results), PART_VARIABLE: part}
        command = [sys.executable, "-m", "pytest", "--durations=8", *(["-k", keyword] if keyword else []), *paths]
        environment = {**os.environ, **told}
        code = subprocess.run(command, cwd=REPO, env=environment, check=False, preexec_fn=die_with_parent).returncode
        found = json.loads(results.read_text()) if results.exists() else {"outcomes": {}, "tests": []}
        return code, found["outcomes"], found["tests"]


def is_in_part(number: int, part: str) -> bool:
    """Whether a suite's test with this number belongs to a part such as `1/3`; every test to none."""
    if not part:
        return True
    which, of = map(int, part.split("/"))
    return number % of == which - 1


def kept_with(kept: KeptOutcomes, outcomes: Outcomes, tests: list[str], as_of: str) -> KeptOutcomes:
    """What is known after a run. A test that there is no more is forgotten."""
    known = {**kept, **{test: (outcome, as_of) for test, outcome in outcomes.items()}}
    return {test: known[test] for test in tests if test in known}


def row_of(client: str, ours: KeptOutcomes, theirs: KeptOutcomes, tests: list[str], client_version: str) -> str | None:
    """The line of a client; None while a test has not run on both sides."""
    if not tests or any(test not in side for side in (ours, theirs) for test in tests):
        return None
    as_of = min((side[test][1] for side in (ours, theirs) for test in tests), key=lambda told: told.partition(",")[0])
    outcomes = ({test: side[test][0] for test in tests} for side in (ours, theirs))
    return row(client, *outcomes, as_of, client_version)


def _kept(client: str, side: str) -> KeptOutcomes:
    path = KEPT / f"{client}.{side}.json"
    return {test: tuple(told) for test, told in json.loads(path.read_text()).items()} if path.exists() else {}


def _keep(client: str, side: str, kept: KeptOutcomes) -> None:
    KEPT.mkdir(parents=True, exist_ok=True)
    (KEPT / f"{client}.{side}.json").write_text(json.dumps(kept, indent=1))


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
    parser.add_argument("--part", default="", metavar="N/OF", help="every OF-th test of a suite, from its N-th")
    parser.add_argument("-k", dest="keyword", default="", help="tests with such names")
    given = parser.parse_args(arguments)
    if not CLIENTS.keys() >= set(given.clients):
        parser.error(f"clients are {', '.join(CLIENTS)}")
    codes, as_of = [], _as_of()
    tests: dict[str, list[str]] = {}
    for side in [given.only] if given.only else SIDES:
        code, outcomes, all_tests = run_suites(side, given.clients, given.part, given.keyword)
        codes.append(code if side == "ours" else 0)
        tests = {client: list(found) for client, found in by_client(dict.fromkeys(all_tests, "")).items()}
        for client, found in tests.items():
            _keep(client, side, kept_with(_kept(client, side), outcomes, found, as_of))
    rows: dict[str, str] = {}
    missing: list[str] = []
    for client, found in tests.items():
        ours, theirs = _kept(client, "ours"), _kept(client, "kafka")
        line = row_of(client, ours, theirs, found, CLIENTS[client].version(SUITES / client))
        if line is None:
            print(f"{client}: {sum(test in ours for test in found)} tests have run here, "
                  f"{sum(test in theirs for test in found)} on Apache Kafka, there are {len(found)}")  # fmt: skip
            continue
        rows[client] = line
        missing += [test for test in found if theirs[test][0] == "passed" and ours[test][0] == "failed"]
    DOCUMENT.write_text(with_rows(DOCUMENT.read_text(), rows))
    print("\n".join(rows.values()))
    print(f"{differences_written_down()} differences are written down in {DIFFERENCES.relative_to(REPO)}")
    return next(filter(None, codes), 0) or (1 if missing else 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
