"""A process that takes SGLang's command line and behaves, or misbehaves, like its server. Starts in 50 ms.

    spec = ServeSpec(engine=EngineKind.SGLANG, python=str(write_interpreter(tmp_path)))

`spec.python` is a shell script that runs this file instead of `-m sglang.launch_server`. Routes, fields and status
codes are those that SGLang documents; what it answers to a prompt depends on the bytes of its weights and on nothing
else, unless a mode says so. As in SGLang, an update makes the path of the weights the model's name, requests wait
while it is paused, and what was computed before an update stays in the cache of prompts until that is flushed.

Modes (`--stand-in MODE`, or GET /mode/MODE later):
    serve          the default
    die, other-model, warms-up (503 from /health for a second), warms-on (for ever, and says so)
    says-no, says-no-200          the update fails: HTTP 400, or 200 with `"success": false`
    does-nothing                  reports success and keeps the old weights
    mixes                         reports success and keeps half of the old weights
    other-path, other-version     names something else after the update
    no-version                    names no version, as versions before 0.5
    other-name                    offers another model after the update
    keeps-name                    offers the name that it was started with after the update
    dies, slow                    in the middle of the update
    no-update, no-pause           knows no such route (404)
    no-flush                      refuses to flush its cache
    stays-paused                  says that it continues, and does not
    remembers                     says that it has flushed, and answers from its cache
    old-routes                    knows the routes of older versions only
    nan                           a probability is NaN
GET /die ends it, GET /state shows what was asked of it. Only the standard library, without the test environment.
"""

import argparse
import hashlib
import json
import os
import sys
import threading
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

VERSION = "0.0.stand-in"
MAX_MODEL_LEN = 512
SLOW_S = 600.0
PAUSED_S = 5.0
"""How long a request waits for the end of a pause, before it fails."""


def write_interpreter(folder: Path) -> Path:
    """Write the shell script to use as `ServeSpec.python` and return its path."""
    path = folder / "python-sglang-stand-in"
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S -I "{__file__}" "$@"\n')
    path.chmod(0o755)
    return path


