"""The object store goes away under load: records flow on, nothing acknowledged is lost, and all comes back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.chaos import PARTITIONS, TOPIC_CONFIGS, ChaosCluster, stock_loads, wait_for_progress
from tests.support.fault_proxy import FaultProxy
from tests.support.loads import Load, check
from tests.support.moto_server import MotoServer
from tests.support.replicated import until
from tests.support.status import status_of

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def moto() -> Iterator[MotoServer]:
    with MotoServer() as server:
        yield server


@pytest.fixture(scope="module")
def store(moto: MotoServer) -> Iterator[FaultProxy]:
    """What stands before the bucket, and may refuse."""
    with FaultProxy(moto.port) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def cluster(moto: MotoServer, store: FaultProxy, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChaosCluster]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**moto.environment, "AWS_ENDPOINT_URL": store.endpoint_url}.items():
            patch.setenv(name, value)
        folder = tmp_path_factory.mktemp("store")
        with ChaosCluster(folder, store=f"s3://{moto.bucket()}/appliance") as running:
            yield running


@pytest.fixture
def loads(cluster: ChaosCluster, request: pytest.FixtureRequest) -> Iterator[list[Load]]:
    topics = [f"{request.node.name[:40]}-{number}" for number in range(3)]
    for topic in topics:
        cluster.create(topic, PARTITIONS, **TOPIC_CONFIGS)
    running = stock_loads(cluster.bootstrap_servers, topics)
    for load in running:
        load.thread.start()
    wait_for_progress(running)
    yield running
    for load in running:
        load.stopping.set()


def go_away(store: FaultProxy, cluster: ChaosCluster) -> None:
    store.rule = lambda method, path: "reset"

    def told() -> bool:
        return any("object store" in line for line in status_of(cluster.bootstrap_servers)["problems"])

    until(told, "status to tell of the store")


def come_back(store: FaultProxy, cluster: ChaosCluster, loads: list[Load]) -> None:
    store.rule = lambda method, path: None
    wait_for_progress(loads)
    until(lambda: status_of(cluster.bootstrap_servers)["problems"] == [], "all to be well", 60)


def end(cluster: ChaosCluster, loads: list[Load]) -> None:
    for load in loads:
        load.stop()
        check(load, cluster.read(load.topic, PARTITIONS))


def test_brokers_go_on_and_status_says_so(store: FaultProxy, cluster: ChaosCluster, loads: list[Load]) -> None:
    go_away(store, cluster)
    wait_for_progress(loads)
    come_back(store, cluster, loads)
    end(cluster, loads)


def test_a_leader_that_dies_meanwhile_is_replaced_when_the_store_is_back(
    store: FaultProxy, cluster: ChaosCluster, loads: list[Load]
) -> None:
    victim = cluster.leader(loads[0].topic)
    go_away(store, cluster)
    cluster.kill(victim)
    assert cluster.state(loads[0].topic).leader == victim, "nobody is elected without a commit"
    store.rule = lambda method, path: None
    wait_for_progress(loads)
    cluster.start(victim)
    come_back(store, cluster, loads)
    end(cluster, loads)


def test_a_controller_that_dies_meanwhile_is_replaced_when_the_store_is_back(
    store: FaultProxy, cluster: ChaosCluster, loads: list[Load]
) -> None:
    number = cluster.active_controller()
    go_away(store, cluster)
    cluster.kill_controller(number)
    store.rule = lambda method, path: None
    wait_for_progress(loads)
    assert cluster.active_controller() != number
    cluster.begin_controller(number)
    come_back(store, cluster, loads)
    end(cluster, loads)
