"""SGLang as a local process: `resident.engine` with SGLang's way of starting and of loading a checkpoint.

Written from its documentation and tested against a fake server, never with a real SGLang (docs/how-to/gpu-node.md).
"""

import os
from dataclasses import dataclass
from pathlib import Path

from eval_jobs.errors import CanaryFailed, StartTimeout
from eval_jobs.ports import Clock, Note
from eval_jobs.serve.process import lifecycle as process
from eval_jobs.serve.process.control import ask, get, served_model_names
from eval_jobs.serve.process.launch import Launch
from eval_jobs.serve.process.readiness import POLL_S, wait_until_ready
from eval_jobs.serve.process.sglang_launch import command, sglang_environment
from eval_jobs.serve.resident.cold import ColdStarts
from eval_jobs.serve.resident.engine import ResidentEngine
from eval_jobs.serve.resident.loaded import LIFE_SIGN_TIMEOUT_S, Resident
from eval_jobs.serve.resident.order import Order
from eval_jobs.serve.sglang.canary import ask_sglang
from eval_jobs.serve.sglang.swap import load_weights, sglang_version
from eval_jobs.types import Canary, ServeSpec


class SglangEngine(ResidentEngine):
    """`eval_jobs.ports.Engine` for SGLang."""

    def __init__(self, work_dir: Path, clock: Clock) -> None:
        super().__init__(work_dir, clock, starts=SglangStarts(work_dir, clock), load_into=load_weights)


@dataclass(kw_only=True)
class SglangResident(Resident):
    """One SGLang engine, and what it holds."""

    last_canaries: tuple[Canary, ...] = ()
    last_digest: str = ""
    """Digest of the weights that gave `last_canaries`."""

    def why_silent(self) -> str:
        """Return why it cannot be used, in words; "" if it responds under its own name and generates a token."""
        answer = ask(self.launch.port, "/v1/models")
        if answer is None:
            return "the engine stopped responding"
        # After a weight update, the path of the weights is the model name.
        if not {self.launch.name, self.newest().model} & set(served_model_names(answer.body)):
            return "another server responded on the engine's port"
        reply = get(self.launch.port, "/health_generate", timeout_s=LIFE_SIGN_TIMEOUT_S)
        if reply.is_ok:
            return ""
        return f"the engine failed its health check ({reply.text or f'HTTP {reply.status}'})"

    def ask_canaries(self, model: str) -> tuple[Canary, ...]:
        """Send the fixed prompts; () if the size of the vocabulary is not known.

        Raises:
            CanaryFailed: a response is invalid, or all are equal to those of other weights: then a weight update
                that was reported as successful had no effect.
        """
        del model  # SGLang serves one model at a time
        if self.model is None:
            return ()
        digest = self.newest().checkpoint.digest if self.loaded else self.launch.checkpoint.digest
        canaries = ask_sglang(self.launch.port, vocab_size=self.model.vocab_size, digest=digest)
        if canaries == self.last_canaries and digest != self.last_digest:
            raise CanaryFailed(
                f"outputs on the fixed prompts are bit-identical to those of the weights {self.last_digest[:12]}",
                hint="the weight update had no effect; restarting the engine",
            )
        self.last_canaries, self.last_digest = canaries, digest
        return canaries


class SglangStarts(ColdStarts):
    """Starts SGLang, one process at a time."""

    resident_type = SglangResident
    command = staticmethod(command)
    engine_version = staticmethod(sglang_version)

    # --- private: specific to SGLang

    def _environment(self, order: Order) -> dict[str, str]:
        del order
        return sglang_environment(os.environ)

    def _wait(self, running: process.EngineProcess, launch: Launch, spec: ServeSpec, progress: Note) -> None:
        """Wait for /health, too: it returns 503 until the first request succeeded, after the model is listed."""
        started_s = self._clock.monotonic_s()
        wait_until_ready(running, launch, self._clock, timeout_s=spec.startup_timeout_s, progress=progress)
        while not _is_healthy(launch.port):
            if self._clock.monotonic_s() - started_s >= spec.startup_timeout_s:
                raise StartTimeout(
                    f"the engine lists its model but is not ready after {spec.startup_timeout_s:g} s",
                    hint=f"increase serve.startup_timeout_s, or read the engine log {running.log}",
                )
            self._clock.sleep(POLL_S)
            wait_until_ready(running, launch, self._clock, timeout_s=spec.startup_timeout_s, progress=progress)


def _is_healthy(port: int) -> bool:
    answer = ask(port, "/health")
    return answer is not None and answer.status == 200
