"""A real vLLM that weights can be swapped into, on models whose cold answers are known.

    with swap_server(tmp_path, checkpoint("a")) as server:
        cold = server.canaries()

Started by hand and not through the engine's port: what is tested is the swap itself.
"""

import http.client
import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from eval_jobs.errors import CanaryFailed
from eval_jobs.host.clock import SystemClock
from eval_jobs.serve.process import lifecycle as process
from eval_jobs.serve.process.control import EngineReply, ask, get, post_to_engine, served_model_names
from eval_jobs.serve.process.port import choose_port
from eval_jobs.serve.resident.canary import ask_canaries
from eval_jobs.serve.resident.swap import extension_args, extension_environment, swap
from eval_jobs.serve.weights.fingerprint import Fingerprint, fingerprint_of
from eval_jobs.serve.worker_extension.tracker_worker.weight_files import layout_digest
from eval_jobs.types import Canary, Checkpoint
from tests.tiny_model import checkpoint_record
from tracker.adapters.checkpoints.files.safetensors_file import read_weights

START_TIMEOUT_S = 600.0
SWAP_TIMEOUT_S = 60.0
MODEL = "swapped"
LONG = {
    "prompt": [5, 9],
    "max_tokens": 240,
    "temperature": 0,
    "ignore_eos": True,
    "return_token_ids": True,
}

MAX_MODEL_LEN = 256
"""As the one server of all other tests has it."""


@dataclass(kw_only=True)
class SwapServer:
    """A vLLM of ours and what it holds."""

    port: int
    model: str
    resident: Fingerprint
    engine: process.EngineProcess

    def canaries(self) -> tuple[Canary, ...]:
        return ask_canaries(self.port, self.model, vocab_size=self.resident.vocab_size)

    def canaries_or_none(self) -> tuple[Canary, ...] | None:
        """Return None where the answers are no numbers."""
        try:
            return self.canaries()
        except CanaryFailed:
            return None

    def swap(self, folder: Path) -> None:
        """Swap as the engine does, the digest taken from the folder now."""
        self.swap_record(record_of(folder))

    def swap_record(self, checkpoint: Checkpoint) -> None:
        self.resident = swap(self.port, checkpoint, self.resident, timeout_s=SWAP_TIMEOUT_S)

    def plain_reload(self, folder: Path) -> EngineReply:
        """Reload as vLLM itself offers it, between a pause and a resume."""
        post_to_engine(self.port, "/pause?mode=wait", timeout_s=SWAP_TIMEOUT_S)
        reply = self.call("reload_weights", weights_path=str(folder))
        post_to_engine(self.port, "/resume", timeout_s=SWAP_TIMEOUT_S)
        return reply

    def call(self, method: str, **arguments: object) -> EngineReply:
        return post_to_engine(
            self.port, "/collective_rpc", {"method": method, "kwargs": arguments}, timeout_s=SWAP_TIMEOUT_S
        )

    @contextmanager
    def under_way(self, **changes: object) -> Iterator[list[int]]:
        """Have it answer something long; yields when it has begun, and has all tokens when the context is left."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SWAP_TIMEOUT_S)
        body = json.dumps({**LONG, "model": self.model, "stream": True, **changes})
        connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
        events = connection.getresponse()
        tokens: list[int] = []
        try:
            _take(next(_events(events)), tokens)
            yield tokens
            for event in _events(events):
                _take(event, tokens)
        finally:
            connection.close()

    def long_answer(self) -> list[int]:
        """Return the tokens of something long."""
        with self.under_way() as tokens:
            pass
        assert len(tokens) == LONG["max_tokens"]
        return tokens

    def is_paused(self) -> bool:
        reply = get(self.port, "/is_paused", timeout_s=SWAP_TIMEOUT_S)
        assert isinstance(reply.body, dict)
        return bool(reply.body["is_paused"])

    def label(self) -> object:
        reply = get(self.port, "/weight_info", timeout_s=SWAP_TIMEOUT_S)
        assert isinstance(reply.body, dict)
        return reply.body["weight_version"]


def record_of(folder: Path) -> Checkpoint:
    """Return the record of a checkpoint with the digest that a pin of it would have."""
    return replace(checkpoint_record(folder), digest=read_weights(sorted(folder.glob("*.safetensors"))).digest)


def layout_digest_of(folder: Path) -> str:
    """Return what a swap tells the engine of the tensors in `folder`."""
    return layout_digest(fingerprint_of(folder).tensors)


@contextmanager
def swap_server(
    work_dir: Path, folder: Path, *arguments: str, is_compiled: bool = False, variables: Mapping[str, str] | None = None
) -> Iterator[SwapServer]:
    """Serve the model in `folder` until the context is left."""
    port = choose_port(0)
    argv = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder)]
    argv += ["--served-model-name", MODEL, "--host", "127.0.0.1", "--port", str(port)]
    argv += ["--max-model-len", str(MAX_MODEL_LEN), "--generation-config", "vllm", *extension_args(), *arguments]
    argv += [] if is_compiled else ["--enforce-eager"]
    environment = {
        **os.environ,
        **extension_environment(os.environ),
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        # What runs inside vLLM finds nothing of ours but its own folder.
        "PYTHONSAFEPATH": "1",
        **(variables or {}),
    }
    clock = SystemClock()
    resident = fingerprint_of(folder)
    engine = process.start(argv, environment, folder=work_dir, name=f"engine-{port}", clock=clock)
    try:
        _wait(engine, port, clock)
        yield SwapServer(port=port, model=MODEL, resident=resident, engine=engine)
    finally:
        engine.stop()


# --- private


def _events(response: http.client.HTTPResponse) -> Iterator[dict[str, Any]]:
    for line in response:
        if line.startswith(b"data: {"):
            yield json.loads(line.removeprefix(b"data: "))


def _take(event: Mapping[str, Any], tokens: list[int]) -> None:
    for choice in event["choices"]:
        tokens += choice["token_ids"] or ()


def _wait(engine: process.EngineProcess, port: int, clock: SystemClock) -> None:
    started_at = clock.now()
    while (answer := ask(port, "/v1/models")) is None or served_model_names(answer.body) != (MODEL,):
        assert engine.exit_code() is None, engine.log.read_text()[-3000:]
        assert (clock.now() - started_at).total_seconds() < START_TIMEOUT_S, engine.log.read_text()[-3000:]
        clock.sleep(0.2)
