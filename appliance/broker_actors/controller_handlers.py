"""What a controller answers: the APIs of its listener, each as one decision or a look at the image.

A controller that is not active answers NOT_CONTROLLER, and the sender tries the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol, cast

from appliance.base.errors import ErrorCode, KafkaError
from appliance.controller import (
    acls,
    brokers,
    client_quotas,
    configs,
    features,
    isr,
    leader_elections,
    offline_replicas,
    partitions,
    producer_ids,
    reassignments,
    scram_credentials,
    topics,
)
from appliance.controller.decisions import Decision, Operation, Rules
from appliance.controller.image import MetadataImage
from appliance.controller.log_ends import Part
from appliance.server.authentication import sasl_handlers
from appliance.server.dispatcher import HandlerEntry, error_answer
from appliance.server.forwarding import ErrorForm
from appliance.server.handlers.acls import create_failed as create_acls_failed
from appliance.server.handlers.acls import delete_failed as delete_acls_failed
from appliance.server.handlers.cluster_admin import update_features_failed
from appliance.server.handlers.configs import alter_failed, incremental_alter_failed
from appliance.server.handlers.quotas import alter_failed as alter_quotas_failed
from appliance.server.handlers.replicas import alter_reassignments_failed, elect_failed, unregister_failed
from appliance.server.handlers.scram_credentials import alter_failed as alter_scram_failed
from appliance.server.handlers.topics import create_failed, create_partitions_failed, delete_failed
from appliance.server.requests import Pending, Request
from appliance.wire.api import APIS, ApiKey
from appliance.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from appliance.wire.messages.internal_metadata import (
    BROKER_LEASE,
    CONTROLLER_STATUS,
    METADATA_FETCH,
    REGISTER_BROKER,
    REPLICAS_OFFLINE,
    BrokerLeaseRequest,
    ControllerStatusResponse,
    MetadataFetchRequest,
    RegisterBrokerRequest,
)
from appliance.wire.schema import Struct

DEFAULT_TIMEOUT_MS = 30_000
"""How long an operation whose request names no time-out may wait for the log."""


class ControllerView(Protocol):
    """What handlers see of the controller process."""

    rules: Rules

    @property
    def active(self) -> bool: ...

    @property
    def image(self) -> MetadataImage: ...

    def submit(self, operation: Operation, done: Callable[[Struct | Exception | None], None], timeout_ms: int) -> None:
        """Decide, commit, then `done`; REQUEST_TIMED_OUT when it had to wait for too long."""

    def when_asked(self, parts: Iterable[Part], then: Callable[[], None]) -> None:
        """Call `then` when it is known how long the logs of these partitions are, where nobody leads them."""

    def when_spread(self, done: Callable[[], None]) -> None:
        """Call `done` when the live brokers know what is committed now, or after a moment."""

    def registering(self, request: RegisterBrokerRequest) -> None: ...

    def heartbeat(self, request: BrokerLeaseRequest, pending: Pending) -> Struct | Pending: ...

    def fetch_metadata(self, request: MetadataFetchRequest, pending: Pending) -> Struct | Pending: ...

    def status(self) -> ControllerStatusResponse: ...


def controller_handlers() -> dict[int, HandlerEntry]:
    """The table of a controller's server."""
    return {
        ApiKey.API_VERSIONS: HandlerEntry(_api_versions),
        CONTROLLER_STATUS: HandlerEntry(_status),
        METADATA_FETCH: HandlerEntry(_fetch_metadata),
        BROKER_LEASE: HandlerEntry(_lease),
        ApiKey.CREATE_TOPICS: _deciding(topics.create_topics, create_failed, spread=True),
        ApiKey.DELETE_TOPICS: _deciding(topics.delete_topics, delete_failed, spread=True),
        ApiKey.CREATE_PARTITIONS: _deciding(partitions.create_partitions, create_partitions_failed, spread=True),
        ApiKey.ALTER_CONFIGS: _deciding(configs.alter, alter_failed, spread=True),
        ApiKey.INCREMENTAL_ALTER_CONFIGS: _deciding(configs.alter_incrementally, incremental_alter_failed, spread=True),
        ApiKey.UPDATE_FEATURES: _deciding(features.update_features, update_features_failed, spread=True),
        ApiKey.ALTER_CLIENT_QUOTAS: _deciding(client_quotas.alter_quotas, alter_quotas_failed, spread=True),
        ApiKey.ELECT_LEADERS: _deciding(
            leader_elections.elect_leaders, elect_failed, spread=True, asks=leader_elections.wanted_uncleanly
        ),
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: _deciding(
            reassignments.alter_reassignments, alter_reassignments_failed, spread=True
        ),
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _deciding(
            scram_credentials.alter_scram_credentials, alter_scram_failed, spread=True
        ),
        ApiKey.CREATE_ACLS: _deciding(acls.create_acls, create_acls_failed, spread=True),
        ApiKey.DELETE_ACLS: _deciding(acls.delete_acls, delete_acls_failed, spread=True),
        **sasl_handlers(),
        ApiKey.UNREGISTER_BROKER: _deciding(brokers.unregister, unregister_failed, spread=True),
        ApiKey.ALTER_PARTITION: _deciding(isr.alter_partition),
        ApiKey.ALLOCATE_PRODUCER_IDS: _deciding(
            lambda body, image, rules: producer_ids.allocate_producer_ids(body, image)
        ),
        REGISTER_BROKER: HandlerEntry(_register),
        REPLICAS_OFFLINE: _deciding(offline_replicas.replicas_offline),
    }


