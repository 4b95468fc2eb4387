"""The faulty proxy in front of an S3 server: it knows what was asked for, and cuts true answers in the middle."""

from dataclasses import dataclass

from aiohttp import web

from tests.fakes.http_proxy import Fault, FaultyProxy


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One request to the server."""

    method: str
    path: str
    """With its query."""
    range: str
    """Of the bytes; empty: all."""
    is_signed: bool

    @property
    def is_listing(self) -> bool:
        return "list-type=2" in self.path

    @property
    def name(self) -> str:
        """Last part of the key."""
        return self.path.partition("?")[0].rpartition("/")[2]


class S3Proxy(FaultyProxy):
    """`faults` counts requests of any kind; `by_name` is about one object and happens once."""

    def __init__(self, target: str) -> None:
        super().__init__(target)
        self.asked: list[Asked] = []
        self.by_name: dict[str, Fault | int] = {}
        """Name of an object -> what happens to the next request for it; a number is the status of a refusal."""
        self.is_down_after_cut = False
        """The first answer that is cut begins an outage."""

    def gets(self, name: str) -> list[str]:
        """Return the ranges that were asked for of the objects of this name."""
        return [asked.range for asked in self.asked if asked.name == name]

    def listings(self) -> int:
        """Return how many pages of listings were asked for."""
        return sum(asked.is_listing for asked in self.asked)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        asked = Asked(
            method=request.method,
            path=request.path_qs,
            range=request.headers.get("Range", ""),
            is_signed="Authorization" in request.headers,
        )
        self.asked.append(asked)
        fault = self.by_name.pop(asked.name, None)
        if isinstance(fault, int):
            return _refusal(fault)
        if fault is not None:
            self.faults[len(self.requests)] = fault
        return await super()._handle(request)

    async def _answered(self, request: web.Request, body: bytes, fault: Fault | None) -> web.StreamResponse:
        if fault is not Fault.ANSWER_CUT:
            return await super()._answered(request, body, fault)
        answer = await self._forward(request, body)
        if self.is_down_after_cut:
            self.always = Fault.REFUSED
        content = answer.body
        assert isinstance(content, bytes)
        cut = web.StreamResponse(status=answer.status, headers=answer.headers)
        cut.headers["Content-Length"] = str(len(content))
        await cut.prepare(request)
        await cut.write(content[: len(content) // 2])
        assert request.transport is not None
        request.transport.close()  # what was written is sent, and then nothing more
        return cut


_CODES = {403: "AccessDenied", 404: "NoSuchBucket", 503: "SlowDown"}


def _refusal(status: int) -> web.Response:
    text = f"<Error><Code>{_CODES[status]}</Code><Message>no</Message></Error>"
    return web.Response(status=status, text=text, content_type="application/xml")
