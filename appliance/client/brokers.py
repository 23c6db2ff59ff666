"""The connections of a client: at most one to each broker, opened when needed."""

from __future__ import annotations

from collections.abc import Sequence

from appliance.base.clock import Clock
from appliance.client.cluster import BrokerEndpoint
from appliance.client.connection import CallTimedOut, Connection, ConnectionLost
from appliance.client.security import PLAIN, ClientSecurity


class Brokers:
    """Opens, keeps and drops connections.

    Args:
        bootstrap: where to ask before any broker is known.
        client_id, timeout_ms, clock, security: as for `Connection`.
    """

    def __init__(
        self,
        bootstrap: Sequence[tuple[str, int]],
        client_id: str,
        timeout_ms: int,
        clock: Clock,
        security: ClientSecurity = PLAIN,
    ) -> None:
        self._security = security
        self._bootstrap = list(bootstrap)
        self._client_id = client_id
        self._timeout_ms = timeout_ms
        self._clock = clock
        self._known: dict[int, BrokerEndpoint] = {}
        self._connections: dict[tuple[str, int], Connection] = {}

    def learn(self, brokers: dict[int, BrokerEndpoint]) -> None:
        """Take over what Metadata said; connections to places where no broker is any more are closed."""
        self._known = brokers
        places = {(broker.host, broker.port) for broker in brokers.values()} | set(self._bootstrap)
        for place in [place for place in self._connections if place not in places]:
            self._connections.pop(place).close()

    def to(self, broker_id: int, timeout_ms: int) -> Connection:
        """The connection to a broker.

        Raises:
            ConnectionLost: it is not known, or cannot be reached.
            CallTimedOut: it did not answer in time.
        """
        broker = self._known.get(broker_id)
        if broker is None:
            raise ConnectionLost(f"no broker with id {broker_id} is known")
        return self._open(broker.host, broker.port, timeout_ms)

    def any(self, timeout_ms: int) -> Connection:
        """A connection to some broker: an open one, else the first that can be reached.

        Raises:
            ConnectionLost: none can be reached.
            CallTimedOut: none can be reached and the last one did not answer in time.
        """
        for connection in self._connections.values():
            if connection.is_open:
                return connection
        places = [(broker.host, broker.port) for broker in self._known.values()]
        places += [place for place in self._bootstrap if place not in places]
        # Where a connection has ended comes last: another broker may be well.
        places.sort(key=lambda place: place in self._connections)
        failure: OSError = ConnectionLost("no broker is known")
        for place in places:
            try:
                return self._open(*place, max(1, timeout_ms // len(places)))
            except (ConnectionLost, CallTimedOut) as error:
                failure = error
        raise failure

    def close(self) -> None:
        """Close all connections."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def _open(self, host: str, port: int, timeout_ms: int) -> Connection:
        connection = self._connections.get((host, port))
        if connection is None or not connection.is_open:
            connection = Connection(
                host,
                port,
                client_id=self._client_id,
                timeout_ms=min(timeout_ms, self._timeout_ms),
                clock=self._clock,
                security=self._security,
            )
            self._connections[host, port] = connection
        return connection
