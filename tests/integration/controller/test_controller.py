"""A controller and the lines of brokers to it, over real sockets, on a directory as object store."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from appliance.base.errors import ErrorCode, UserError
from appliance.broker_actors.controller_channel import BrokerIdentity
from appliance.client.connection import CallTimedOut
from appliance.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest
from appliance.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from appliance.wire.messages.delete_topics import DeleteTopicsRequest
from tests.support.controller import ControllerProcess, ControllerThread, LineOfABroker, wait_for
from tests.support.ports import free_port

Broker = Callable[..., LineOfABroker]
Controller = Callable[..., Any]


@pytest.fixture
def ending() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def controller(tmp_path: Path, ending: ExitStack) -> Controller:
    """Starts a controller of the test's store, in a process of its own if it is to be killed."""

    def start(controller_id: int = 1, *, process: bool = False, **options: Any) -> Any:
        kind = ControllerProcess if process else ControllerThread
        made = kind(str(tmp_path / "store"), controller_id=controller_id, **options)
        ending.callback(made.close)
        return made

    return start


@pytest.fixture
def broker(tmp_path: Path, ending: ExitStack) -> Broker:
    """Starts the line of a broker, with a data directory by its id."""

    def start(
        broker_id: int, *controllers: Any, wait: bool = True, applies: bool = True, **options: str
    ) -> LineOfABroker:
        addresses = [controller.address for controller in controllers]
        made = LineOfABroker(broker_id, addresses, tmp_path / f"broker-{broker_id}", applies=applies, **options)
        ending.callback(made.die)
        if wait:
            wait_for(made.is_unfenced, f"broker {broker_id} is unfenced")
        return made

    return start


def test_a_broker_registers_is_unfenced_and_sees_what_is_decided(controller: Controller, broker: Broker) -> None:
    active = controller()
    active.wait_until_active()
    one, two = broker(1, active), broker(2, active)
    assert one.create_topic("t", 4) == ErrorCode.NONE
    for line in (one, two):
        wait_for(lambda line=line: line.leads("t") == [0, 0], "both brokers see what they lead")
    status = active.status()
    assert (status.active, status.topics, status.partitions, status.store_state) == (True, 1, 4, "ok")
    assert [(row.broker_id, row.fenced, row.leaders) for row in status.brokers] == [(1, False, 2), (2, False, 2)]
    assert all(0 <= row.last_heartbeat_age_ms < 2_000 for row in status.brokers)


def test_topics_survive_the_death_of_the_controller_and_its_brokers_go_on(
    controller: Controller, broker: Broker
) -> None:
    first = controller(process=True)
    first.wait_until_active()
    line = broker(1, first)
    assert line.create_topic("t", 2) == ErrorCode.NONE
    block = line.call(AllocateProducerIdsRequest(broker_id=1, broker_epoch=line.epoch))
    epoch = line.epoch
    first.kill()
    second = controller(process=True, port=first.port)
    second.wait_until_active()
    wait_for(lambda: line.image.controller_epoch == 2, "the broker follows the new controller")
    assert line.create_topic("u") == ErrorCode.NONE
    wait_for(lambda: sorted(line.image.topics) == ["t", "u"], "both topics are there")
    # Nobody took its leaderships: it beat to the new controller in time.
    wait_for(line.is_unfenced, "the broker has a lease")
    assert (line.epoch, line.leads("t")) == (epoch, [0, 0])
    again = line.call(AllocateProducerIdsRequest(broker_id=1, broker_epoch=line.epoch))
    assert again.producer_id_start == block.producer_id_start + block.producer_id_len


def test_a_restart_of_everything_does_not_wait_for_leases(controller: Controller, broker: Broker) -> None:
    first = controller(process=True)
    first.wait_until_active()
    line = broker(1, first)
    line.create_topic("t")
    first.kill()
    line.die()
    second = controller(port=first.port)
    second.wait_until_active()
    again = broker(1, second, wait=False)
    # The lease and margin alone would be 2.5 s, after a take-over 5.5 s.
    assert wait_for(again.is_unfenced, "the new process serves") < 2
    wait_for(lambda: again.leads("t"), "it leads again")
    assert again.leads("t") == [2]


def test_without_the_note_in_its_directory_a_new_process_waits_for_the_old_ones_lease(
    controller: Controller, broker: Broker, tmp_path: Path
) -> None:
    active = controller(broker_lease_ms="1200", broker_lease_margin_ms="100", broker_loop_stall_max_ms="200")
    active.wait_until_active()
    timers = {"broker_lease_ms": "1200", "broker_loop_stall_max_ms": "200"}
    line = broker(1, active, **timers)
    (tmp_path / "broker-1" / "broker-epoch").unlink()
    again = broker(1, active, wait=False, **timers)
    wait_for(lambda: "not fenced yet" in again.channel.trouble, "the new process is refused")
    assert line.is_unfenced()
    line.die()
    wait_for(again.is_unfenced, "the new process takes its place")
    assert again.epoch > line.epoch


