from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.fault_proxy import FaultProxy
from tests.support.moto_server import MotoServer


@pytest.fixture(scope="session")
def moto() -> Iterator[MotoServer]:
    with MotoServer() as server:
        yield server


@pytest.fixture
def proxy(moto: MotoServer) -> Iterator[FaultProxy]:
    with FaultProxy(moto.port) as proxy:
        yield proxy
