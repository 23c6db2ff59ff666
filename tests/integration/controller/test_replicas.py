"""Leaders that move between lines of brokers, a standby that takes over, and the look at a broker's port."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from appliance.base.errors import UserError
from appliance.broker_actors.controller_probes import broker_is_gone
from appliance.controller.records import PartitionState
from appliance.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from appliance.wire.messages.elect_leaders import ElectLeadersRequest
from tests.support.broker import running_cluster
from tests.support.controller import ControllerProcess, ControllerThread, LineOfABroker, wait_for

Lines = Callable[..., LineOfABroker]


@pytest.fixture
def ending() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def line(tmp_path: Path, ending: ExitStack) -> Lines:
    def start(broker_id: int, *controllers: Any) -> LineOfABroker:
        addresses = [controller.address for controller in controllers]
        made = LineOfABroker(broker_id, addresses, tmp_path / f"broker-{broker_id}")
        ending.callback(made.die)
        return made

    return start


def create(broker: LineOfABroker, name: str, replicas: int) -> None:
    topic = CreatableTopic(name=name, num_partitions=3, replication_factor=replicas)
    response = broker.call(CreateTopicsRequest(topics=[topic]))
    assert response.topics[0].error_code == 0
    wait_for(lambda: name in broker.image.topics, "the topic is there")


def states(broker: LineOfABroker, topic: str) -> tuple[PartitionState, ...]:
    return broker.image.topics[topic].partitions


def test_a_broker_that_stops_hands_over_first_and_its_leaders_come_home(
    tmp_path: Path, ending: ExitStack, line: Lines
) -> None:
    controller = ControllerThread(str(tmp_path / "store"))
    ending.callback(controller.close)
    controller.wait_until_active()
    brokers = [line(broker_id, controller) for broker_id in (1, 2, 3)]
    for one in brokers:
        wait_for(one.is_unfenced, f"broker {one.broker_id} is unfenced")
    first = brokers[0]
    create(first, "t", 3)
    wait_for(lambda: "t" in brokers[1].image.topics, "all know")
    brokers[2].shut_down()
    assert brokers[2].may_stop.wait(5)
    wait_for(lambda: first.image.brokers[3].fenced, "the cluster knows")
    assert all(state.leader in (1, 2) and set(state.isr) == {1, 2} for state in states(first, "t"))
    status = controller.status()
    assert (status.offline_partitions, status.under_replicated_partitions) == (0, 3)
    again = line(3, controller)
    wait_for(again.is_unfenced, "it is back")
    response = first.call(ElectLeadersRequest(topic_partitions=None))
    rows = [row for topic in response.replica_election_results for row in topic.partition_result]
    assert rows, "one partition prefers broker 3"
    assert all(row.error_code for row in rows), "it has not caught up"


def test_a_standby_follows_the_log_and_takes_over_when_the_active_one_is_killed(
    tmp_path: Path, ending: ExitStack, line: Lines
) -> None:
    active = ControllerProcess(str(tmp_path / "store"), controller_id=1)
    ending.callback(active.close)
    active.wait_until_active()
    standby = ControllerThread(str(tmp_path / "store"), controller_id=2)
    ending.callback(standby.close)
    broker = line(1, active, standby)
    wait_for(broker.is_unfenced, "the broker is unfenced")
    for number in range(3):
        create(broker, f"before-{number}", 1)
    wait_for(lambda: standby.answers() and standby.status().position >= active.status().position, "the standby is warm")
    assert not standby.status().active
    active.kill()
    standby.wait_until_active()
    create(broker, "after", 1)
    assert standby.status().topics == 4
    assert broker.leads("before-0") == [0, 0, 0], "nobody was fenced meanwhile"


def test_a_look_at_the_port_tells_a_dead_process_and_another_one_from_one_that_lives(tmp_path: Path) -> None:
    with running_cluster(tmp_path) as cluster:
        host, _, port = cluster.brokers[1].address.rpartition(":")
        from appliance.client.connection import Connection
        from appliance.wire.messages.internal_status import BrokerStatusRequest

        with Connection(host, int(port)) as connection:
            epoch = connection.call(BrokerStatusRequest(), 0).broker_epoch
        assert not broker_is_gone(host, int(port), 1, epoch, 2_000)
        assert broker_is_gone(host, int(port), 1, epoch - 1, 2_000)
        assert broker_is_gone(host, int(port), 2, epoch, 2_000)
    assert broker_is_gone(host, int(port), 1, epoch, 2_000)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert not broker_is_gone("127.0.0.1", silent.getsockname()[1], 1, epoch, 200)


@pytest.mark.parametrize(("setting", "dead"), [("true", True), ("false", False)])
def test_where_a_proxy_stands_between_silence_alone_decides(
    tmp_path: Path, ending: ExitStack, line: Lines, setting: str, dead: bool
) -> None:
    controller = ControllerThread(str(tmp_path / "store"), controller_fast_failover=setting)
    ending.callback(controller.close)
    controller.wait_until_active()
    one, two = line(1, controller), line(2, controller)
    for broker in (one, two):
        wait_for(broker.is_unfenced, f"broker {broker.broker_id} is unfenced")
    two.die()
    wait_for(lambda: one.image.brokers[2].fenced, "the broker is fenced")
    assert one.image.brokers[2].dead is dead


def test_a_new_cluster_takes_the_id_that_the_configuration_names(tmp_path: Path, ending: ExitStack) -> None:
    named = "AAAAAAAAQACAAAAAAAAAAQ"
    first = ControllerThread(str(tmp_path / "store"), cluster_id=named)
    first.wait_until_active()
    assert first.status().cluster_id == named
    first.close()
    other = ControllerThread(str(tmp_path / "store"), cluster_id="AAAAAAAAQACAAAAAAAAAAg")
    ending.callback(other.close)
    with pytest.raises(UserError, match=f"belongs to cluster {named}"):
        other.wait_until_active()
