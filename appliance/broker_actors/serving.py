"""Whether a broker may answer (rule B7 of the replication protocol).

The lease is looked at in every tick, before answers leave. Without it they are held back, in the hope that it comes
again soon; after a second this broker stops serving: what was held is dropped with its connections, new requests for
its partitions are answered NOT_LEADER_OR_FOLLOWER until the lease is back. Under a soft lease (the controller cannot
reach the store) only partitions are served whose in-sync replicas have all fetched lately (B8).
"""

from __future__ import annotations

import logging
from typing import Protocol

from appliance.base.background import Background
from appliance.base.clock import Clock
from appliance.broker_actors.partition_host import PartitionHost
from appliance.server.server import Server

_log = logging.getLogger(__name__)

HOLD_MAX_MS = 1_000
RECHECK_MS = 50
"""How often the lease is looked at while nothing else happens."""


class Lease(Protocol):
    """What the controller has granted."""

    def lease_valid(self, now_ms: int) -> bool: ...

    def lease_firm(self, now_ms: int) -> bool: ...

    def loop_ticked(self) -> None: ...


class ServingGate:
    """Holds answers back while there is no lease. `unfenced` is what the metadata says of this broker."""

    def __init__(
        self, lease: Lease, server: Server, partitions: PartitionHost, background: Background, clock: Clock
    ) -> None:
        self._lease = lease
        self._server = server
        self._partitions = partitions
        self._background = background
        self._clock = clock
        self._unfenced = False
        self._held_since_ms = -1
        self._recheck()

    def fenced(self, fenced: bool) -> None:
        """What the newest image says of this broker."""
        self._unfenced = not fenced
        self.check()

    def check(self) -> None:
        """Called in every tick."""
        lease = self._lease
        lease.loop_ticked()
        now_ms = self._clock.monotonic_ms()
        if lease.lease_valid(now_ms) and self._unfenced:
            if self._held_since_ms >= 0:
                self._held_since_ms = -1
                self._server.holding = False
                self._server.begin_tick()
            if not self._partitions.serving:
                _log.info("serving: the lease is held")
                self._partitions.set_soft_lease(not lease.lease_firm(now_ms))
                self._partitions.set_serving(True)
        elif self._partitions.serving:
            self._hold(now_ms)

    def _hold(self, now_ms: int) -> None:
        if self._held_since_ms < 0:
            self._held_since_ms = now_ms
            self._server.holding = True
        elif now_ms - self._held_since_ms >= HOLD_MAX_MS or not self._unfenced:
            _log.warning("not serving: no lease for %d ms", now_ms - self._held_since_ms)
            self._held_since_ms = -1
            self._partitions.set_serving(False)
            self._server.drop_held("the lease ended before the answer could leave")
            self._server.holding = False

    def _recheck(self) -> None:
        self._background.schedule(RECHECK_MS, self._recheck)
        self.check()
        if self._partitions.serving:
            self._partitions.set_soft_lease(not self._lease.lease_firm(self._clock.monotonic_ms()))
