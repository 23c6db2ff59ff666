from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.moto_server import MotoServer
from tests.support.store_peers import AzureStorage, GoogleStorage


@pytest.fixture(scope="session")
def moto() -> Iterator[MotoServer]:
    with MotoServer() as server:
        yield server


@pytest.fixture(scope="session")
def google() -> Iterator[GoogleStorage]:
    with GoogleStorage() as server:
        yield server


@pytest.fixture(scope="session")
def azure() -> Iterator[AzureStorage]:
    with AzureStorage() as server:
        yield server
