"""Whose process is gone: a controller sees it by a look at the port, before the lease is over (rule B6).

A look is refused, or another process answers: then the broker is fenced as dead at once. Anything else says nothing.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from appliance.broker_actors.controller_probes import broker_is_gone
from appliance.controller.brokers import fence
from appliance.controller.image import BrokerState
from appliance.controller.liveness import BrokerLiveness

if TYPE_CHECKING:
    from appliance.broker_actors.controller import Controller
    from appliance.server.connection import Connection
    from appliance.wire.messages.internal_metadata import RegisterBrokerRequest

_log = logging.getLogger(__name__)

LOOK_AGAIN_MS = 500
"""How often a new controller looks at the ports of brokers that it has not heard yet."""


class BrokerWatch:
    """All methods are called on the loop's thread."""

    def __init__(self, controller: Controller, liveness: BrokerLiveness) -> None:
        self._controller = controller
        self._liveness = liveness
        self._heartbeats: dict[int, tuple[Connection, int]] = {}
        """Connection and broker epoch of each broker's last heartbeat."""
        self._looking_at: set[tuple[int, int]] = set()
        """Brokers (id, epoch) whose listeners are being looked at."""
        self._look_again_ms = 0

    def heard(self, broker_id: int, broker_epoch: int, connection: Connection) -> None:
        """A heartbeat came this way."""
        self._heartbeats[broker_id] = (connection, broker_epoch)

    def tick(self, now_ms: int) -> None:
        """Look at brokers whose heartbeats' connections have ended, and at those that were never heard.

        Of a broker whose process died with the controller before this one no connection ends here.
        """
        image = self._controller.image
        for broker_id, (connection, broker_epoch) in list(self._heartbeats.items()):
            if not connection.closed:
                continue
            del self._heartbeats[broker_id]
            broker = image.brokers.get(broker_id)
            if broker is not None and broker.broker_epoch == broker_epoch:
                self._look_at(broker)
        if now_ms < self._look_again_ms:
            return
        for broker_id in self._liveness.unheard():
            self._look_again_ms = now_ms + LOOK_AGAIN_MS
            self._look_at(image.brokers[broker_id])

    def registering(self, request: RegisterBrokerRequest) -> None:
        """Where another process than the registered one stands, or nobody, nobody has to wait for its lease.

        A controller that has just taken over never saw the old process's heartbeats end.
        """
        broker = self._controller.image.brokers.get(request.broker_id)
        if broker is None or broker.fenced or broker.incarnation_id == request.incarnation_id:
            return
        if request.previous_broker_epoch != broker.broker_epoch:
            self._look_at(broker)

    def _look_at(self, broker: BrokerState) -> None:
        controller = self._controller
        named = (broker.broker_id, broker.broker_epoch)
        if broker.dead or named in self._looking_at or not controller.config.get("controller.fast.failover"):
            return
        self._looking_at.add(named)
        timeout_ms = controller.config.get("controller.reconnect.timeout.ms")
        controller.background.run(
            partial(broker_is_gone, broker.host, broker.port, *named, timeout_ms, security=controller.security),
            partial(self._looked, named),
        )

    def _looked(self, broker: tuple[int, int], gone: bool | Exception) -> None:
        self._looking_at.discard(broker)
        if gone is not True:
            return
        dead = self._liveness.died(*broker)
        if dead:
            _log.warning("broker %d is gone: fencing it", broker[0])
            rules = self._controller.rules
            self._controller.decide(lambda image: fence(dead, image, rules, dead=True))
