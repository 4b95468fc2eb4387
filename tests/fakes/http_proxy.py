"""An HTTP proxy that can fail in every way a network and an overloaded server do, request by request.

    with FaultyProxy("http://127.0.0.1:5000") as proxy:
        proxy.faults[3] = Fault.ANSWER_LOST       # the fourth request from now on
        ...                                       # point a client at proxy.url; then look at proxy.requests

Requests are counted from 0, and from 0 again after `restart_count`.
"""

import asyncio
import threading
from concurrent.futures import Future
from enum import Enum, auto
from types import TracebackType
from typing import Self

from aiohttp import ClientSession, ClientTimeout, TCPConnector, web

HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "content-encoding", "content-length", "host"}


class Fault(Enum):
    """What happens to one request."""

    REFUSED = auto()
    """500 without asking the server."""
    BUSY = auto()
    """503 with Retry-After: 600, without asking the server."""
    ANSWER_LOST = auto()
    """The server does it, and the connection is closed without an answer."""
    ANSWER_CUT = auto()
    """The server does it, and half of the answer arrives."""
    ANSWER_500 = auto()
    """The server does it, and a gateway says 500."""
    PAGE = auto()
    """A gateway answers 200 with a page of HTML, without asking the server."""
    LATE = auto()
    """The connection is closed without an answer; the server does it only when `deliver_late` is called."""
    SILENT = auto()
    """As LATE, but nothing is closed: the client waits until it gives up."""


class FaultyProxy:
    """In front of `target`; runs in a thread of its own while the context is open."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.faults: dict[int, Fault] = {}
        self.always: Fault | None = None
        """Happens to every request that `faults` does not name."""
        self.requests: list[tuple[str, str]] = []
        """Method and path of each request since the last `restart_count`."""
        self._late: list[tuple[web.Request, bytes]] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="faulty proxy", daemon=True)
        self._ended = asyncio.Event()
        self._port = 0

    @property
    def url(self) -> str:
        """Where clients connect."""
        return f"http://127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        self._thread.start()
        self._wait(asyncio.run_coroutine_threadsafe(self._start(), self._loop))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._wait(asyncio.run_coroutine_threadsafe(self._stop(), self._loop))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def restart_count(self) -> None:
        """Forget all faults and what was asked."""
        self.faults.clear()
        self.always = None
        self.requests.clear()

    def deliver_late(self) -> int:
        """Let the server do what was held back; return how many requests that was."""
        late, self._late = self._late, []
        for request, body in late:
            self._wait(asyncio.run_coroutine_threadsafe(self._forward(request, body), self._loop))
        return len(late)

    # --- private

    @staticmethod
    def _wait(future: Future[object]) -> None:
        future.result(60)

    async def _start(self) -> None:
        self._session = ClientSession(
            connector=TCPConnector(limit=0), timeout=ClientTimeout(total=60), auto_decompress=True
        )
        app = web.Application(client_max_size=1 << 30)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self._port = self._runner.addresses[0][1]

    async def _stop(self) -> None:
        self._ended.set()
        await self._runner.cleanup()
        await self._session.close()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        fault = self.faults.get(len(self.requests), self.always)
        self.requests.append((request.method, request.path))
        body = await request.read()
        if fault is Fault.REFUSED:
            return web.Response(status=500, text="internal error")
        if fault is Fault.BUSY:
            return web.Response(status=503, text="busy", headers={"Retry-After": "600"})
        if fault is Fault.PAGE:
            return web.Response(text="<html><body>Please sign in</body></html>", content_type="text/html")
        if fault in (Fault.LATE, Fault.SILENT):
            self._late.append((request, body))
            if fault is Fault.SILENT:
                await self._ended.wait()
            elif request.transport is not None:
                request.transport.abort()
            return web.Response(status=500, text="nobody reads this")
        return await self._answered(request, body, fault)

    async def _answered(self, request: web.Request, body: bytes, fault: Fault | None) -> web.StreamResponse:
        answer = await self._forward(request, body)
        if fault is Fault.ANSWER_500:
            return web.Response(status=500, text="bad gateway")
        if fault is Fault.ANSWER_LOST and request.transport is not None:
            request.transport.abort()
        if fault is Fault.ANSWER_CUT and request.transport is not None:
            cut = web.StreamResponse(headers={"Content-Length": "100000"})
            await cut.prepare(request)
            await cut.write(b'{"run": {"info": ')
            request.transport.abort()
            return cut
        return answer

    async def _forward(self, request: web.Request, body: bytes) -> web.Response:
        headers = {name: value for name, value in request.headers.items() if name.lower() not in HOP_BY_HOP}
        url = f"{self.target}{request.path_qs}"
        async with self._session.request(request.method, url, headers=headers, data=body) as answer:
            content = await answer.read()
            kept = {name: value for name, value in answer.headers.items() if name.lower() not in HOP_BY_HOP}
            return web.Response(status=answer.status, body=content, headers=kept)
