"""What the user asked for, checked, and the processes that follow."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from appliance.base.config import BrokerConfig
from appliance.base.errors import UserError
from appliance.broker_actors.data_folder import ApplianceState
from appliance.broker_actors.placement import Node
from appliance.broker_actors.plan import (
    ApplianceSettings,
    Plan,
    Targets,
    chosen_services,
    is_loopback,
    plan_cluster,
    service_ports,
    this_machine,
)
from appliance.broker_actors.ports import FREE_PORTS
from tests.support.ports import free_ports

HERE = Node("here", "127.0.0.1", 9)


def plan_of(settings: ApplianceSettings, state: ApplianceState | None = None) -> Plan:
    placement = dict.fromkeys(range(1, settings.brokers + 1), "here")
    return plan_cluster(settings, Targets(), state or ApplianceState(), [HERE], placement, settings.named_ports)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"host": "0.0.0.0"}, "--insecure"),
        ({"host": "example.org"}, "--insecure"),
        ({"port": 65_535, "brokers": 2}, "leaves no ports"),
        ({"runtime": "local", "ray_address": "auto"}, "--ray-address"),
        ({"ray_address": "auto"}, "S3|s3"),
        ({"object_store": "nosuch://bucket"}, "gs://bucket"),
        ({"object_store": "http://bucket"}, "s3://bucket"),
        ({"object_store": "gs://"}, "gs://bucket"),
        ({"http_port": 9093, "brokers": 2}, "--http-port 9093"),
        ({"connect_port": 8082}, "both 8082"),
        ({"properties": {"num.partition": "1"}}, r"num\.partitions"),
    ],
)
def test_what_cannot_be_is_told_in_one_line(flags: dict[str, object], words: str) -> None:
    with pytest.raises(UserError, match=words) as refused:
        ApplianceSettings(data_dir=Path("d"), **flags).checked()  # type: ignore[arg-type]
    assert refused.value.exit_code == 2
    assert "\n" not in str(refused.value)


def test_each_broker_has_a_folder_of_its_own_in_each_directory_for_logs(tmp_path: Path) -> None:
    settings = ApplianceSettings(data_dir=tmp_path, brokers=2, port=0, log_dirs=(Path("/a"), Path("b"), Path("/a")))
    second = plan_of(settings.checked()).brokers[1].settings
    assert second.data_dir == tmp_path / "broker-2"
    assert second.log_dirs == [Path("/a/broker-2"), Path("b").absolute() / "broker-2"]
    assert second.properties["log.dirs"] == f"/a/broker-2,{Path('b').absolute()}/broker-2"
    alone = plan_of(ApplianceSettings(data_dir=tmp_path, port=0).checked()).brokers[0].settings
    assert (alone.log_dirs, alone.properties["log.dirs"]) == ([], str(tmp_path / "broker-1"))


def test_the_object_store_is_a_url_and_lies_in_the_data_folder_by_default(tmp_path: Path) -> None:
    assert ApplianceSettings(data_dir=tmp_path).checked().object_store == (tmp_path / "object-store").as_uri()
    settings = ApplianceSettings(data_dir=tmp_path, object_store=str(tmp_path / "a b")).checked()
    assert settings.object_store == (tmp_path / "a b").as_uri()
    for url in ("s3://b/p", "gs://b/p", "abfs://c@account.dfs.core.windows.net/p", "fsspec+s3://b/p"):
        assert ApplianceSettings(data_dir=tmp_path, object_store=url).checked().object_store == url


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_loopback_needs_no_leave(host: str) -> None:
    assert is_loopback(host)


def test_each_broker_gets_its_port_its_folder_and_its_node(tmp_path: Path) -> None:
    port = free_ports(2)
    settings = ApplianceSettings(data_dir=tmp_path, brokers=2, port=port).checked()
    plan = plan_of(settings)
    assert [spec.name for spec in plan.brokers] == ["broker-1", "broker-2"]
    assert [spec.settings.port for spec in plan.brokers] == [port, port + 1]
    assert plan.brokers[1].settings.data_dir == tmp_path / "broker-2"
    assert plan.brokers[1].settings.node == "here"
    assert plan.bootstrap_servers == f"127.0.0.1:{port},127.0.0.1:{port + 1}"
    (controller,) = plan.controllers
    assert plan.brokers[0].settings.controllers == [f"127.0.0.1:{controller.settings.port}"]


def test_a_brokers_configs_tell_what_it_was_given(tmp_path: Path) -> None:
    settings = ApplianceSettings(data_dir=tmp_path, port=0, properties={"num.partitions": "4"}).checked()
    (broker,) = plan_of(settings).brokers
    config = BrokerConfig(broker.settings.properties)
    port = broker.settings.port
    assert config.get("num.partitions") == 4
    assert config.get("node.id") == 1
    assert config.get("listeners") == (f"PLAINTEXT://127.0.0.1:{port}",)
    assert config.get("object.store.url") == settings.object_store


def test_free_ports_differ_and_lie_below_those_of_outgoing_connections(tmp_path: Path) -> None:
    plan = plan_of(ApplianceSettings(data_dir=tmp_path, brokers=5, port=0).checked())
    ports = [spec.settings.port for spec in [*plan.brokers, *plan.controllers]]
    assert len(plan.controllers) == 2
    assert len(set(ports)) == 7
    assert all(port in FREE_PORTS for port in ports)


def test_the_controller_is_found_where_it_was_unless_somebody_else_is_there(tmp_path: Path) -> None:
    state = ApplianceState()
    settings = ApplianceSettings(data_dir=tmp_path, port=0).checked()
    first = plan_of(settings, state).controllers[0].settings.port
    assert plan_of(settings, state).controllers[0].settings.port == first == state.controller_ports[0]
    with socket.create_server(("127.0.0.1", first)):
        assert plan_of(settings, state).controllers[0].settings.port != first


@pytest.mark.parametrize(("brokers", "asked", "count"), [(1, 0, 1), (2, 0, 1), (3, 0, 2), (1, 3, 3), (5, 1, 1)])
def test_a_controller_stands_by_where_a_broker_may_die(tmp_path: Path, brokers: int, asked: int, count: int) -> None:
    settings = ApplianceSettings(data_dir=tmp_path, port=0, brokers=brokers, controllers=asked).checked()
    plan = plan_of(settings)
    assert [spec.name for spec in plan.controllers] == [f"controller-{n}" for n in range(1, count + 1)]
    addresses = [f"127.0.0.1:{spec.settings.port}" for spec in plan.controllers]
    assert all(broker.settings.controllers == addresses for broker in plan.brokers)


def test_controllers_lie_on_different_nodes(tmp_path: Path) -> None:
    nodes = [Node("a", "10.0.0.1", 2), Node("b", "10.0.0.2", 2)]
    settings = ApplianceSettings(data_dir=tmp_path, port=9092, brokers=3, object_store="s3://b/p", ray_address="auto")
    placement = {1: "a", 2: "b", 3: "a"}
    plan = plan_cluster(settings, Targets(), ApplianceState(), nodes, placement, settings.named_ports)
    assert [(spec.node, spec.settings.host) for spec in plan.controllers] == [("a", "10.0.0.1"), ("b", "10.0.0.2")]


def test_an_address_of_version_six_stands_in_brackets(tmp_path: Path) -> None:
    plan = plan_of(ApplianceSettings(data_dir=tmp_path, port=0, advertised_host="fd00::1", brokers=1).checked())
    assert plan.bootstrap_servers.startswith("[fd00::1]:")


def test_a_wildcard_is_not_what_clients_are_told(tmp_path: Path) -> None:
    settings = ApplianceSettings(data_dir=tmp_path, port=0, host="0.0.0.0", insecure=True).checked()
    assert plan_of(settings).brokers[0].settings.advertised_host == socket.gethostname()


def test_services_are_all_some_or_none() -> None:
    targets = Targets(services={"http": "a:b", "connect": "c:d"})
    folder = Path("d")
    assert list(chosen_services(ApplianceSettings(folder), targets)) == ["connect", "http"]
    assert chosen_services(ApplianceSettings(folder, services=("http",)), targets) == {"http": "a:b"}
    assert chosen_services(ApplianceSettings(folder, services=("none",)), targets) == {}
    with pytest.raises(UserError, match="no service grpc is installed; there are: connect, http"):
        chosen_services(ApplianceSettings(folder, services=("grpc",)), targets)


def test_a_service_gets_the_port_asked_for_or_a_free_one() -> None:
    settings = ApplianceSettings(Path("d"), http_port=0, connect_port=0)
    ports = service_ports(settings, {"http": "a:b", "other": "c:d"}, set())
    assert len(set(ports.values())) == 2
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UserError, match=f"127.0.0.1:{port}") as refused:
            service_ports(ApplianceSettings(Path("d"), http_port=port), {"http": "a:b"}, set())
        assert refused.value.exit_code == 3


def test_this_machine_has_a_name_that_ray_takes_as_a_label() -> None:
    name = this_machine(3).name
    assert 0 < len(name) <= 63
    assert all(letter.isalnum() or letter in "-_." for letter in name)


def test_on_several_nodes_ports_count_on_for_each_node_and_a_wildcard_is_told_as_the_nodes_address(
    tmp_path: Path,
) -> None:
    nodes = [Node("a", "10.0.0.1", 2), Node("b", "10.0.0.2", 2)]
    settings = ApplianceSettings(
        data_dir=tmp_path,
        brokers=3,
        port=9092,
        host="0.0.0.0",
        insecure=True,
        ray_address="10.0.0.9:6379",
        object_store="s3://bucket/prefix",
    ).checked()
    plan = plan_cluster(settings, Targets(), ApplianceState(), nodes, {1: "a", 2: "b", 3: "a"}, settings.named_ports)
    assert plan.bootstrap_servers == "10.0.0.1:9092,10.0.0.2:9092,10.0.0.1:9093"
    assert [spec.settings.host for spec in plan.brokers] == ["0.0.0.0"] * 3
