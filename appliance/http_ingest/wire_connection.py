"""One asyncio connection to a broker: many requests on their way at once, answered in order."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TypeVar, cast

from appliance.base.errors import ErrorCode, KafkaError
from appliance.client.connection import ConnectionLost, error_of
from appliance.client.security import PLAIN, ClientSecurity, NotAuthenticated, authenticate
from appliance.security.sasl_client import SaslClient
from appliance.wire.api import APIS, ApiKey
from appliance.wire.codec import decode_response, encode_request
from appliance.wire.messages.api_versions import ApiVersionsRequest
from appliance.wire.messages.internal_access import ActAsRequest
from appliance.wire.schema import Request, Struct, WireError

Response = TypeVar("Response", bound=Struct)

MAX_RESPONSE_BYTES = 16 * 1024 * 1024
CONNECT_TIMEOUT_S = 5.0


class WireConnection:
    """Open until the first failure; then every waiting call ends with ConnectionLost, and a new one must be made."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, address: str, client_id: str
    ) -> None:
        self.address = address
        self._client_id = client_id
        self._reader = reader
        self._writer = writer
        self._correlation_id = 0
        self._waiting: deque[tuple[int, asyncio.Future[memoryview]]] = deque()
        self._versions: dict[int, tuple[int, int]] = {}
        self._closed = False
        self._task = asyncio.create_task(self._receive())

    @classmethod
    async def open(
        cls, host: str, port: int, client_id: str, security: ClientSecurity = PLAIN, act_as: str = ""
    ) -> WireConnection:
        """Connect, show who we are, say for whom we ask, and agree on versions. Raises: ConnectionLost."""
        address = f"{host}:{port}"
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                context = security.tls.context if security.tls is not None else None
                reader, writer = await asyncio.open_connection(host, port, ssl=context)
        except (OSError, TimeoutError) as error:
            raise ConnectionLost(f"no connection to {address}: {error}") from error
        connection = cls(reader, writer, address, client_id)
        if security.sasl is not None:
            await connection._authenticate(security.sasl)
        if act_as:
            acting = await connection.call(ActAsRequest(principal=act_as), 0, CONNECT_TIMEOUT_S)
            if acting.error_code != ErrorCode.NONE:
                await connection.close()
                raise ConnectionLost(f"{address} does not let the gateway act as {act_as}")
        request = ApiVersionsRequest(client_software_name="appliance-http", client_software_version="1")
        # v3 is understood by every broker since 2019; ours and Apache Kafka answer it in kind.
        answer = await connection.call(request, 3, CONNECT_TIMEOUT_S)
        if answer.error_code != ErrorCode.NONE:
            await connection.close()
            raise ConnectionLost(f"{address} refused ApiVersions: {error_of(answer.error_code).name}")
        connection._versions = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}
        return connection

    async def _authenticate(self, sasl: SaslClient) -> None:
        steps = authenticate(sasl)
        try:
            request, version = next(steps)
            while True:
                response = APIS[cast(int, type(request).__wire__.api_key)].response
                request, version = steps.send(await self._exchange(request, version, response, CONNECT_TIMEOUT_S))
        except StopIteration:
            return
        except NotAuthenticated as error:
            await self.close()
            raise ConnectionLost(f"{self.address}: {error}") from error

    @property
    def is_open(self) -> bool:
        return not self._closed

    def version_of(self, key: ApiKey, at_most: int = 1000) -> int:
        """The highest version that both sides know. Raises: KafkaError(UNSUPPORTED_VERSION)."""
        low, high = self._versions.get(key, (0, -1))
        version = min(high, APIS[key].max_version, at_most)
        if version < max(low, APIS[key].min_version):
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"{self.address} has no usable version of {key.name}")
        return version

    async def call(self, request: Request[Response], version: int, timeout_s: float) -> Response:
        """Send a request and wait for its answer. Raises: ConnectionLost (also after `timeout_s`)."""
        api = APIS[cast(int, type(request).__wire__.api_key)]
        return cast(Response, await self._exchange(request, version, api.response, timeout_s))

    def send(self, request: Struct, version: int) -> None:
        """Send a request that is never answered: Produce with acks=0. Raises: ConnectionLost."""
        self._write(encode_request(request, version, self._next_id(), self._client_id))

    async def close(self) -> None:
        """End the connection; waiting calls end with ConnectionLost."""
        self._fail(ConnectionLost(f"the connection to {self.address} was closed"))
        self._task.cancel()

    def _next_id(self) -> int:
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        return self._correlation_id

    def _write(self, frame: bytes) -> None:
        if self._closed:
            raise ConnectionLost(f"the connection to {self.address} is closed")
        self._writer.write(frame)

    async def _exchange(self, request: Struct, version: int, response: type[Struct], timeout_s: float) -> Struct:
        correlation_id = self._next_id()
        self._write(encode_request(request, version, correlation_id, self._client_id))
        future: asyncio.Future[memoryview] = asyncio.get_running_loop().create_future()
        self._waiting.append((correlation_id, future))
        try:
            async with asyncio.timeout(timeout_s):
                frame = await future
        except TimeoutError:
            # A late answer would be taken for the next one's: the connection ends with the doubt.
            error = ConnectionLost(f"{self.address} gave no answer within {timeout_s:g} s")
            self._fail(error)
            raise error from None
        try:
            return decode_response(response, frame, version)[1]
        except WireError as error:
            lost = ConnectionLost(f"{self.address} sent no readable {response.__name__}: {error}")
            self._fail(lost)
            raise lost from error

    async def _receive(self) -> None:
        try:
            while True:
                size = int.from_bytes(await self._reader.readexactly(4), "big", signed=True)
                if not 4 <= size <= MAX_RESPONSE_BYTES:
                    raise ConnectionLost(f"{self.address} announced an answer of {size} bytes")
                frame = memoryview(await self._reader.readexactly(size))
                if not self._waiting:
                    raise ConnectionLost(f"{self.address} answered what nobody asked")
                correlation_id, future = self._waiting.popleft()
                if int.from_bytes(frame[:4], "big", signed=True) != correlation_id:
                    raise ConnectionLost(f"{self.address} answered out of order")
                if not future.done():
                    future.set_result(frame)
        except (OSError, EOFError) as error:
            self._fail(ConnectionLost(f"the connection to {self.address} ended: {error}"))

    def _fail(self, error: ConnectionLost) -> None:
        if self._closed:
            return
        self._closed = True
        self._writer.close()
        while self._waiting:
            _, future = self._waiting.popleft()
            if not future.done():
                future.set_exception(error)