def served_versions() -> dict[int, tuple[int, int]]:
    """All declared versions: both ends are of the same release."""
    return {key: (APIS[key].min_version, APIS[key].max_version) for key in controller_handlers()}


def _deciding(
    decide: Callable[[Any, MetadataImage, Rules], Decision],
    form: ErrorForm | None = None,
    *,
    spread: bool = False,
    asks: Callable[[Any, MetadataImage], Iterable[Part]] | None = None,
) -> HandlerEntry:
    """An API whose requests are decided and committed.

    Args:
        form: its answer when everything failed alike.
        spread: whether the answer waits for brokers to know what was committed. Clients see that; what brokers ask for
            themselves must not wait for other brokers.
        asks: partitions of which it has to be known before how long their logs are.
    """

    def handle(controller: ControllerView, request: Request) -> Struct | Pending | None:
        if not controller.active:
            return error_answer(entry, request, ErrorCode.NOT_CONTROLLER, "this controller is not the active one")
        body, rules, pending = request.body, controller.rules, request.pending()

        def done(result: Struct | Exception | None) -> None:
            if isinstance(result, Struct):
                if spread:
                    controller.when_spread(lambda: pending.answer(result))
                else:
                    pending.answer(result)
                return
            code, message = ErrorCode.UNKNOWN_SERVER_ERROR, None
            if isinstance(result, KafkaError):
                code, message = result.code, result.message
            failed = error_answer(entry, request, code, message)
            if failed is not None:
                pending.answer(failed)

        timeout_ms = getattr(body, "timeout_ms", 0)

        def submit() -> None:
            controller.submit(
                lambda image: decide(body, image, rules), done, timeout_ms if timeout_ms > 0 else DEFAULT_TIMEOUT_MS
            )

        if asks is None:
            submit()
        else:
            controller.when_asked(asks(body, controller.image), submit)
        return pending

    entry = HandlerEntry(handle, error=form)
    return entry


def _api_versions(controller: ControllerView, request: Request) -> ApiVersionsResponse:
    return ApiVersionsResponse(
        api_keys=[
            ApiVersion(api_key=key, min_version=low, max_version=high)
            for key, (low, high) in sorted(served_versions().items())
        ]
    )


def _status(controller: ControllerView, request: Request) -> ControllerStatusResponse:
    return controller.status()


def _fetch_metadata(controller: ControllerView, request: Request) -> Struct | Pending:
    return controller.fetch_metadata(cast(MetadataFetchRequest, request.body), request.pending())


_REGISTER = _deciding(brokers.register)


def _register(controller: ControllerView, request: Request) -> Struct | bytes | Pending | None:
    if controller.active:
        controller.registering(cast(RegisterBrokerRequest, request.body))
    return _REGISTER.handle(controller, request)


def _lease(controller: ControllerView, request: Request) -> Struct | Pending:
    return controller.heartbeat(cast(BrokerLeaseRequest, request.body), request.pending())
