"""An engine that keeps running between checkpoints: what it holds, and whether it still responds."""

import json
from dataclasses import dataclass, field
from pathlib import Path

from eval_jobs.host.unforeseen import exit_words
from eval_jobs.serve.process.control import ask, get, post_to_engine, served_model_names
from eval_jobs.serve.process.launch import Launch
from eval_jobs.serve.process.lifecycle import EngineProcess
from eval_jobs.serve.resident.canary import ask_canaries
from eval_jobs.serve.resident.launch_fingerprint import LaunchFingerprint
from eval_jobs.serve.resident.order import Order
from eval_jobs.serve.weights.fingerprint import Fingerprint
from eval_jobs.types import Canary, Checkpoint

LIFE_SIGN_TIMEOUT_S = 30.0
"""Timeout of a health check: one token, or the status of a sleeping engine."""

Identity = tuple[str, str, str, str]


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """One checkpoint that is loaded in an engine."""

    checkpoint: Checkpoint
    model: str
    """Model name to request."""
    method: str = "cold"
    """As `EngineInfo.load_method`."""
    certificate: str = ""
    canaries: tuple[Canary, ...] = ()
    """Outputs right after it was loaded; empty if there are none."""


@dataclass(frozen=True, kw_only=True)
class Base:
    """Base model of adapters, as it was when their engine was started; empty for full checkpoints."""

    served: str = ""
    """`Adapter.served` of the adapter that the engine was started with."""
    files: tuple[tuple[str, int, int, int], ...] = ()
    """Names, sizes, modification times and inodes of the base's files."""


@dataclass(kw_only=True)
class Resident:
    """One engine, and everything that it holds."""

    process: EngineProcess
    launch: Launch
    order: Order
    """The order that was served last."""
    launch_fingerprint: LaunchFingerprint
    version: str
    model: Fingerprint | None
    """Fingerprint of the model that it holds, for adapters of their base; None: not known."""
    client_cores: tuple[int, ...] = ()
    """As in `Endpoint`."""
    client_niceness: int = 0
    """As in `Endpoint`."""
    base: Base = Base()
    loaded: dict[Identity, Loaded] = field(default_factory=dict)
    """By `identity`, the most recently used one last; a full checkpoint is the only entry."""
    asleep: int = 0
    """Sleep level, 0: awake."""
    idle_since_s: float = 0.0

    @property
    def name(self) -> str:
        """Name of the engine, as in `EngineInfo`."""
        return str(self.order.spec.engine)

    @property
    def engine(self) -> str:
        """Name and version of the engine."""
        return f"{self.name} {self.version}"

    def why_gone(self) -> str:
        """Return why the engine is no longer running, in words; "" while its process lives."""
        code = self.process.exit_code()
        if code is None:
            return ""
        return f"the engine exited unexpectedly ({exit_words(code)})"

    def why_silent(self) -> str:
        """Return why it cannot be used, in words; "" if it responds under its own name and passes a health check."""
        answer = ask(self.launch.port, "/v1/models")
        if answer is None:
            return "the engine stopped responding"
        if self.launch.name not in served_model_names(answer.body):
            return "another server responded on the engine's port"
        # The API server responds even if a core or a worker is frozen, so the request must involve those.
        if self.asleep:
            reply = get(self.launch.port, "/is_sleeping", timeout_s=LIFE_SIGN_TIMEOUT_S)
        else:
            # Never from the base of an engine with adapters: see `warm`.
            token = {"model": self.newest().model, "prompt": [0], "max_tokens": 1, "temperature": 0.0}
            reply = post_to_engine(self.launch.port, "/v1/completions", token, timeout_s=LIFE_SIGN_TIMEOUT_S)
        if reply.is_ok:
            return ""
        return f"the engine failed its health check ({reply.text})"

    def ask_canaries(self, model: str) -> tuple[Canary, ...]:
        """Send the fixed prompts to `model`; () if the size of the vocabulary is not known.

        Raises:
            CanaryFailed: a response is missing or invalid.
        """
        if self.model:
            return ask_canaries(self.launch.port, model, vocab_size=self.model.vocab_size)
        return ()

    def keep(self, loaded: Loaded) -> None:
        """Record that a checkpoint is loaded, and was served last."""
        key = identity(loaded.checkpoint)
        self.loaded.pop(key, None)
        self.loaded[key] = loaded

    def newest(self) -> Loaded:
        """Return the checkpoint that was served last."""
        return list(self.loaded.values())[-1]

    def take_note(self, service: str) -> None:
        """Publish what the engine holds and its state, for other processes."""
        newest = self.newest()
        note = {
            "service": service,
            "engine": self.engine,
            "port": self.launch.port,
            "asleep": self.asleep,
            "checkpoints": [[c.checkpoint.run_id, c.checkpoint.step] for c in self.loaded.values()],
            "load_method": newest.method,
            "certificate": newest.certificate,
        }
        self.process.note(json.dumps(note))


def identity(checkpoint: Checkpoint) -> Identity:
    """Return a key that is equal for checkpoints that are served identically. Pure."""
    served = checkpoint.files_digest or checkpoint.uri
    return (checkpoint.format.value, checkpoint.digest, served, checkpoint.base_model or "")


def folder_state(folder: str | None) -> tuple[tuple[str, int, int, int], ...]:
    """Return what changes when a file of the folder is written to or replaced; () for None or a missing folder."""
    if folder is None or not Path(folder).is_dir():
        return ()
    states = [(path.name, path.stat()) for path in sorted(Path(folder).iterdir()) if path.is_file()]
    return tuple((name, state.st_size, state.st_mtime_ns, state.st_ino) for name, state in states)
