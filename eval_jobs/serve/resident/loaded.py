"""An engine that stays between checkpoints: what is in it, and whether it still answers as that."""

import json
from dataclasses import dataclass, field
from pathlib import Path

from eval_jobs.serve.process import logfile
from eval_jobs.serve.process.control import ask, get, post_to_engine, served_model_names
from eval_jobs.serve.process.launch import Launch
from eval_jobs.serve.process.lifecycle import EngineProcess
from eval_jobs.serve.resident.canary import ask_canaries
from eval_jobs.serve.resident.launch_fingerprint import LaunchFingerprint
from eval_jobs.serve.resident.order import Order
from eval_jobs.serve.weights.fingerprint import Fingerprint
from eval_jobs.types import Canary, Checkpoint

LIFE_SIGN_TIMEOUT_S = 30.0
"""For one token, or for a word of an engine that sleeps."""

Identity = tuple[str, str, str, str]


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """One checkpoint that is in an engine."""

    checkpoint: Checkpoint
    model: str
    """Name to ask for."""
    method: str = "cold"
    """As `EngineInfo.load_method`."""
    certificate: str = ""
    canaries: tuple[Canary, ...] = ()
    """What it answered when it was new; empty: it could not be asked."""


@dataclass(frozen=True, kw_only=True)
class Base:
    """What adapters are served beside, as it was when their engine was started; empty for full checkpoints."""

    served: str = ""
    """`Adapter.served` of the adapter that it was started with."""
    files: tuple[tuple[str, int, int, int], ...] = ()
    """Names, sizes, times and inodes of the base's files."""


@dataclass(kw_only=True)
class Resident:
    """One engine, and all that it holds."""

    process: EngineProcess
    launch: Launch
    order: Order
    """Of the last service."""
    launch_fingerprint: LaunchFingerprint
    version: str
    model: Fingerprint | None
    """Of what it was started on, or of an adapter's base; None: not known."""
    client_cores: tuple[int, ...] = ()
    """As in `Endpoint`."""
    client_niceness: int = 0
    """As in `Endpoint`."""
    base: Base = Base()
    loaded: dict[Identity, Loaded] = field(default_factory=dict)
    """By `identity`, the one that was used last at the end; a full checkpoint is alone."""
    asleep: int = 0
    """Level of its sleep, 0: awake."""
    idle_since_s: float = 0.0

    @property
    def name(self) -> str:
        """Name of the engine, as in `EngineInfo`."""
        return str(self.order.spec.engine)

    @property
    def engine(self) -> str:
        """Its name and version."""
        return f"{self.name} {self.version}"

    def why_gone(self) -> str:
        """Return why there is no engine any more, in words; "" while its process lives."""
        code = self.process.exit_code()
        if code is None:
            return ""
        return f"the engine exited unexpectedly ({logfile.exit_words(code)})"

    def why_silent(self) -> str:
        """Return why it cannot be used, in words; "" when it answers under its name and gives a sign of life."""
        answer = ask(self.launch.port, "/v1/models")
        if answer is None:
            return "the engine stopped responding"
        if self.launch.name not in served_model_names(answer.body):
            return "another server responded on the engine's port"
        # An API server answers for a core or a worker that is frozen, so those are asked to do something.
        if self.asleep:
            reply = get(self.launch.port, "/is_sleeping", timeout_s=LIFE_SIGN_TIMEOUT_S)
        else:
            # Of an engine with adapters never the base: see `adapters`.
            token = {"model": self.newest().model, "prompt": [0], "max_tokens": 1, "temperature": 0.0}
            reply = post_to_engine(self.launch.port, "/v1/completions", token, timeout_s=LIFE_SIGN_TIMEOUT_S)
        if reply.is_ok:
            return ""
        return f"the engine failed its health check ({reply.text})"

    def ask_canaries(self, model: str) -> tuple[Canary, ...]:
        """Ask `model` the fixed prompts; () where the size of the vocabulary is not known.

        Raises:
            CanaryFailed: they are not answered as they should be.
        """
        if self.model:
            return ask_canaries(self.launch.port, model, vocab_size=self.model.vocab_size)
        return ()

    def keep(self, loaded: Loaded) -> None:
        """Note that a checkpoint is in it, and served last."""
        key = identity(loaded.checkpoint)
        self.loaded.pop(key, None)
        self.loaded[key] = loaded

    def newest(self) -> Loaded:
        """Return what was served last."""
        return list(self.loaded.values())[-1]

    def take_note(self, service: str) -> None:
        """Leave for others what is in it now, and what it does."""
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
    """Return what two checkpoints share that are served the same. Pure."""
    served = checkpoint.files_digest or checkpoint.uri
    return (checkpoint.format.value, checkpoint.digest, served, checkpoint.base_model or "")


def folder_state(folder: str | None) -> tuple[tuple[str, int, int, int], ...]:
    """Return what changes when somebody writes to a file of the folder; () for none, or one that is not there."""
    if folder is None or not Path(folder).is_dir():
        return ()
    states = [(path.name, path.stat()) for path in sorted(Path(folder).iterdir()) if path.is_file()]
    return tuple((name, state.st_size, state.st_mtime_ns, state.st_ino) for name, state in states)
