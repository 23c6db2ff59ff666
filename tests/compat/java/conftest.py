"""What the tests of Apache Kafka's own tools share."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.support.java_tools import RunningTool


@pytest.fixture
def start() -> Iterator[Callable[..., RunningTool]]:
    """Starts tools that run until they are told to end, at the latest with the test."""
    started: list[RunningTool] = []

    def start(name: str, *arguments: str) -> RunningTool:
        started.append(RunningTool(name, *arguments))
        return started[-1]

    yield start
    for each in started:
        each.kill()
