"""SGLang as a process of our own: `resident.engine` with SGLang's way of starting and of taking in a checkpoint.

Written from its documentation and tested against a stand-in; no real SGLang has been run (docs/how-to/gpu-node.md).
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
from eval_jobs.serve.process.sglang_launch import command, environment
from eval_jobs.serve.resident.cold import ColdStarts
from eval_jobs.serve.resident.engine import ResidentEngine
from eval_jobs.serve.resident.loaded import LIFE_SIGN_TIMEOUT_S, Resident
from eval_jobs.serve.resident.order import Order
from eval_jobs.serve.sglang.canary import ask_canaries
from eval_jobs.serve.sglang.swap import engine_version, load_into
from eval_jobs.types import Canary, ServeSpec


class SglangEngine(ResidentEngine):
    """`eval_jobs.ports.Engine` on SGLang."""

    def __init__(self, work_dir: Path, clock: Clock) -> None:
        """Begin with nothing running."""
        super().__init__(work_dir, clock, starts=SglangStarts(work_dir, clock), load_into=load_into)


@dataclass(kw_only=True)
class SglangResident(Resident):
    """One SGLang, and what it holds."""

    last_canaries: tuple[Canary, ...] = ()
    last_digest: str = ""
    """What was asked last, and of which weights."""

    def why_silent(self) -> str:
        """Return why it cannot be used, in words; "" when it answers under a name of its own and produces a token."""
        answer = ask(self.launch.port, "/v1/models")
        if answer is None:
            return "the engine stopped responding"
        # An update of its weights makes their path its name.
        if not {self.launch.name, self.newest().model} & set(served_model_names(answer.body)):
            return "another server responded on the engine's port"
        reply = get(self.launch.port, "/health_generate", timeout_s=LIFE_SIGN_TIMEOUT_S)
        if reply.is_ok:
            return ""
        return f"the engine failed its health check ({reply.text or f'HTTP {reply.status}'})"

    def ask_canaries(self, model: str) -> tuple[Canary, ...]:
        """Ask the fixed prompts; () where the size of the vocabulary is not known.

        Raises:
            CanaryFailed: they are not answered as they should be, or as other weights answered them: then an update
                that was reported as done has done nothing.
        """
        del model  # it serves one at a time
        if self.model is None:
            return ()
        digest = self.newest().checkpoint.digest if self.loaded else self.launch.checkpoint.digest
        canaries = ask_canaries(self.launch.port, vocab_size=self.model.vocab_size, digest=digest)
        if canaries == self.last_canaries and digest != self.last_digest:
            raise CanaryFailed(
                f"outputs on the fixed prompts are bit-identical to those of the weights {self.last_digest[:12]}",
                hint="the weight update had no effect; restarting the engine",
            )
        self.last_canaries, self.last_digest = canaries, digest
        return canaries


class SglangStarts(ColdStarts):
    """Starts SGLang, one process after the other."""

    resident_type = SglangResident

    # --- private: what is SGLang's own

    def _command(self, launch: Launch, order: Order) -> tuple[str, ...]:
        return command(launch, order.spec, python=order.python)

    def _environment(self, order: Order) -> dict[str, str]:
        del order
        return environment(os.environ)

    def _wait(self, running: process.EngineProcess, launch: Launch, spec: ServeSpec, progress: Note) -> None:
        """Its name is listed before its first request has gone through; until then /health says 503."""
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

    def _version(self, port: int) -> str:
        return engine_version(port)


# --- private


def _is_healthy(port: int) -> bool:
    answer = ask(port, "/health")
    return answer is not None and answer.status == 200