def test_under_a_new_controller_a_process_without_the_note_is_let_in_when_the_old_one_is_seen_to_be_gone(
    controller: Controller, broker: Broker, tmp_path: Path
) -> None:
    # Nobody could wait for the end of this lease; and the new controller never hears a heartbeat end.
    timers = {"broker_lease_ms": "600000"}
    active = controller(**timers)
    active.wait_until_active()
    line = broker(1, active, **timers)
    active.close()
    line.die()
    (tmp_path / "broker-1" / "broker-epoch").unlink()
    later = controller(port=active.port, **timers)
    later.wait_until_active()
    assert broker(1, later, **timers).epoch > line.epoch


def test_the_end_of_a_process_is_seen_at_once(controller: Controller, broker: Broker) -> None:
    active = controller()
    active.wait_until_active()
    one, two = broker(1, active), broker(2, active)
    one.create_topic("t", 2)
    wait_for(lambda: two.leads("t"), "the other broker leads")
    two.die()
    assert wait_for(lambda: one.image.brokers[2].fenced, "the dead broker is fenced") < 1.5
    assert one.image.brokers[2].dead
    assert sorted((p.leader, p.leader_epoch) for p in one.image.topics["t"].partitions) == [(-1, 1), (1, 0)]
    again = broker(2, active)
    wait_for(lambda: again.leads("t") == [2], "its next process leads under a new epoch")


def test_a_new_controller_sees_the_end_of_a_process_that_died_with_the_old_one(
    controller: Controller, broker: Broker
) -> None:
    # Nobody could wait for the end of this lease.
    timers = {"broker_lease_ms": "600000"}
    active = controller(**timers)
    active.wait_until_active()
    one, two = broker(1, active, **timers), broker(2, active, **timers)
    one.create_topic("t", 2)
    wait_for(lambda: two.leads("t"), "the other broker leads")
    active.close()
    two.die()
    later = controller(port=active.port, **timers)
    later.wait_until_active()
    wait_for(lambda: one.image.brokers[2].dead, "the dead broker is known to be dead")
    assert not one.image.brokers[1].fenced


def test_a_broker_whose_loop_stands_still_loses_its_lease_and_comes_back(
    controller: Controller, broker: Broker
) -> None:
    timers = {"broker_lease_ms": "900", "broker_loop_stall_max_ms": "200"}
    active = controller(broker_lease_margin_ms="100", **timers)
    active.wait_until_active()
    one, two = broker(1, active), broker(2, active, **timers)
    one.create_topic("t", 2)
    wait_for(lambda: two.leads("t") == [0], "it leads")
    two.stalled = True
    wait_for(lambda: not two.has_lease(), "its lease is over")
    wait_for(lambda: one.image.brokers[2].fenced, "the controller fences it")
    # Its own lease is over before anybody else could lead.
    assert not two.has_lease()
    assert not one.image.brokers[2].dead
    two.stalled = False
    wait_for(two.is_unfenced, "it serves again")
    wait_for(lambda: two.leads("t") == [2], "under a new leader epoch")
    assert two.epoch == one.image.brokers[2].broker_epoch


def test_a_broker_that_stops_in_order_is_let_go(controller: Controller, broker: Broker) -> None:
    active = controller()
    active.wait_until_active()
    one, two = broker(1, active), broker(2, active)
    one.create_topic("t", 2)
    two.shut_down()
    assert two.may_stop.wait(5)
    wait_for(lambda: one.image.brokers[2].shutting_down, "the cluster knows")
    assert -1 in [p.leader for p in one.image.topics["t"].partitions]
    assert not two.has_lease()


def test_a_standby_takes_over_and_brokers_find_it(controller: Controller, broker: Broker) -> None:
    first = controller(1, process=True)
    first.wait_until_active()
    second = controller(2)
    line = broker(1, second, first)
    line.create_topic("t")
    wait_for(second.answers, "the standby stands by")
    assert not second.status().active
    refused = second.call(
        CreateTopicsRequest(topics=[CreatableTopic(name="x", num_partitions=1, replication_factor=1)])
    )
    assert refused.topics[0].error_code == ErrorCode.NOT_CONTROLLER
    first.kill()
    second.wait_until_active()
    wait_for(lambda: line.image.controller_id == 2, "the broker follows")
    assert line.create_topic("u") == ErrorCode.NONE
    wait_for(lambda: sorted(line.image.topics) == ["t", "u"], "nothing is lost")
    assert line.leads("t") == [0]


def test_a_controller_that_was_replaced_while_it_stood_still_ends_with_one_line(controller: Controller) -> None:
    first = controller(1, process=True)
    first.wait_until_active()
    second = controller(2, controller_takeover_ms="300")
    wait_for(second.answers, "the standby stands by")
    first.pause()
    try:
        second.wait_until_active()
    finally:
        first.resume()
    line = first.line()
    assert line.startswith("failed: controller 1 replaced: commit ")
    assert first.exit_code() == 1
    assert second.status().active


