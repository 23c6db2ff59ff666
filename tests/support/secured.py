"""A server with several listeners, ours or Apache Kafka's, by the same configs: what tests of security talk to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.broker import running_cluster
from tests.support.compat import AGAINST_KAFKA
from tests.support.kafka_peer import KafkaPeer
from tests.support.ports import free_port

HOST = "127.0.0.1"
SERVER_KIND = "kafka" if AGAINST_KAFKA else "appliance"
"""Ours; or Apache Kafka by the same configs, where COMPAT_SERVER=kafka asks whether our expectations are Kafka's."""


@dataclass(frozen=True)
class SecuredServer:
    """Where each listener is, by name. PLAINTEXT is there always, for whoever sets up what is tested."""

    kind: str
    ports: dict[str, int]
    brokers: int

    def at(self, listener: str) -> str:
        return f"{HOST}:{self.ports[listener]}"

    @property
    def is_kafka(self) -> bool:
        return self.kind == "kafka"


@contextmanager
def secured_server(
    kind: str, folder: Path, protocols: Mapping[str, str], properties: Mapping[str, str], brokers: int = 1
) -> Iterator[SecuredServer]:
    """`kind` is "appliance" or "kafka"; `protocols` says what each listener's name stands for."""
    names = {"PLAINTEXT": "PLAINTEXT", **protocols}
    ports = {name: free_port() for name in names}
    listeners = [f"{name}://{HOST}:{port}" for name, port in ports.items()]
    mapped = [f"{name}:{protocol}" for name, protocol in names.items()]
    everything = {"inter.broker.listener.name": "PLAINTEXT", **properties}
    if kind == "kafka":
        controller_port = free_port()
        listeners.append(f"CONTROLLER://{HOST}:{controller_port}")
        mapped.append("CONTROLLER:PLAINTEXT")
        everything |= {
            "listeners": ",".join(listeners),
            "listener.security.protocol.map": ",".join(mapped),
            "controller.quorum.voters": f"1@{HOST}:{controller_port}",
        }
        with KafkaPeer(properties=everything, ports=(ports["PLAINTEXT"], controller_port), folder=folder) as peer:
            yield SecuredServer(kind, ports, 1)
            assert peer.pid
        return
    everything |= {"listeners": ",".join(listeners), "listener.security.protocol.map": ",".join(mapped)}
    with running_cluster(folder, brokers, everything):
        yield SecuredServer(kind, ports, brokers)
