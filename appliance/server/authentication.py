"""SASL on a connection: a gate that stands where the dispatcher will be, until the client has shown who it is.

- Before that, ApiVersions, SaslHandshake and SaslAuthenticate are all that is answered; anything else ends the
  connection. After version 0 of SaslHandshake tokens come as bare frames.
- Who fails is told so after `connection.failed.authentication.delay.ms`, and the connection ends.
- With `connections.max.reauth.ms`, or credentials that end, a session has an end (KIP-368). A client that begins anew
  in time goes on as the same principal with the same mechanism; one that asks for anything else afterwards is cut off.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from appliance.base.background import Background, Timer
from appliance.base.clock import Clock
from appliance.base.errors import ErrorCode
from appliance.security import security_log
from appliance.security.exchanges import AuthenticationFailed, Exchange, ExchangeMaker
from appliance.security.principals import Principal
from appliance.server.dispatcher import BadRequest, Dispatcher, HandlerEntry
from appliance.server.requests import Pending, Request
from appliance.wire.api import APIS, ApiKey
from appliance.wire.codec import decode_from, decode_request_header, encode_response
from appliance.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from appliance.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from appliance.wire.schema import Struct

if TYPE_CHECKING:
    from appliance.server.connection import Connection

LAST_WORDS_MS = 10
"""Between the answer to whoever failed and the end of its connection."""
REAUTHENTICATION_INTERVAL_MIN_MS = 1_000
"""A client that begins anew more often is refused, as by Kafka."""


@dataclass(frozen=True, slots=True)
class SaslSettings:
    """What a listener asks for."""

    mechanisms: Mapping[str, ExchangeMaker]
    """By name; in the order in which they are told."""
    max_receive_bytes: int
    """`sasl.server.max.receive.size`."""
    max_session_ms: Mapping[str, int]
    """`connections.max.reauth.ms` by mechanism; 0: none."""
    failure_delay_ms: int
    background: Background
    clock: Clock


class SaslSession:
    """A client that has shown who it is."""

    __slots__ = ("began_ms", "mechanism", "principal", "timer")

    def __init__(self, mechanism: str, principal: Principal, began_ms: int) -> None:
        self.mechanism = mechanism
        self.principal = principal
        self.began_ms = began_ms
        self.timer: Timer | None = None

    def close(self) -> None:
        if self.timer is not None:
            self.timer.cancel()


class SaslGate:
    """In the place of a connection's dispatcher while it authenticates, for the first time or again."""

    def __init__(self, settings: SaslSettings, dispatcher: Dispatcher, session: SaslSession | None = None) -> None:
        self.raw_handlers: dict[int, Any] = {}
        """None: every frame comes to `dispatch`."""
        self.max_frame_bytes = settings.max_receive_bytes
        self._settings = settings
        self._dispatcher = dispatcher
        self._session = session
        """The one that is to be prolonged."""
        self._mechanism = ""
        self._exchange: Exchange | None = None
        self._bare = False
        """Tokens come as frames of their own (SaslHandshake v0)."""
        self._failed = False

    # Frames

    def dispatch(self, connection: Connection, frame: memoryview) -> Pending | bytes | None:
        """As the dispatcher's. Raises: BadRequest."""
        if self._failed:
            raise BadRequest("more was asked after an authentication that failed")
        if len(frame) > self.max_frame_bytes:
            raise BadRequest(f"{len(frame)} bytes before authentication; see sasl.server.max.receive.size")
        if self._bare:
            return self._bare_token(connection, bytes(frame))
        try:
            header = decode_request_header(frame)
            key, version = ApiKey(header.api_key), header.api_version
        except ValueError as error:
            raise BadRequest(f"no request, before authentication: {error}") from error
        if key == ApiKey.API_VERSIONS and self._exchange is None:
            return self._dispatcher.dispatch(connection, frame)
        wanted = ApiKey.SASL_HANDSHAKE if self._exchange is None else ApiKey.SASL_AUTHENTICATE
        if key != wanted:
            raise BadRequest(f"{APIS[key].name} before authentication, instead of {APIS[wanted].name}")
        api = APIS[key]
        if not api.min_version <= version <= api.max_version:
            raise BadRequest(f"{api.name} version {version} is not served here")
        try:
            body, _ = decode_from(api.request, frame, version, header.body_offset)
        except ValueError as error:
            raise BadRequest(f"{api.name} version {version}: {error}") from error
        request = Request(key, version, header.correlation_id, header.client_id, body, connection)
        return self.handshake(request) if key == ApiKey.SASL_HANDSHAKE else self._authenticate(request)

    def handshake(self, request: Request) -> Pending | bytes:
        """Agree on a mechanism."""
        name = cast(SaslHandshakeRequest, request.body).mechanism
        make = self._settings.mechanisms.get(name)
        answer = SaslHandshakeResponse(mechanisms=list(self._settings.mechanisms))
        other = self._session is not None and self._session.mechanism != name
        if make is None or other:
            answer.error_code = ErrorCode.UNSUPPORTED_SASL_MECHANISM
            return self._refuse(request.connection, request, answer, f"mechanism {name!r} is not offered")
        self._mechanism, self._exchange = name, make()
        self._bare = request.api_version == 0
        return encode_response(answer, request.api_version, request.correlation_id)

    def _authenticate(self, request: Request) -> Pending | bytes:
        connection = request.connection
        try:
            token = self._evaluate(cast(SaslAuthenticateRequest, request.body).auth_bytes)
        except AuthenticationFailed as error:
            answer = SaslAuthenticateResponse(
                error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=self._told(error)
            )
            return self._refuse(connection, request, answer, str(error))
        lifetime_ms = self._finish(connection)
        told = SaslAuthenticateResponse(auth_bytes=token, session_lifetime_ms=lifetime_ms)
        return encode_response(told, request.api_version, request.correlation_id)

    def _bare_token(self, connection: Connection, token: bytes) -> Pending | bytes:
        try:
            answer = self._evaluate(token)
        except AuthenticationFailed as error:
            return self._refuse(connection, None, None, str(error))
        self._finish(connection)
        return len(answer).to_bytes(4, "big") + answer

    def _evaluate(self, token: bytes) -> bytes:
        exchange = self._exchange
        assert exchange is not None
        answer = exchange.evaluate(bytes(token))
        if exchange.principal is not None and self._session is not None:
            before = self._session.principal
            if exchange.principal != before:
                raise AuthenticationFailed(
                    "Cannot change principals during re-authentication from "
                    f"{before.type}.{before.name}: {exchange.principal.type}.{exchange.principal.name}"
                )
        return answer

    def _told(self, error: AuthenticationFailed) -> str:
        if error.told:
            return error.told
        what = "authentication" if self._session is None else "re-authentication"
        return f"Authentication failed during {what} due to invalid credentials with SASL mechanism {self._mechanism}"

    # Ends

    def _finish(self, connection: Connection) -> int:
        """Let the client in, if the exchange is over; returns how long for, 0 for ever."""
        exchange, settings = self._exchange, self._settings
        if exchange is None or exchange.principal is None:
            return 0
        now_ms = settings.clock.now_ms()
        session = SaslSession(self._mechanism, exchange.principal, now_ms)
        limits = [settings.max_session_ms.get(self._mechanism, 0) or None]
        limits.append(None if exchange.expires_ms is None else max(1, exchange.expires_ms - now_ms))
        lifetime_ms = min((limit for limit in limits if limit), default=0)
        if connection.session is not None:
            connection.session.close()
        else:
            name = connection.listener.name
            security_log.authenticated(str(session.principal), self._mechanism, connection.peer, name)
        if lifetime_ms:
            session.timer = settings.background.schedule(lifetime_ms, lambda: self._expired(connection, session))
        connection.session, connection.principal = session, session.principal
        connection.dispatcher = self._dispatcher
        return lifetime_ms

    def _expired(self, connection: Connection, session: SaslSession) -> None:
        if not connection.closed and connection.session is session and connection.dispatcher is self._dispatcher:
            # From here on it may only begin anew.
            connection.dispatcher = SaslGate(self._settings, self._dispatcher, session)

    def _refuse(self, connection: Connection, request: Request | None, answer: Struct | None, reason: str) -> Pending:
        self._failed = True
        security_log.refused(self._mechanism, connection.peer, connection.listener.name, reason)
        pending = request.pending() if request is not None else Pending(connection, 0, 0)
        background = self._settings.background

        def tell() -> None:
            if connection.closed:
                return
            if answer is not None:
                pending.answer(answer)
            background.schedule(LAST_WORDS_MS, lambda: connection.close("authentication failed"))

        background.schedule(self._settings.failure_delay_ms, tell)
        return pending


# The APIs themselves, where they come to a client that is in already.


def _handshake(context: Any, request: Request) -> Struct | Pending | bytes:
    connection = request.connection
    session, settings = connection.session, connection.listener.sasl
    if session is not None and settings is not None and request.api_version > 0:
        due_ms = session.began_ms + REAUTHENTICATION_INTERVAL_MIN_MS
        if settings.clock.now_ms() >= due_ms:
            gate = SaslGate(settings, cast(Dispatcher, connection.dispatcher), session)
            connection.dispatcher = gate
            return gate.handshake(request)
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)


def _authenticate(context: Any, request: Request) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE,
        error_message="SaslAuthenticate request received after successful authentication",
    )


def sasl_handlers() -> dict[int, HandlerEntry]:
    """For the table of any server."""
    return {
        ApiKey.SASL_HANDSHAKE: HandlerEntry(_handshake),
        ApiKey.SASL_AUTHENTICATE: HandlerEntry(_authenticate),
    }