def test_a_damaged_log_stops_the_controller_with_one_line(controller: Controller, tmp_path: Path) -> None:
    first = controller()
    first.wait_until_active()
    first.close()
    commit = tmp_path / "store" / "metadata" / "log" / f"{0:020}"
    data = bytearray(commit.read_bytes())
    data[-1] ^= 1
    commit.write_bytes(data)
    again = controller()
    with pytest.raises(
        UserError, match="controller 1 cannot go on, the metadata log is damaged: commit 0: crc differs"
    ):
        again.wait_until_active()


def test_a_port_that_is_taken_is_one_line(controller: Controller) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        started = controller(port=taken.getsockname()[1])
        with pytest.raises(UserError, match="cannot listen on") as raised:
            started.wait_until_active()
        assert raised.value.exit_code == 3


def test_a_broker_of_another_cluster_is_told_so(controller: Controller, tmp_path: Path) -> None:
    active = controller()
    active.wait_until_active()
    line = LineOfABroker(1, [active.address], tmp_path / "b")
    try:
        wait_for(line.is_unfenced, "it serves")
        identity = line.channel._line.identity
        strange = BrokerIdentity(2, identity.listeners, cluster_id="another")
        line.channel._line.identity = strange
        line.channel._line.registration_lost(line.epoch)
        wait_for(lambda: line.failure is not None, "it is refused for good")
        assert "belongs to cluster another" in str(line.failure)
    finally:
        line.die()


def test_bytes_that_are_no_request_end_their_own_connection_only(controller: Controller, broker: Broker) -> None:
    active = controller()
    active.wait_until_active()
    line = broker(1, active)
    for garbage in (b"GET / HTTP/1.1\r\n\r\n", b"\x00\x00\x00\x08\x7f\xff\x00\x00\x00\x00\x00\x00", b"\xff" * 64):
        with socket.create_connection(("127.0.0.1", active.port), timeout=5) as sender:
            sender.sendall(garbage)
            assert sender.recv(1) == b""
    assert line.create_topic("t") == ErrorCode.NONE
    assert line.is_unfenced()


def test_names_of_an_old_delete_request_are_not_lost_on_the_way(controller: Controller, broker: Broker) -> None:
    active = controller()
    active.wait_until_active()
    line = broker(1, active)
    line.create_topic("t")
    response = line.call(DeleteTopicsRequest(topic_names=["t", "x"]))
    assert [(row.name, row.error_code) for row in response.responses] == [
        ("t", ErrorCode.NONE),
        ("x", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    wait_for(lambda: not line.image.topics, "the topic is gone")


def test_many_operations_at_once_share_commits(controller: Controller, broker: Broker) -> None:
    from concurrent.futures import ThreadPoolExecutor

    active = controller()
    active.wait_until_active()
    line = broker(1, active)
    before = active.status().position
    with ThreadPoolExecutor(16) as pool:
        codes = list(pool.map(lambda number: line.create_topic(f"t{number}"), range(100)))
    assert codes == [ErrorCode.NONE] * 100
    wait_for(lambda: len(line.image.topics) == 100, "all topics are there")
    assert active.status().position - before < 100


def test_a_snapshot_lets_old_commits_go_and_a_restart_begins_there(
    controller: Controller, broker: Broker, tmp_path: Path
) -> None:
    active = controller(metadata_snapshot_interval_commits="10")
    active.wait_until_active()
    line = broker(1, active)
    for number in range(15):
        assert line.create_topic(f"t{number}") == ErrorCode.NONE
    wait_for(lambda: active.status().snapshot >= 9, "a snapshot is written")
    active.close()
    again = controller(port=active.port)
    again.wait_until_active()
    assert again.status().topics == 15
    assert list((tmp_path / "store" / "metadata" / "snapshot").iterdir())


def test_without_any_controller_a_call_ends_in_time(tmp_path: Path) -> None:
    line = LineOfABroker(1, [f"127.0.0.1:{free_port()}"], tmp_path / "b", request_timeout_ms="300")
    try:
        with pytest.raises(CallTimedOut):
            line.create_topic("t")
        assert not line.has_lease()
    finally:
        line.die()


def test_only_what_is_in_force_on_a_brokers_loop_is_told_to_the_controller(
    controller: Controller, broker: Broker
) -> None:
    active = controller()
    active.wait_until_active()
    one, two = broker(1, active), broker(2, active, wait=False, applies=False)
    wait_for(lambda: two.images and two.epoch >= 0, "it has seen its registration")
    assert one.create_topic("t") == ErrorCode.NONE
    wait_for(lambda: "t" in two.image.topics, "images come to it all the same")
    assert one.image.brokers[2].fenced and not two.is_unfenced(), "what it has not taken in does not count"
    two.applies = True
    assert one.create_topic("u") == ErrorCode.NONE
    wait_for(two.is_unfenced, "it is unfenced when its loop has taken an image")
