"""Registration and the metadata log, as a broker's thread follows it over the wire."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable

from appliance.base.errors import ErrorCode, KafkaError, UserError
from appliance.broker_actors.controller_line import ControllerLine
from appliance.client.connection import CallTimedOut, Connection, ConnectionLost, error_of
from appliance.controller.commits import LogCorrupt, decode_commit, decode_snapshot
from appliance.controller.image import MetadataImage
from appliance.controller.log_reader import LogPosition
from appliance.controller.records import commit_number_of
from appliance.controller.snapshots import load_snapshot
from appliance.wire.messages.internal_metadata import (
    MetadataFetchRequest,
    MetadataFetchResponse,
    RegisterBrokerListener,
    RegisterBrokerRequest,
)

_log = logging.getLogger(__name__)

FETCH_WAIT_MS = 500
"""How long the controller may hold a fetch that finds nothing new."""
FETCH_MAX_BYTES = 16 << 20
REQUEST_TIMEOUT_MS = 5_000
"""A controller that has not answered by then is tried anew, or another one."""
DUPLICATE_RETRY_MS = 100
"""Between two tries to register while another incarnation of this broker is not fenced yet."""

ImageCallback = Callable[[MetadataImage, frozenset[uuid.UUID]], None]
"""Gets an image and the ids of the topics that differ from the image before."""


class MetadataFollower:
    """Registers the broker, then applies every commit and hands on each new image."""

    def __init__(self, line: ControllerLine, on_image: ImageCallback, on_failure: Callable[[UserError], None]) -> None:
        self._line = line
        self._on_image = on_image
        self._on_failure = on_failure
        self._at = LogPosition()
        self._handed_on: MetadataImage = self._at.image
        self._connection: Connection | None = None
        self._thread = threading.Thread(target=self._run, name="metadata-follower", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def interrupt(self) -> None:
        """Wake the thread out of a long poll; any thread may call it."""
        connection = self._connection
        if connection is not None:
            connection.abort()

    def _run(self) -> None:
        failures = 0
        while not self._line.closed.is_set():
            address = self._line.address()
            try:
                with Connection(
                    *address,
                    client_id=self._client_id,
                    timeout_ms=REQUEST_TIMEOUT_MS,
                    security=self._line.security,
                ) as connection:
                    self._connection = connection
                    while not self._line.closed.is_set():
                        self._step(connection)
                        failures = 0
            except UserError as error:
                self._on_failure(error)
                return
            except (ConnectionLost, CallTimedOut, KafkaError, LogCorrupt) as error:
                if self._line.closed.is_set():
                    return
                if isinstance(error, LogCorrupt):
                    _log.error("metadata from %s:%d does not fit, all of it is read again: %s", *address, error)
                    self._at = LogPosition()
                elif failures == 0:
                    _log.info("controller %s:%d: %s", *address, error)
                self._line.try_next(address)
                self._line.closed.wait(self._line.backoff_ms(failures) / 1_000)
                failures += 1
            except Exception:
                _log.exception("following the metadata failed; trying again")
                self._line.closed.wait(1)
            finally:
                self._connection = None

    @property
    def _client_id(self) -> str:
        return f"broker-{self._line.identity.broker_id}"

    def _step(self, connection: Connection) -> None:
        if self._line.broker_epoch < 0 and not self._register(connection):
            return
        response = connection.call(
            MetadataFetchRequest(
                broker_id=self._line.identity.broker_id,
                position=self._at.image.position,
                max_wait_ms=FETCH_WAIT_MS,
                max_bytes=FETCH_MAX_BYTES,
            )
        )
        if response.error_code:
            raise KafkaError(error_of(response.error_code), response.error_message)
        if not self._line.accept_epoch(response.controller_epoch):
            raise KafkaError(ErrorCode.STALE_CONTROLLER_EPOCH, f"controller epoch {response.controller_epoch}")
        self._apply(response)

    def _register(self, connection: Connection) -> bool:
        """Whether the broker is registered now. Raises: UserError when the controller will never accept it."""
        identity = self._line.identity
        incarnation_id = self._line.incarnation_id
        response = connection.call(
            RegisterBrokerRequest(
                broker_id=identity.broker_id,
                cluster_id=identity.cluster_id,
                incarnation_id=incarnation_id,
                listeners=[
                    RegisterBrokerListener(
                        name=listener.name,
                        host=listener.host,
                        port=listener.port,
                        security_protocol=listener.security_protocol,
                    )
                    for listener in identity.listeners
                ],
                rack=identity.rack,
                node=identity.node,
                directory_ids=list(identity.directory_ids),
                log_state=identity.log_state,
                previous_broker_epoch=self._line.previous_broker_epoch,
            )
        )
        code = error_of(response.error_code)
        if code in (ErrorCode.INCONSISTENT_CLUSTER_ID, ErrorCode.INVALID_REGISTRATION):
            raise UserError(f"broker {identity.broker_id} is not accepted: {response.error_message}", exit_code=3)
        if code == ErrorCode.DUPLICATE_BROKER_REGISTRATION:
            self._line.trouble = response.error_message or code.name
            self._line.closed.wait(DUPLICATE_RETRY_MS / 1_000)
            return False
        if code != ErrorCode.NONE:
            raise KafkaError(code, response.error_message)
        if not self._line.accept_epoch(response.controller_epoch):
            raise KafkaError(ErrorCode.STALE_CONTROLLER_EPOCH, f"controller epoch {response.controller_epoch}")
        _log.info("broker %d registered with epoch %d", identity.broker_id, response.broker_epoch)
        self._line.registered(response.broker_epoch)
        return True

    def _apply(self, response: MetadataFetchResponse) -> None:
        at = self._at
        if response.snapshot is not None:
            snapshot = decode_snapshot(response.snapshot)
            if snapshot.number > at.image.position:
                at = LogPosition(load_snapshot(snapshot)[0], snapshot.nonce)
        for data in response.commits:
            commit = decode_commit(data)
            if commit.number > at.image.position:
                at = at.after(commit)
        self._at = at
        image, broker_epoch = at.image, self._line.broker_epoch
        # Before its registration is in it, an image shows what an earlier process of this broker led.
        if image is not self._handed_on and 0 <= commit_number_of(broker_epoch) <= image.position:
            changed = changed_topics(self._handed_on, image)
            self._handed_on = image
            self._on_image(image, changed)


def changed_topics(old: MetadataImage, new: MetadataImage) -> frozenset[uuid.UUID]:
    """Ids of the topics that were created, deleted or changed in any way between two images."""
    if old.topics_by_id is new.topics_by_id:
        return frozenset()
    gone = old.topics_by_id.keys() - new.topics_by_id.keys()
    changed = {
        topic_id
        for topic_id, topic in new.topics_by_id.items()
        if (before := old.topics_by_id.get(topic_id)) is not topic and before != topic
    }
    return frozenset(changed | gone)