class Model:
    """The weights, and everything that the server knows of them."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.mode: str = options.stand_in
        self.path: str = options.model_path
        self.name: str = options.served_model_name
        self.version: str = options.weight_version
        self.weights = digest(Path(self.path))
        self.running = threading.Event()
        self.running.set()
        self.cache: dict[tuple[int, ...], list[list[float]]] = {}
        self.asked: list[str] = []
        self.healthy_after = {"warms-up": 4, "warms-on": 10**9}.get(self.mode, 0)

    def answer(self, prompt: Sequence[int], length: int) -> list[list[float]]:
        """Return (log probability, token) pairs; a prompt that is in the cache is answered from there."""
        key = tuple(prompt)
        if key not in self.cache:
            self.cache[key] = [list(_pair(self.weights, key, place)) for place in range(length)]
        return self.cache[key]

    def update(self, path: str, version: str) -> tuple[int, dict[str, object]]:
        """Load other weights; return status and body."""
        if self.mode == "dies":
            os._exit(1)
        if self.mode == "slow":
            threading.Event().wait(SLOW_S)
        if self.mode in ("says-no", "says-no-200") or not Path(path, "config.json").is_file():
            said = "Failed to update weights: shapes differ.\nRolling back to original weights."
            return (200 if self.mode == "says-no-200" else 400), {"success": False, "message": said}
        self._load(path)
        self.path = "/somewhere/else" if self.mode == "other-path" else path
        self.version = "default" if self.mode == "other-version" else version
        if self.mode != "keeps-name":
            self.name = "somebody-elses-model" if self.mode == "other-name" else path
        message = f"Succeeded to update model weights. Weight version updated to {version}."
        return 200, {"success": True, "message": message, "num_paused_requests": 0}

    def _load(self, path: str) -> None:
        new = digest(Path(path))
        if self.mode == "mixes":
            new = new[:32] + self.weights[32:]
        if self.mode != "does-nothing":
            self.weights = new


def digest(folder: Path) -> str:
    """Return the hash of all weights in a folder."""
    found = hashlib.sha256()
    for path in sorted(folder.glob("*.safetensors")):
        found.update(path.read_bytes())
    return found.hexdigest()


def serve(argv: Sequence[str]) -> None:
    """Run as the command line in `argv` says."""
    options = _parse(argv)
    _say("server_args=ServerArgs(...)")
    if options.stand_in == "die":
        _say("ValueError: Model architectures ['NoSuchModel'] are not supported for now.")
        sys.exit(1)
    model = Model(options)
    if options.stand_in == "other-model":
        model.name = "somebody-elses-model"

    class Handler(_Handler):
        served = model

    try:
        server = ThreadingHTTPServer((options.host, options.port), Handler)
    except OSError as error:
        _say(f"OSError: [Errno {error.errno}] Address already in use")
        sys.exit(1)
    server.serve_forever()


# --- private


def _pair(weights: str, prompt: tuple[int, ...], place: int) -> tuple[float, int]:
    seed = hashlib.sha256(f"{weights} {prompt} {place}".encode()).digest()
    return -int.from_bytes(seed[:4], "big") / 2**32, int.from_bytes(seed[4:6], "big") % 90


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="launch_server.py", allow_abbrev=False)
    parser.add_argument("-m", choices=["sglang.launch_server"], required=True)
    for name in ("--model-path", "--served-model-name", "--host", "--tokenizer-path"):
        parser.add_argument(name, required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--weight-version", default="default")
    parser.add_argument("--sampling-defaults", choices=["openai", "model"], default="model")
    parser.add_argument("--stand-in", default="serve")
    for name in ("--dtype", "--context-length", "--mem-fraction-static", "--tp-size", "--max-running-requests"):
        parser.add_argument(name)
    for name in ("--trust-remote-code", "--enable-deterministic-inference"):
        parser.add_argument(name, action="store_true")
    return parser.parse_args(list(argv))


def _say(line: str) -> None:
    sys.stderr.write(f"[2026-01-01 00:00:00] {line}\n")
    sys.stderr.flush()


class _Handler(BaseHTTPRequestHandler):
    served: Model

    def do_GET(self) -> None:
        model, path = self.served, self.path
        model.asked.append(path)
        if path == "/die":
            os._exit(3)
        if path.startswith("/mode/"):
            model.mode = path.removeprefix("/mode/")
        if path in ("/health", "/health_generate"):
            model.healthy_after -= 1
            if model.mode == "warms-on":
                _say("The server is still warming up")
            self._reply(503 if model.healthy_after >= 0 or not model.running.wait(PAUSED_S) else 200, None)
            return
        pages = self._pages()
        self._reply(200 if path in pages else 404, pages.get(path))

    def do_POST(self) -> None:
        body: dict[str, Any] = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
        self.served.asked.append(self.path)
        routes = {
            "/generate": self._generate,
            "/pause_generation": self._pause,
            "/continue_generation": self._continue,
            "/flush_cache": self._flush,
            "/update_weights_from_disk": self._update,
        }
        missing = {"no-pause": "/pause_generation", "no-update": "/update_weights_from_disk"}
        if self.path not in routes or missing.get(self.served.mode) == self.path:
            self._reply(404, {"detail": "Not Found"})
            return
        routes[self.path](body)

    def _pages(self) -> dict[str, object]:
        model = self.served
        listed = {"id": model.name, "object": "model", "root": model.name, "max_model_len": MAX_MODEL_LEN}
        info = {"model_path": model.path, "is_generation": True}
        if model.mode != "no-version":
            info["weight_version"] = model.version
        is_old = model.mode == "old-routes"
        return {
            "/v1/models": {"object": "list", "data": [listed]},
            "/get_model_info" if is_old else "/model_info": info,
            "/get_server_info" if is_old else "/server_info": {"version": VERSION, "model_path": model.path},
            "/state": {"asked": model.asked, "path": model.path, "weights": model.weights, "argv": sys.argv},
            f"/mode/{model.mode}": {},
        }

    def _generate(self, body: dict[str, Any]) -> None:
        model, sampling = self.served, body["sampling_params"]
        if not model.running.wait(PAUSED_S):
            self._reply(503, None)
            return
        pairs = [[*pair, None] for pair in model.answer(body["input_ids"], sampling["max_new_tokens"])]
        if model.mode == "nan":
            pairs[0][0] = float("nan")
        meta: dict[str, object] = {"output_token_logprobs": pairs, "completion_tokens": len(pairs)}
        if model.mode not in ("no-version", "old-routes"):
            meta["weight_version"] = model.version
        self._reply(200, {"text": "", "meta_info": meta})

    def _pause(self, body: dict[str, Any]) -> None:
        self.served.running.clear()
        self._reply(200, {"status": "ok", "mode": body.get("mode")})

    def _continue(self, body: dict[str, Any]) -> None:
        del body
        if self.served.mode != "stays-paused":
            self.served.running.set()
        self._reply(200, {"status": "ok"})

    def _flush(self, body: dict[str, Any]) -> None:
        del body
        if self.served.mode == "no-flush":
            self._reply(400, None)
            return
        if self.served.mode != "remembers":
            self.served.cache.clear()
        self._reply(200, None)

    def _update(self, body: dict[str, Any]) -> None:
        self._reply(*self.served.update(body["model_path"], body.get("weight_version", "default")))

    def _reply(self, status: int, body: object) -> None:
        raw = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, format: str, *args: object) -> None:
        """Stay quiet."""


if __name__ == "__main__":
    serve(sys.argv[1:])
