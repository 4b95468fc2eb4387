"""vLLM as a process of our own: one cold start per checkpoint.

    with VllmEngine(work_dir, clock).serving(checkpoint, spec, progress=print) as endpoint:
        ...

An answer at the port proves nothing: another server may have taken it while ours was importing. So the process is
watched, and /v1/models must list the random name that only this start was given.
"""

from __future__ import annotations

import logging
import os
import secrets
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from eval_jobs.errors import (
    ConfigError,
    PortTaken,
    ServeError,
    ServerDied,
    ServerKilled,
    StartTimeout,
    WrongModel,
)
from eval_jobs.ports import Clock, Progress
from eval_jobs.serve import logfile, process
from eval_jobs.serve.checkpoint_files import lora_rank, require_folders, tokenizer_folder
from eval_jobs.serve.launch import HOST, Launch, command, environment
from eval_jobs.serve.machine import machine_id
from eval_jobs.serve.port import Answer, ask, choose_port, model_names
from eval_jobs.types import Checkpoint, Endpoint, EngineInfo, ServeSpec

log = logging.getLogger(__name__)

POLL_S = 0.25
PROGRESS_EVERY_S = 2.0
LOG_TAIL_BYTES = 256_000
STARTING_STOP_GRACE_S = 2.0
"""For an engine that has not answered yet: vLLM ignores SIGTERM while it imports and loads, and has nothing to lose."""

ACCELERATORS = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg", "/dev/accel", "/dev/accel0")
"""Device files of NVIDIA, AMD, WSL and others; where none is there, vLLM runs on the CPU."""


class VllmEngine:
    """`eval_jobs.ports.Engine` on vLLM. Logs stay in `<work_dir>/engines`, one file per start."""

    def __init__(self, work_dir: Path, clock: Clock) -> None:
        self._folder = work_dir.absolute() / "engines"
        self._cache_dir = work_dir.absolute() / "vllm-cache"
        self._clock = clock
        self._running: process.EngineProcess | None = None
        self._stop_grace_s = STARTING_STOP_GRACE_S

    @contextmanager
    def serving(self, checkpoint: Checkpoint, spec: ServeSpec, *, progress: Progress) -> Iterator[Endpoint]:
        """Start vLLM on `checkpoint` and stop it when the context is left."""
        process.reap(self._folder, self._clock)
        try:
            yield self._start(checkpoint, spec, progress)
            if self._running is not None and self._running.exit_code() is not None:
                log.warning("the engine ended by itself while it served step %d, see %s", checkpoint.step, self._log)
        finally:
            self.close()

    def close(self) -> None:
        """Stop the engine if one runs."""
        if self._running is not None:
            self._running.stop(self._stop_grace_s)
            self._running = None  # not before: a stop that a signal interrupts is completed by the next call

    # --- private

    @property
    def _log(self) -> str:
        return str(self._running.log) if self._running is not None else ""

    def _start(self, checkpoint: Checkpoint, spec: ServeSpec, progress: Progress) -> Endpoint:
        started_at = self._clock.now()
        python = interpreter(spec.python)
        launch = self._launch(checkpoint, spec)
        argv = command(launch, spec, python=python)
        env = environment(os.environ, launch)
        self._stop_grace_s = STARTING_STOP_GRACE_S
        self._running = process.start(argv, env, folder=self._folder, name=launch.name, clock=self._clock)
        self._wait_until_ready(self._running, launch, spec, progress)
        self._stop_grace_s = process.STOP_GRACE_S
        info = EngineInfo(
            name="vllm",
            version=_version(launch.port),
            load_method="cold",
            load_s=(self._clock.now() - started_at).total_seconds(),
            log=str(self._running.log),
            machine=machine_id(),
        )
        log.info("step %d is served as %s after %.1f s", checkpoint.step, launch.name, info.load_s)
        url = f"http://{HOST}:{launch.port}/v1"
        return Endpoint(base_url=url, model=launch.name, api_key_env="", info=info, tokenizer=launch.tokenizer)

    def _launch(self, checkpoint: Checkpoint, spec: ServeSpec) -> Launch:
        require_folders(checkpoint)
        return Launch(
            checkpoint=checkpoint,
            name=f"step{checkpoint.step}-{secrets.token_hex(4)}",
            lora_rank=lora_rank(checkpoint),
            # Without one vLLM says best what it misses.
            tokenizer=tokenizer_folder(checkpoint) or checkpoint.uri,
            port=choose_port(spec.port),
            cache_dir=str(self._cache_dir),
            on_cpu=not any(Path(device).exists() for device in ACCELERATORS),
        )

    def _wait_until_ready(
        self, engine: process.EngineProcess, launch: Launch, spec: ServeSpec, progress: Progress
    ) -> None:
        started_at = self._clock.now()
        shown_s = -PROGRESS_EVERY_S
        while not self._answers(engine, launch):
            waited_s = (self._clock.now() - started_at).total_seconds()
            if waited_s >= spec.startup_timeout_s:
                raise _timed_out(engine.log, spec.startup_timeout_s)
            if waited_s - shown_s >= PROGRESS_EVERY_S:
                progress(f"starting the engine ({waited_s:.0f} s)")
                shown_s = waited_s
            self._clock.sleep(POLL_S)

    def _answers(self, engine: process.EngineProcess, launch: Launch) -> bool:
        """Return whether the engine is ready; raise when it never will be."""
        code = engine.exit_code()
        if code is not None:
            raise _died(engine.log, code, launch)
        answer = ask(launch.port, "/v1/models")
        if answer is None or answer.status == 503:
            return False
        names = model_names(answer.body)
        if launch.name in names:
            return True
        raise _wrong(answer, launch, engine.log)


