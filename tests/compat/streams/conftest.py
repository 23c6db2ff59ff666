"""What the tests of Kafka Streams share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.compat import Server
from tests.support.programs import RunningProgram, java_program
from tests.support.streams_programs import Start


@pytest.fixture
def start(server: Server) -> Iterator[Start]:
    """`start(topology, name=value…)`: Streams.java, ended with the test at the latest."""
    command = java_program(Path(__file__).parent, "Streams")
    started: list[RunningProgram] = []

    def start(topology: str, **given: object) -> RunningProgram:
        arguments = (f"{name}={value}" for name, value in given.items())
        started.append(RunningProgram([*command, server.bootstrap_servers, topology, *arguments]))
        return started[-1]

    yield start
    for each in started:
        each.kill()
