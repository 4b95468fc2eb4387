"""A process that takes vLLM's command line and behaves, or misbehaves, like its API server. Starts in 50 ms.

    spec = ServeSpec(python=str(write_interpreter(tmp_path)), args=("--stand-in", "hang"))

`spec.python` is a shell script that runs this file instead of `-m vllm.entrypoints.openai.api_server`. Modes:
`serve` (the default), `other-model`, `not-http`, `hang`, `deaf` (hangs and ignores SIGTERM), `die`, `crash`,
`lose-the-port`, `family` (with a child that ignores SIGTERM), and those of `vllm_stand_in_model`. GET /mode/NAME
changes it, GET /die ends it, GET /environment shows what it was given, GET /state what was asked of it.
Only the standard library, because it runs without the test environment.
"""

import argparse
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

ROOT_CAUSE = "ValueError: Model architectures ['NoSuchModel'] are not supported for now."


def write_interpreter(folder: Path) -> Path:
    """Write the shell script to use as `ServeSpec.python` and return its path."""
    path = folder / "python-stand-in"
    # -S and -I: no site-packages and no environment, so that it starts fast.
    real = f'[ "$1" = -P ] && exec "{sys.executable}" "$@"'  # asked which packages it has
    path.write_text(f'#!/bin/sh\n{real}\nexec "{sys.executable}" -S -I "{__file__}" "$@"\n')
    path.chmod(0o755)
    return path


def write_interpreter_of_a_newer_vllm(folder: Path) -> Path:
    """Write the script of `write_interpreter`, in which the older launcher is gone."""
    path = write_interpreter(folder)
    gone = 'case "$2" in *.openai.api_server) echo "$0: No module named $2" >&2; exit 1;; esac'
    path.write_text(path.read_text().replace("\n", f"\n{gone}\n", 1))
    return path


def write_interpreter_without_vllm(folder: Path) -> Path:
    """Write a shell script that is a Python interpreter without any installed package."""
    path = folder / "python-bare"
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S -I "$@"\n')
    path.chmod(0o755)
    return path


def serve(argv: Sequence[str]) -> None:
    """Run as the command line in `argv` says."""
    options = _parse(argv)
    _say("INFO 01-01 00:00:00 [api_server.py:1] vLLM API server version 0.0.stand-in")
    _BEHAVIOUR.get(options.stand_in, _listen)(options)


# --- private


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="api_server.py", allow_abbrev=False)
    parser.add_argument("-m")
    parser.add_argument("--model")
    parser.add_argument("--host")
    parser.add_argument("--port", type=int)
    parser.add_argument("--served-model-name")
    parser.add_argument("--lora-modules", type=json.loads)
    parser.add_argument("--stand-in", default="serve")
    for name in ("--dtype", "--generation-config", "--tokenizer", "--max-model-len", "--max-loras", "--max-lora-rank"):
        parser.add_argument(name)
    for name in ("--data-parallel-size", "-dp", "--api_server_count", "--kv-transfer-config", "--kv_offloading_size"):
        parser.add_argument(name)
    for name in ("--max-cpu-loras", "--worker-extension-cls", "--middleware", "--gpu-memory-utilization"):
        parser.add_argument(name)
    for name in ("--disable-uvicorn-access-log", "--enforce-eager", "--trust-remote-code", "--enable-lora"):
        parser.add_argument(name, action="store_true")
    parser.add_argument("--enable-sleep-mode", action="store_true")
    return parser.parse_args(list(argv))


def _say(line: str) -> None:
    sys.stderr.write(f"(APIServer pid={os.getpid()}) {line}\n")
    sys.stderr.flush()


def _listen(options: argparse.Namespace) -> None:
    model = _model_of(options)
    key = os.environ.get("TRACKER_ENGINE_KEY") if options.middleware else None

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            pages: dict[str, object] = {
                "/v1/models": {
                    "object": "list",
                    "data": [{"id": name, "max_model_len": 512} for name in model.names()],
                },
                "/version": {} if model.mode == "no-version" else {"version": "0.0.stand-in"},
                "/environment": dict(os.environ),
                "/state": model.state(),
            }
            if self.path == "/die":
                os._exit(3)
            if self.path.startswith("/mode/"):
                model.mode = self.path.removeprefix("/mode/")
                pages[self.path] = model.mode
            found = (200, pages[self.path]) if self.path in pages else model.get(self.path)
            self._answer(*(found or (404, {"detail": "Not Found"})))

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
            url = urlsplit(self.path)
            is_ours = key is None or url.path == "/v1/completions" or self.headers.get("X-Tracker-Engine-Key") == key
            self._answer(*(model.post(url.path, url.query, body) if is_ours else (403, "for the process that started")))

        def _answer(self, status: int, page: object) -> None:
            body = json.dumps(page).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Stay quiet."""

    try:
        server = ThreadingHTTPServer((options.host, options.port), Handler)
    except OSError as error:
        _say(f"OSError: [Errno {error.errno}] Address already in use")
        sys.exit(1)
    server.serve_forever()


def _model_of(options: argparse.Namespace) -> Any:
    sys.path.insert(0, str(Path(__file__).parent))  # without the test environment there is no package `tests`
    return importlib.import_module("vllm_stand_in_model").Model(options)


def _speak_another_protocol(options: argparse.Namespace) -> None:
    with socket.create_server((options.host, options.port)) as server:
        while True:
            connection, _ = server.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")


def _hang(_: argparse.Namespace) -> None:
    _say("INFO 01-01 00:00:00 [loader.py:1] Loading weights took a while")
    threading.Event().wait()


def _hang_deaf(options: argparse.Namespace) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _hang(options)


def _die(_: argparse.Namespace) -> None:
    _say("ERROR 01-01 00:00:00 [core.py:1] Traceback (most recent call last):")
    _say(f"ERROR 01-01 00:00:00 [core.py:1] {ROOT_CAUSE}")
    _say("RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}")
    sys.exit(1)


def _lose_the_port(options: argparse.Namespace) -> None:
    _say(f"OSError: [Errno 98] error while attempting to bind on address ('{options.host}', 1): address already in use")
    sys.exit(1)


def _crash(_: argparse.Namespace) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _with_family(options: argparse.Namespace) -> None:
    child = "import signal, threading; signal.signal(signal.SIGTERM, signal.SIG_IGN); threading.Event().wait()"
    subprocess.Popen([sys.executable, "-S", "-I", "-c", child])
    _listen(options)


_BEHAVIOUR: dict[str, Callable[[argparse.Namespace], None]] = {
    "serve": _listen,
    "other-model": _listen,
    "not-http": _speak_another_protocol,
    "hang": _hang,
    "deaf": _hang_deaf,
    "die": _die,
    "crash": _crash,
    "lose-the-port": _lose_the_port,
    "family": _with_family,
}

if __name__ == "__main__":
    serve(sys.argv[1:])