def interpreter(python: str) -> str:
    """Return the path of the interpreter that runs vLLM.

    Raises:
        ConfigError: there is no such program.
    """
    if not python:
        return sys.executable
    path = Path(python).expanduser()
    if path.is_dir():
        raise ConfigError(f"serve.python is a folder: {path}", hint=f"name the interpreter in it: {path}/bin/python")
    found = shutil.which(path)
    if found is None:
        raise ConfigError(
            f"serve.python does not exist or cannot be run: {python}",
            hint="name the Python interpreter of the environment that holds vLLM, such as /opt/vllm/bin/python",
        )
    return found


# --- private


def _version(port: int) -> str:
    answer = ask(port, "/version")
    body = answer.body if answer is not None else None
    return str(body.get("version", "unknown")) if isinstance(body, dict) else "unknown"


def _tail(path: Path) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - LOG_TAIL_BYTES))
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def _wrong(answer: Answer, launch: Launch, log_file: Path) -> WrongModel:
    said = f"HTTP {answer.status} with {', '.join(model_names(answer.body)) or 'no list of models'}"
    return WrongModel(
        f"another server answers on port {launch.port} of {HOST}: "
        f"{said if answer.status else 'something that is not HTTP'} instead of {launch.name}",
        hint=f"set serve.port = 0 to pick a free port; the engine's own log is {log_file}",
        port=launch.port,
    )


def _died(log_file: Path, code: int, launch: Launch) -> ServeError:
    text = _tail(log_file)
    if logfile.PORT_IN_USE in text.lower():
        return PortTaken(
            f"port {launch.port} on {HOST} was taken by another process while the engine started",
            hint=f"try again, or set serve.port = 0 to pick a free port; the engine's log is {log_file}",
            port=launch.port,
        )
    reason = logfile.last_error(text) or "it wrote nothing"
    kind = ServerKilled if code < 0 else ServerDied
    return kind(
        f"the engine ended while loading {launch.checkpoint.uri} ({logfile.exit_words(code)}): {reason}",
        hint=f"{logfile.advice(reason, code)}the whole log is {log_file}",
        exit_code=code,
    )


def _timed_out(log_file: Path, timeout_s: float) -> StartTimeout:
    lines = [line for line in map(logfile.clean, _tail(log_file).splitlines()) if line]
    return StartTimeout(
        f"the engine did not answer within {timeout_s:g} s; its last line was: {lines[-1] if lines else 'nothing'}",
        hint=f"raise serve.startup_timeout_s, or see {log_file}",
    )
