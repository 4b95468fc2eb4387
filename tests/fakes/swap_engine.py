"""A server that takes weights as vLLM with our worker extension does, or fails at any step. Behind `swap` only.

with SwapEngine(says={"/pause": [(500, {"error": "no"})]}) as engine:
    swap(engine.port, ...)
    assert engine.asked == [...]
"""

import contextlib
import json
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from eval_jobs.serve.process.control import KEY, KEY_HEADER

Said = tuple[int, object]
"""Status and JSON; status 0 closes the connection without an answer, -1 answers late."""

LATE_S = 60.0


@dataclass
class SwapEngine:
    """The server; a context manager."""

    says: Mapping[str, list[Said]] = field(default_factory=dict)
    """What a step answers, instead of what is right, the first times; a step is a path, or a method of the workers."""
    label: str = "default"
    tensors: int = 21
    asked: list[str] = field(default_factory=list)
    checked: list[list[str]] = field(default_factory=list)
    """Arguments of `tracker_check`."""

    def __enter__(self) -> Self:
        self._left = {step: list(said) for step, said in self.says.items()}
        self._httpd = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"owner": self}))
        self.port = self._httpd.server_address[1]
        threading.Thread(target=self._httpd.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._httpd.shutdown()
        self._httpd.server_close()

    def answer(self, path: str, body: Mapping[str, Any]) -> Said:
        step = body["method"] if path == "/collective_rpc" else path
        self.asked.append(step)
        if self._left.get(step):
            return self._left[step].pop(0)
        return 200, self._right(step, body)

    def _right(self, step: str, body: Mapping[str, Any]) -> object:
        if step == "tracker_check":
            self.checked.append(body["args"])
            return {"results": [{"refused": ""}]}
        if step == "tracker_load":
            return {"results": [{"digest": self.checked[-1][1], "tensors": self.tensors, "repacked": ["lm_head"]}]}
        if step == "/update_weight_version":
            self.label = body["new_version"]
        return {"weight_version": self.label, "success": True}


class _Handler(BaseHTTPRequestHandler):
    owner: SwapEngine

    def do_GET(self) -> None:
        self._reply(self.owner.answer(self.path, {}))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        is_ours = self.headers.get(KEY_HEADER) == KEY
        self._reply(self.owner.answer(self.path, body) if is_ours else (403, None))

    def _reply(self, said: Said) -> None:
        status, value = said
        if status == 0:
            self.close_connection = True
            return
        if status == -1:
            time.sleep(LATE_S)
        raw = json.dumps(value).encode()
        self.send_response(200 if status == -1 else status)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        with contextlib.suppress(BrokenPipeError):  # who asked may have gone
            self.wfile.write(raw)

    def log_message(self, format: str, *args: object) -> None:
        """Stay quiet."""
