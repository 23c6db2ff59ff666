"""One appliance for all unmodified clients: use topics and groups of your own."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.compat import AGAINST_KAFKA, Server, running_server
from tests.support.compat_table import PART_VARIABLE, RESULTS_VARIABLE, is_in_part

_outcomes: dict[str, str] = {}
_tests: list[str] = []


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Before pytest looks at names and marks: all that there is, and of it the part that is asked for."""
    _tests.extend(item.nodeid for item in items)
    part = os.environ.get(PART_VARIABLE, "")
    left_out = [item for number, item in enumerate(items) if not is_in_part(number, part)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for number, item in enumerate(items) if is_in_part(number, part)]


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """A test has passed when nothing of it failed."""
    if report.when == "call" or report.outcome != "passed":
        worst = "failed" if "failed" in (report.outcome, _outcomes.get(report.nodeid)) else report.outcome
        _outcomes[report.nodeid] = worst


def pytest_sessionfinish() -> None:
    path = os.environ.get(RESULTS_VARIABLE)
    if path:
        Path(path).write_text(json.dumps({"outcomes": _outcomes, "tests": _tests}, indent=1))


@pytest.fixture(scope="session")
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Three brokers; or Apache Kafka, where COMPAT_SERVER=kafka asks whether our expectations are Kafka's."""
    if AGAINST_KAFKA:
        peer = request.getfixturevalue("kafka_peer")
        yield Server(peer.bootstrap_servers, peer.folder / "data", brokers=1)
        return
    with running_server(tmp_path_factory.mktemp("compat")) as running:
        yield running


@pytest.fixture
def group_id() -> str:
    """Of a group that no other test has."""
    return f"group-{uuid.uuid4().hex[:12]}"
