"""How a controller becomes the active one: open the log, stand by while another one answers, claim (rules M1, C1)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from appliance.base.background import Background
from appliance.base.clock import Clock
from appliance.broker_actors.controller_probes import ping_controller
from appliance.broker_actors.metadata_store import MetadataStore
from appliance.client.security import PLAIN, ClientSecurity
from appliance.controller.commits import Commit
from appliance.controller.metadata_log import MetadataLog
from appliance.controller.standby import StandbyWatch

_log = logging.getLogger(__name__)

PING_INTERVAL_MS = 250


class Takeover:
    """All methods are called on the loop's thread; `done` gets None when the epoch is claimed, or what went wrong."""

    def __init__(
        self,
        log: MetadataLog,
        steps: MetadataStore,
        background: Background,
        clock: Clock,
        takeover_ms: int,
        done: Callable[[Exception | None], None],
        security: ClientSecurity = PLAIN,
    ) -> None:
        self._security = security
        self._log = log
        self._steps = steps
        self._background = background
        self._clock = clock
        self._takeover_ms = takeover_ms
        self._done = done

    def begin(self, cluster_id: str | None, new_cluster_id: str) -> None:
        """`cluster_id`: the one that the store must hold, if the configuration names one."""
        self._steps.run(self._log.open(cluster_id, new_cluster_id), self._opened)

    def _opened(self, result: str | Exception) -> None:
        if isinstance(result, Exception):
            self._done(result)
        else:
            self._stand_by_or_claim()

    def _stand_by_or_claim(self) -> None:
        image = self._log.image
        # An earlier process of this controller is fenced by the claim itself, alive or not.
        if image.controller_epoch == 0 or image.controller_id == self._log.controller_id:
            self._claim()
            return
        _log.info("controller %d stands by for controller %d", self._log.controller_id, image.controller_id)
        self._ping(StandbyWatch(self._takeover_ms, self._clock.monotonic_ms()))

    def _ping(self, watch: StandbyWatch) -> None:
        host, port = self._log.image.controller_host, self._log.image.controller_port
        epoch = self._log.image.controller_epoch

        def done(result: int | Exception) -> None:
            now_ms = self._clock.monotonic_ms()
            refused = isinstance(result, ConnectionRefusedError)
            if isinstance(result, int) and result >= 0:
                watch.answered(now_ms)
                if result > self._log.image.position:
                    # Warm: what a claim has to read stays short.
                    self._steps.run(self._log.read_round(), lambda outcome: self._followed(outcome, watch))
                    return
            elif watch.should_claim(now_ms, refused=refused):
                reason = "is gone" if refused else f"has not answered for {self._takeover_ms} ms"
                _log.warning("controller %d at %s:%d %s", self._log.image.controller_id, host, port, reason)
                self._steps.run(self._log.read_round(), lambda outcome: self._reread(outcome, epoch))
                return
            self._background.schedule(PING_INTERVAL_MS, lambda: self._ping(watch))

        self._background.run(partial(ping_controller, host, port, self._takeover_ms, security=self._security), done)

    def _followed(self, result: Exception | None, watch: StandbyWatch) -> None:
        if isinstance(result, Exception):
            self._done(result)
            return
        # Reading may have taken long; the active one was heard before it.
        self._background.schedule(PING_INTERVAL_MS, lambda: self._ping(watch))

    def _reread(self, result: Exception | None, gone: int) -> None:
        """`gone`: the epoch of the controller that does not answer; it may have been started again since."""
        image = self._log.image
        if isinstance(result, Exception):
            self._done(result)
        elif image.controller_epoch == gone:
            self._claim()
        else:
            self._stand_by_or_claim()

    def _claim(self) -> None:
        def done(result: Commit | Exception) -> None:
            self._done(result if isinstance(result, Exception) else None)

        self._steps.run(self._log.claim(self._clock.now_ms()), done)
