"""A broker's line to its controllers: registration, lease, metadata and forwarded requests.

Three kinds of threads with sockets of their own, so that none holds up another: one follows the metadata log, one keeps
the lease, up to four forward requests. Everything they have to say is posted onto the broker's event loop.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Sequence
from typing import Any

from appliance.base.clock import Clock, SystemClock
from appliance.base.config import BrokerConfig
from appliance.base.errors import UserError
from appliance.base.randomness import Randomness, SystemRandomness
from appliance.broker_actors.controller_caller import ControllerCaller, Done
from appliance.broker_actors.controller_follower import MetadataFollower
from appliance.broker_actors.controller_heartbeat import LeaseKeeper
from appliance.broker_actors.controller_line import BrokerIdentity, ControllerLine
from appliance.client.security import PLAIN, ClientSecurity
from appliance.controller.image import MetadataImage
from appliance.wire.schema import Request

__all__ = ["BrokerIdentity", "ControllerChannel"]

_log = logging.getLogger(__name__)

TAKE_MAX_MS = 100
"""How long the next image waits for the loop to have taken the last one, with the logs that it opens for it."""

ImageCallback = Callable[[MetadataImage, frozenset[uuid.UUID], Callable[[], None]], None]
"""Gets an image, the ids of the topics that differ from the image before, and what to call when its logs are open."""


class ControllerChannel:
    """All methods are called on the loop's thread, unless they say otherwise; callbacks come on the loop's thread.

    Args:
        controllers: `host:port` of each controller; whoever is active is found by trying.
        identity: what the broker tells about itself.
        post: puts a callback onto the loop from any thread.
        on_image: gets each new image, the ids of topics that differ from the image before, and what to call when the
            logs that it wants are open: the next image waits a little for that. The first image comes
            after registration and is not older than it: what it says about this broker's id is about this process.
            The broker leads only what an image gives to it while `broker_epoch` is its own and it is not fenced.
        on_failure: the controllers will never accept this broker; it has to stop.
        config: timers (`broker.lease.ms` is the controller's to say).
        security: what the controllers' listeners ask for: the same as the brokers' own.
    """

    def __init__(
        self,
        controllers: Sequence[str],
        identity: BrokerIdentity,
        post: Callable[[Callable[[], None]], None],
        *,
        on_image: ImageCallback,
        on_failure: Callable[[UserError], None],
        config: BrokerConfig,
        clock: Clock | None = None,
        randomness: Randomness | None = None,
        security: ClientSecurity = PLAIN,
    ) -> None:
        self._post = post
        self._config = config
        self._on_image = on_image
        self._may_stop: Callable[[], None] | None = None
        self._line = ControllerLine(
            controllers, identity, clock or SystemClock(), randomness or SystemRandomness(), security
        )
        self._follower = MetadataFollower(
            self._line, self._image_came, lambda error: self._post_open(lambda: on_failure(error))
        )
        self._keeper = LeaseKeeper(
            self._line,
            interval_ms=config.get("broker.heartbeat.interval.ms"),
            loop_stall_max_ms=config.get("broker.loop.stall.max.ms"),
            timeout_ms=config.get("broker.lease.ms"),
            on_registration_lost=self._follower.interrupt,
            on_may_stop=lambda: self._post_open(self._stop_allowed),
        )
        self._caller = ControllerCaller(self._line, self._post_open)

    def start(self) -> None:
        """Begin to register. The broker's listener must be open already: its port is part of the registration."""
        self._follower.start()
        self._keeper.start()

    def close(self) -> None:
        """Stop all threads without a word to the controller; no callback comes any more."""
        self._line.closed.set()
        with self._line.changed:
            self._line.changed.notify_all()
        self._follower.interrupt()
        self._keeper.interrupt()
        self._caller.close()

    @property
    def broker_epoch(self) -> int:
        """The epoch under which this process is registered; -1 while it is not. Any thread may ask."""
        return self._line.broker_epoch

    @property
    def incarnation_id(self) -> uuid.UUID:
        """Random per registration of this process."""
        return self._line.incarnation_id

    @property
    def trouble(self) -> str:
        """Why there is no lease; empty while there is one."""
        return self._line.trouble

    def loop_ticked(self) -> None:
        """Tell that the loop is alive; call it at each tick and by a timer well below `broker.loop.stall.max.ms`."""
        self._keeper.loop_ticked()

    def applied(self, position: int) -> None:
        """The image at this commit is in force: heartbeats tell it from now on, and nothing that is newer.

        Whoever leads next begins when this broker is known to know (P1), and before the first call it is not unfenced.
        """
        self._line.applied(position)

    def lease_valid(self, now_ms: int) -> bool:
        """Rule B7: whether answers may leave at `now_ms` of the monotonic clock (`Clock.monotonic_ms`). Any thread."""
        return self._line.lease_valid(now_ms)

    def lease_firm(self, now_ms: int) -> bool:
        """Whether the lease is valid and the controller had a recent proof from the store when it gave it (B8)."""
        return self._line.lease_firm(now_ms)

    def call(self, request: Request[Any], done: Done, *, timeout_ms: int | None = None) -> None:
        """Forward a request to the active controller.

        `done` gets its response, or ConnectionLost (it may or may not have been done), CallTimedOut, KafkaError,
        WireError, BackgroundFull. Without `timeout_ms`, `request.timeout.ms` of the configuration holds.
        """
        self._caller.call(request, done, self._config.get("request.timeout.ms") if timeout_ms is None else timeout_ms)

    def shut_down(self, may_stop: Callable[[], None]) -> None:
        """Rule B10: ask to stop; `may_stop` is called once when the controller has let this broker go.

        From then on it leads nothing. The caller has its own time-out: without a controller nobody answers.
        """
        self._may_stop = may_stop
        self._keeper.shut_down()

    def _post_open(self, callback: Callable[[], None]) -> None:
        if not self._line.closed.is_set():
            self._post(callback)

    def _image_came(self, image: MetadataImage, changed: frozenset[uuid.UUID]) -> None:
        """On the follower's thread."""
        taken = threading.Event()
        self._post_open(lambda: self._on_image(image, changed, taken.set))
        taken.wait(TAKE_MAX_MS / 1_000)

    def _stop_allowed(self) -> None:
        callback, self._may_stop = self._may_stop, None
        if callback is not None:
            callback()
