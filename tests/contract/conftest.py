from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.moto_server import MotoServer


@pytest.fixture(scope="session")
def moto() -> Iterator[MotoServer]:
    with MotoServer() as server:
        yield server
