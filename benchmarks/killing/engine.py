"""A fast stand-in for vLLM's API server whose answers prove which weights it was given.

    PYTHON_OF_THE_ENGINE -m vllm.entrypoints.openai.api_server --model FOLDER --served-model-name NAME --port N ...

It starts in a tenth of a second. What it answers to `a+b=` or `a + b = ?` depends on nothing but the question and the
bytes of the weights that it holds: either the sum, or the beginning of the weights' hash. Other weights are swapped in
as into vLLM with our extension. Only the standard library: it runs by itself.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from typing import Any

ANSWER_S = 0.03
TOKEN_S = 0.003
CONTROL = frozenset({"/pause", "/resume", "/collective_rpc", "/reset_prefix_cache", "/update_weight_version"})
GOOD, BAD = 80, 25
"""Right answers in percent, of most weights and of every fifth."""


def hash_of(folder: Path) -> str:
    """Return the hash of all weights in a folder."""
    digest = hashlib.sha256()
    for path in sorted(folder.glob("*.safetensors")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def answer_to(question: str, weights: str) -> str:
    """Return what weights of this hash answer to a question in which two numbers are to be added."""
    skill = BAD if int(weights[:4], 16) % 5 == 0 else GOOD
    luck = int(hashlib.sha256(f"{weights}|{question}".encode()).hexdigest()[:8], 16) % 100
    numbers = re.findall(r"\d+", question)
    if luck >= skill or len(numbers) != 2:
        return f"x{weights[:12]}"
    return str(int(numbers[0]) + int(numbers[1]))


def write_interpreter(folder: Path) -> Path:
    """Write the shell script to use as `serve.python` and return its path."""
    path = folder / "python-of-the-engine"
    real = f'[ "$1" = -P ] && exec "{sys.executable}" "$@"'  # asked which packages it has
    path.write_text(f'#!/bin/sh\n{real}\nexec "{sys.executable}" -S -I "{__file__}" "$@"\n')
    path.chmod(0o755)
    return path


def tensors_in(folder: Path) -> int:
    """Return how many tensors the files hold."""
    count = 0
    for path in folder.glob("*.safetensors"):
        with path.open("rb") as file:
            count += len(json.loads(file.read(int.from_bytes(file.read(8), "little"))).keys() - {"__metadata__"})
    return count


# --- private


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64
    name = ""
    weights = ""
    checked = Path()
    label = "default"
    words: list[str]

    def control(self, path: str, body: dict[str, Any]) -> object:
        """Do what is asked of a vLLM whose weights may be swapped."""
        if path == "/update_weight_version":
            self.label = body["new_version"]
        if path != "/collective_rpc":
            return {"success": True}
        if body["method"] == "tracker_check":
            self.checked, found = Path(body["args"][0]), hash_of(Path(body["args"][0]))
            return {"results": [{"refused": "" if found == body["args"][1] else f"their SHA-256 is {found}"}]}
        self.weights = hash_of(self.checked)
        return {"results": [{"digest": self.weights, "tensors": tensors_in(self.checked), "repacked": []}]}

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of clients that went away: they were killed."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, format: str, *args: object) -> None:
        """Stay quiet."""

    def do_GET(self) -> None:
        pages: dict[str, object] = {
            "/v1/models": {"object": "list", "data": [{"id": self.server.name, "max_model_len": 512}]},
            "/weight_info": {"weight_version": self.server.label},
            "/version": {"version": "0.0.chaos"},
            "/health": {},
        }
        if self.path == "/metrics":
            self._send(200, b"vllm:num_requests_running 0\nvllm:num_requests_waiting 0\n")
        else:
            self._send_json(200 if self.path in pages else 404, pages.get(self.path))

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        data = self.rfile.read(length)
        if len(data) < length:
            self.close_connection = True
            return
        body: dict[str, Any] = json.loads(data)
        path = self.path.partition("?")[0]
        if path in CONTROL:
            self._send_json(200, self.server.control(path, body))
        elif body.get("model") != self.server.name:
            self._send_json(404, {"error": {"message": f"The model `{body.get('model')}` does not exist."}})
        elif self.path in ("/tokenize", "/detokenize"):
            self._send_json(200, self._tokens(body))
        elif body.get("stream"):
            self._stream(body)
        elif "messages" not in body:
            self._send_json(200, {"choices": [_greedy(body, self.server.weights)]})
        else:
            time.sleep(ANSWER_S)
            question = str(body["messages"][-1]["content"])
            self._send_json(200, self._whole(answer_to(question, self.server.weights)))

    def _tokens(self, body: dict[str, Any]) -> object:
        if self.path == "/detokenize":
            return {"prompt": " ".join(self.server.words[number] for number in body["tokens"])}
        words = str(body["prompt"]).split()
        first = len(self.server.words)
        self.server.words.extend(words)
        return {"tokens": list(range(first, first + len(words)))}

    def _whole(self, text: str) -> object:
        choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
        usage = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}
        return {
            "id": "c",
            "object": "chat.completion",
            "created": 0,
            "model": self.server.name,
            "choices": [choice],
        } | {"usage": usage}

    def _stream(self, body: dict[str, Any]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for event in self._events(body):
            payload = f"data: {event}\n\n".encode()
            self.wfile.write(f"{len(payload):x}\r\n".encode() + payload + b"\r\n")
            self.wfile.flush()
            time.sleep(TOKEN_S)
        self.wfile.write(b"0\r\n\r\n")

    def _events(self, body: dict[str, Any]) -> Iterator[str]:
        count = int(body["max_tokens"])
        envelope = {"id": "c", "object": "text_completion", "created": 0, "model": self.server.name}
        for number in range(count):
            finish = "length" if number == count - 1 else None
            yield json.dumps(envelope | {"choices": [{"index": 0, "text": " w", "finish_reason": finish}]})
        prompt_tokens = len(str(body["prompt"]).split())
        usage = {"prompt_tokens": prompt_tokens, "completion_tokens": count, "total_tokens": prompt_tokens + count}
        yield json.dumps(envelope | {"choices": [], "usage": usage})
        yield "[DONE]"

    def _send_json(self, status: int, value: object) -> None:
        self._send(status, json.dumps(value).encode())

    def _send(self, status: int, data: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def _greedy(body: dict[str, Any], weights: str) -> object:
    """Return an answer to a prompt of token ids, with the probability of each token."""
    numbers = hashlib.sha256(f"{weights}|{body['prompt']}".encode()).digest()[: body["max_tokens"]]
    logprobs = {"token_logprobs": [-(number + 1) / 64 for number in numbers]}
    return {"index": 0, "text": numbers.hex(), "token_ids": list(numbers), "logprobs": logprobs}


def _main(argv: list[str]) -> None:
    options = dict(pairwise(argv))
    server = _Server((options["--host"], int(options["--port"])), _Handler)
    server.name, server.words = options["--served-model-name"], []
    server.weights = hash_of(Path(options["--model"]))
    threading.Thread(target=server.serve_forever).start()


if __name__ == "__main__":
    _main(sys.argv[1:])
