"""Links between the parts of a cluster that can be cut: proxies in front of them, on loopback addresses of their own.

Who is at the other end of a connection is told by the client id of its first request (`broker-2-replica`). While a link
is cut nothing passes it, not even the end of a connection; what was under way comes late when it is whole again.
"""

from __future__ import annotations

import asyncio
import struct
import threading
from collections.abc import Coroutine
from types import TracebackType
from typing import Any

CLIENT = "client"
CONTROLLERS = "controllers"
CHUNK_BYTES = 1 << 16
_LENGTH_OF_CLIENT_ID = 12
"""Where it stands in a request: after length, API key, version and correlation id."""


class Links:
    """A context manager. Parts are named `broker-<id>` and `controllers`; whoever else connects is `client`."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="links", daemon=True)
        self._servers: dict[str, asyncio.Server] = {}
        self._cut: set[frozenset[str]] = set()
        self._changed = asyncio.Event()

    def __enter__(self) -> Links:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        async def end() -> None:
            for server in self._servers.values():
                server.close()
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        self._run(end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._loop.close()

    def open(self, part: str, host: str, port: int, target: tuple[str, int]) -> None:
        """Take connections for a part at this address."""

        async def begin() -> None:
            async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                await self._serve(part, target, reader, writer)

            self._servers[f"{part} {host}"] = await asyncio.start_server(serve, host, port)

        self._run(begin())

    def close(self, part: str) -> None:
        """Refuse connections for a part, as the host of a process that has ended does."""

        async def end() -> None:
            for name in [name for name in self._servers if name.split()[0] == part]:
                self._servers.pop(name).close()

        self._run(end())

    def cut(self, one: str, other: str) -> None:
        self._run(self._change(frozenset({one, other}), cut=True))

    def heal(self) -> None:
        """Make all links whole."""
        self._run(self._change(None, cut=False))

    async def _change(self, link: frozenset[str] | None, *, cut: bool) -> None:
        if link is None:
            self._cut.clear()
        elif cut:
            self._cut.add(link)
        self._changed.set()
        self._changed = asyncio.Event()

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    async def _serve(
        self, part: str, target: tuple[str, int], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        upstream: asyncio.StreamWriter | None = None
        try:
            first = await reader.readexactly(_LENGTH_OF_CLIENT_ID + 2)
            (length,) = struct.unpack_from(">h", first, _LENGTH_OF_CLIENT_ID)
            client_id = await reader.readexactly(max(0, length))
            link = frozenset({part, _part_of(client_id.decode())})
            await self._whole(link)
            back, upstream = await asyncio.open_connection(*target)
            upstream.write(first + client_id)
            await asyncio.gather(self._pump(link, reader, upstream), self._pump(link, back, writer))
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            for end in (writer, upstream):
                if end is not None:
                    end.close()

    async def _pump(self, link: frozenset[str], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Ends with an error when either end does, so that both are closed."""
        while True:
            data = await reader.read(CHUNK_BYTES)
            await self._whole(link)
            if not data:
                raise ConnectionResetError
            writer.write(data)
            await writer.drain()

    async def _whole(self, link: frozenset[str]) -> None:
        while link in self._cut:
            await self._changed.wait()


def _part_of(client_id: str) -> str:
    words = client_id.split("-")
    if words[0] == "broker":
        return "-".join(words[:2])
    return CONTROLLERS if words[0] == "controller" else CLIENT
