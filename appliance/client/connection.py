"""One connection to one broker or controller: a request, then its response.

No thread of its own; one thread at a time uses it, only `abort` may come from another. Whatever goes wrong on the way
closes the connection: a late answer must never be taken for the answer to the next request.
"""

from __future__ import annotations

import socket
from types import TracebackType
from typing import TypeVar, cast

from appliance.base.clock import Clock, SystemClock
from appliance.base.errors import ErrorCode, InvariantBroken, KafkaError
from appliance.client.security import PLAIN, ClientSecurity, NotAuthenticated, authenticate
from appliance.wire.api import APIS, Api, ApiKey, api_of
from appliance.wire.codec import decode_response, encode_request
from appliance.wire.frames import FrameReader
from appliance.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from appliance.wire.schema import Request, Struct, WireError

MAX_RESPONSE_BYTES = 256 * 1024 * 1024
"""Far above any fetch limit; a size beyond it means that the other side does not speak Kafka's protocol."""

Response = TypeVar("Response", bound=Struct)


class ConnectionLost(OSError):
    """No connection could be made, or it ended before the answer came; whether the request was done is not known."""


class CallTimedOut(TimeoutError):
    """No answer in time; the connection is closed, and whether the request was done is not known."""


class Connection:
    """Connected from the start, until `close` or the first failure.

    Args:
        host: name or address.
        port: TCP port.
        client_id: how the other side names us in logs and quotas.
        timeout_ms: for connecting, and for each call that does not say its own.
        clock: only for deadlines.
        max_response_bytes: a larger response is refused before memory is taken for it.
        security: what the listener there asks for.

    Raises:
        ConnectionLost: nobody listens there.
        CallTimedOut: nobody answered within `timeout_ms`.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        client_id: str = "appliance",
        timeout_ms: int = 30_000,
        clock: Clock | None = None,
        max_response_bytes: int = MAX_RESPONSE_BYTES,
        security: ClientSecurity = PLAIN,
    ) -> None:
        self._security = security
        self.host = host
        self.port = port
        self.client_id = client_id
        self.timeout_ms = timeout_ms
        self._clock = clock or SystemClock()
        self._reader = FrameReader(max_response_bytes)
        self._correlation_id = 0
        self._versions: dict[int, tuple[int, int]] | None = None
        self._socket: socket.socket | None = None
        self._socket = self._connect()
        if security.sasl is not None:
            self._authenticate()

    @property
    def address(self) -> str:
        """`host:port`, for messages."""
        return f"{self.host}:{self.port}"

    @property
    def is_open(self) -> bool:
        """Whether another call makes sense; the other side may have gone without our knowing."""
        return self._socket is not None

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End the connection. A second call does nothing."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def abort(self) -> None:
        """Wake a call that waits in another thread: it ends with ConnectionLost and closes the connection."""
        waiting = self._socket
        if waiting is not None:
            try:
                waiting.shutdown(socket.SHUT_RDWR)
            except OSError:
                return  # it has ended already

    def call(self, request: Request[Response], version: int | None = None, timeout_ms: int | None = None) -> Response:
        """Send a request and wait for its response.

        Args:
            request: any declared request.
            version: None = the highest that both sides know.
            timeout_ms: for the whole call; the connection's own if None.

        Raises:
            ConnectionLost: the connection ended, or what came back was not the response.
            CallTimedOut: no response in time.
            KafkaError: UNSUPPORTED_VERSION, both sides have no version in common.
            WireError: the request cannot be written in that version; nothing was sent.
        """
        deadline_ms = self._deadline(timeout_ms)
        if version is None:
            version = self._common_version(type(request), deadline_ms)
        return self._exchange(request, version, deadline_ms)

    def send(self, request: Struct, version: int | None = None, timeout_ms: int | None = None) -> None:
        """Send a request that is never answered: Produce with acks=0.

        Raises:
            ConnectionLost, CallTimedOut, KafkaError, WireError: as `call`.
        """
        deadline_ms = self._deadline(timeout_ms)
        if version is None:
            version = self._common_version(type(request), deadline_ms)
        self._send(request, version, deadline_ms)

    def versions(self, timeout_ms: int | None = None) -> dict[int, tuple[int, int]]:
        """What the other side offers: API key -> (lowest, highest). Asked once for each connection.

        Raises:
            ConnectionLost, CallTimedOut: as `call`.
            KafkaError: the other side refused to tell.
        """
        return self._ask_versions(self._deadline(timeout_ms))

    def common_version(self, request: type[Struct], timeout_ms: int | None = None) -> int:
        """The highest version of a request that both sides know.

        Raises:
            ConnectionLost, CallTimedOut: as `call`.
            KafkaError: UNSUPPORTED_VERSION, there is none.
        """
        return self._common_version(request, self._deadline(timeout_ms))

    def _deadline(self, timeout_ms: int | None) -> int:
        return self._clock.monotonic_ms() + (self.timeout_ms if timeout_ms is None else timeout_ms)

    def _connect(self) -> socket.socket:
        try:
            made = socket.create_connection((self.host, self.port), timeout=self.timeout_ms / 1000)
        except TimeoutError as error:
            raise CallTimedOut(f"no connection to {self.address} within {self.timeout_ms} ms") from error
        except OSError as error:
            raise ConnectionLost(f"no connection to {self.address}: {error}") from error
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if self._security.tls is None:
            return made
        try:
            return self._security.tls.context.wrap_socket(made, server_hostname=self.host)
        except TimeoutError as error:
            made.close()
            raise CallTimedOut(f"no TLS with {self.address} within {self.timeout_ms} ms") from error
        except (OSError, ValueError) as error:
            made.close()
            raise ConnectionLost(f"no TLS with {self.address}: {error}") from error

    def _authenticate(self) -> None:
        """Show who we are, before anything else."""
        deadline_ms = self._deadline(None)
        assert self._security.sasl is not None
        steps = authenticate(self._security.sasl)
        try:
            request, version = next(steps)
            while True:
                request, version = steps.send(self._exchange(cast(Request[Struct], request), version, deadline_ms))
        except StopIteration:
            return
        except NotAuthenticated as error:
            self.close()
            raise ConnectionLost(f"{self.address}: {error}") from error

    def _common_version(self, request: type[Struct], deadline_ms: int) -> int:
        api = _api_of(request)
        lowest, highest = self._ask_versions(deadline_ms).get(api.key, (0, -1))
        version = min(highest, api.max_version)
        if version < max(lowest, api.min_version):
            offered = f"offers versions {lowest} to {highest}" if highest >= 0 else "does not offer it"
            ours = f"versions {api.min_version} to {api.max_version} are known here"
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"{api.name}: {self.address} {offered}, {ours}")
        return version

    def _ask_versions(self, deadline_ms: int) -> dict[int, tuple[int, int]]:
        if self._versions is not None:
            return self._versions
        request = ApiVersionsRequest(client_software_name="appliance", client_software_version="1")
        newest = APIS[ApiKey.API_VERSIONS].max_version
        response = self._exchange(request, newest, deadline_ms)
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
            # KIP-511: an older peer answers in v0 and names, if it can, the range that it understands.
            named = [api.max_version for api in response.api_keys if api.api_key == ApiKey.API_VERSIONS]
            response = self._exchange(request, min(newest, *named) if named else 0, deadline_ms)
        if response.error_code != ErrorCode.NONE:
            raise KafkaError(error_of(response.error_code), f"ApiVersions from {self.address}")
        self._versions = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}
        return self._versions

    def _exchange(self, request: Request[Response], version: int, deadline_ms: int) -> Response:
        correlation_id = self._send(request, version, deadline_ms)
        frame = self._receive(deadline_ms)
        response_class = _api_of(type(request)).response
        if response_class is ApiVersionsResponse and frame[4:6] == _UNSUPPORTED_VERSION:
            version = 0
        try:
            answered, response = decode_response(response_class, frame, version)
        except WireError as error:
            self.close()
            raise ConnectionLost(f"{self.address} sent no readable {response_class.__name__}: {error}") from error
        if answered != correlation_id:
            self.close()
            raise ConnectionLost(f"{self.address} answered request {answered} instead of {correlation_id}")
        return cast(Response, response)

    def _send(self, request: Struct, version: int, deadline_ms: int) -> int:
        """Send a request; returns its correlation id."""
        connected = self._connected()
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        frame = encode_request(request, version, self._correlation_id, self.client_id)
        try:
            connected.settimeout(self._seconds_left(deadline_ms))
            connected.sendall(frame)
        except TimeoutError as error:
            self.close()
            raise CallTimedOut(f"{type(request).__name__} to {self.address} could not be sent in time") from error
        except OSError as error:
            self.close()
            raise ConnectionLost(f"the connection to {self.address} ended: {error}") from error
        return self._correlation_id

    def _receive(self, deadline_ms: int) -> memoryview:
        """The next frame; exactly one is on its way."""
        connected = self._connected()
        try:
            while True:
                connected.settimeout(self._seconds_left(deadline_ms))
                with self._reader.free_space() as space:
                    count = connected.recv_into(space)
                if count == 0:
                    raise ConnectionLost(f"{self.address} ended the connection")
                frames = self._reader.received(count)
                if frames:
                    return frames[0]
        except TimeoutError as error:
            self.close()
            raise CallTimedOut(f"no answer from {self.address} in time") from error
        except ConnectionLost:
            self.close()
            raise
        except WireError as error:
            self.close()
            raise ConnectionLost(f"{self.address} does not speak Kafka's protocol: {error}") from error
        except OSError as error:
            self.close()
            raise ConnectionLost(f"the connection to {self.address} ended: {error}") from error

    def _connected(self) -> socket.socket:
        if self._socket is None:
            raise ConnectionLost(f"the connection to {self.address} is closed")
        return self._socket

    def _seconds_left(self, deadline_ms: int) -> float:
        left_ms = deadline_ms - self._clock.monotonic_ms()
        if left_ms <= 0:
            raise TimeoutError
        return left_ms / 1000


_UNSUPPORTED_VERSION = int(ErrorCode.UNSUPPORTED_VERSION).to_bytes(2, "big")
"""Stands behind the correlation id of an ApiVersions response that comes in v0, whatever was asked."""


def error_of(code: int) -> ErrorCode:
    """The error of a response; codes of a newer Kafka count as UNKNOWN_SERVER_ERROR."""
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def _api_of(request: type[Struct]) -> Api:
    key = request.__wire__.api_key
    api = api_of(key) if key is not None else None
    if api is None or api.request is not request:
        raise InvariantBroken(f"{request.__name__} is not a declared request")
    return api
