"""Starts vLLM on one checkpoint and stops it: one process at a time, verified to serve the requested checkpoint."""

import logging
import os
import secrets
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from eval_jobs.errors import CanaryFailed, ServerDied
from eval_jobs.host.cpu_placement import client_niceness, share_cores
from eval_jobs.ports import Clock, Note
from eval_jobs.serve.process import lifecycle as process
from eval_jobs.serve.process.launch import LAUNCHERS, RUNTIME_ADAPTERS, Launch, command, environment
from eval_jobs.serve.process.port import choose_port
from eval_jobs.serve.process.readiness import death, engine_version, wait_until_ready
from eval_jobs.serve.resident.launch_fingerprint import LaunchFingerprint, launch_fingerprint
from eval_jobs.serve.resident.loaded import Base, Loaded, Resident, folder_state
from eval_jobs.serve.resident.order import Order, runs_on_cpu
from eval_jobs.serve.resident.swap import extension_args, extension_environment
from eval_jobs.serve.weights.digest_check import DigestCheck
from eval_jobs.types import Canary, EngineKind, ServeSpec, SwapPolicy

log = logging.getLogger(__name__)

SICK_STOP_GRACE_S = 2.0
"""For an engine that does not respond (yet): vLLM ignores SIGTERM while it imports and loads; nothing is lost."""


class ColdStarts:
    """Starts engines, one at a time. Logs stay in `<work_dir>/engines`, one file per start."""

    resident_type: type[Resident] = Resident
    """Type of the engines that it starts."""
    # vLLM's; SGLang has its own.
    command = staticmethod(command)
    engine_version = staticmethod(engine_version)

    def __init__(self, work_dir: Path, clock: Clock) -> None:
        self.folder = work_dir.absolute() / "engines"
        self._work_dir = work_dir.absolute()
        self._clock = clock
        self._process: process.EngineProcess | None = None
        self._launchers: dict[str, str] = {}  # by interpreter
        self._is_sick = False
        self._ended_cpu_s = 0.0

    def start(self, order: Order, progress: Note) -> Resident:
        """Start an engine on `order` in place of the running one, and return it when it is ready.

        Raises:
            PortTaken, ServerDied, StartTimeout, WrongModel, CanaryFailed: the hint names the log to read.
            CheckpointUnreadable: the weights are not those that were pinned.
            ConfigError, DiskFull: nothing was started.
        """
        try:
            return self._started(order, progress)
        except ServerDied as error:
            if not error.context.get("lacks_launcher"):
                raise
        self._launchers[order.python] = next(name for name in LAUNCHERS if name != self._launcher(order))
        log.info("starting vLLM as %s", self._launcher(order))
        return self._started(order, progress)

    def stop(self) -> None:
        """Stop the engine if one runs. A stop that a signal interrupts is completed by the next call."""
        if self._process is not None:
            self._process.stop(SICK_STOP_GRACE_S if self._is_sick else process.STOP_GRACE_S)
            self._ended_cpu_s += self._process.used_cpu_s()
            self._process = None

    def used_cpu_s(self) -> float | None:
        """Return the CPU time of all engines so far in seconds, None if they compute on an accelerator."""
        if not runs_on_cpu():
            return None
        return self._ended_cpu_s + (self._process.used_cpu_s() if self._process is not None else 0.0)

    def distrust(self) -> None:
        """Give the engine only a short time to stop: it does not respond as expected."""
        self._is_sick = True

    def launch_fingerprint(self, order: Order) -> LaunchFingerprint:
        """Return the fingerprint of the process that `start` would create."""
        return launch_fingerprint(order, self._environment(order))

    def _started(self, order: Order, progress: Note) -> Resident:
        self.stop()
        launch, spec = self._launch(order), order.spec
        argv = self.command(launch, spec, python=order.python)
        base_files = folder_state(order.checkpoint.base_model)  # before the engine reads it
        self._is_sick = True  # until it is ready
        with DigestCheck(order.checkpoint) as check:
            self._process = process.start(
                argv,
                self._environment(order),
                folder=self.folder,
                name=launch.name,
                clock=self._clock,
                niceness=spec.niceness,
            )
            self._wait(self._process, launch, spec, progress)
            check.demand()
        resident = self._resident(self._process, launch, order)
        resident.base = replace(resident.base, files=base_files)
        model = launch.adapter or launch.name
        resident.keep(Loaded(checkpoint=order.checkpoint, model=model, canaries=_answers(resident, model)))
        # The first prompts may have crashed it: report the engine's error now instead of a lost response later.
        self._wait(self._process, launch, spec, progress)
        self._is_sick = False
        return resident

    # --- private: specific to vLLM

    def _wait(self, running: process.EngineProcess, launch: Launch, spec: ServeSpec, progress: Note) -> None:
        """Return when the engine is ready; raise as `start` if it never will be."""
        wait_until_ready(running, launch, self._clock, timeout_s=spec.startup_timeout_s, progress=progress)

    def _resident(self, running: process.EngineProcess, launch: Launch, order: Order) -> Resident:
        is_vllm_on_cpu = order.on_cpu and order.spec.engine is EngineKind.VLLM
        client_cores = share_cores(running.members()) if is_vllm_on_cpu else ()
        return self.resident_type(
            process=running,
            launch=launch,
            order=order,
            launch_fingerprint=self.launch_fingerprint(order),
            version=self.engine_version(launch.port),
            model=order.model,
            client_cores=client_cores,
            client_niceness=client_niceness(running.pid) if client_cores else 0,
            base=Base(served=order.adapter.served if order.adapter else ""),
        )

    def _launch(self, order: Order) -> Launch:
        name = f"engine-{secrets.token_hex(4)}"
        return Launch(
            checkpoint=order.checkpoint,
            name=name,
            port=choose_port(order.spec.port),
            on_cpu=order.on_cpu,
            tokenizer=order.tokenizer,
            lora_rank=order.adapter.rank if order.adapter else 0,
            adapter=f"{name}-{secrets.token_hex(4)}" if order.adapter else "",
            swap_args=extension_args() if order.spec.swap is SwapPolicy.AUTO else (),
            launcher=self._launcher(order),
        )

    def _launcher(self, order: Order) -> str:
        return self._launchers.get(order.python, LAUNCHERS[0])

    def _environment(self, order: Order) -> dict[str, str]:
        found = environment(
            os.environ,
            cache_dir=str(cache_folder(os.environ, self._work_dir)),
            on_cpu=order.on_cpu,
            is_batch_invariant=order.is_batch_invariant,
        )
        if order.spec.swap is not SwapPolicy.AUTO:
            return found
        return found | dict(extension_environment(os.environ)) | (dict(RUNTIME_ADAPTERS) if order.adapter else {})


def cache_folder(environment: Mapping[str, str], work_dir: Path) -> Path:
    """Return the folder of vLLM's caches: one for all projects of a user; below `work_dir` if it cannot be written.

    vLLM and torch share it between processes and versions, as their defaults in the home folder are shared.
    """
    if chosen := environment.get("VLLM_CACHE_ROOT"):
        return Path(chosen)
    base = Path(environment.get("XDG_CACHE_HOME", ""))
    try:
        shared = (base if base.is_absolute() else Path("~/.cache").expanduser()) / "checkpoint-tracker" / "vllm"
        shared.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # RuntimeError: the user has no home folder
        return work_dir / "vllm-cache"
    return shared if os.access(shared, os.W_OK) else work_dir / "vllm-cache"


def _answers(resident: Resident, model: str) -> tuple[Canary, ...]:
    """Return the canaries, () on failure: a checkpoint that gives NaN is served, and its samples show the problem.

    But an engine that died, or responds with a server error, would answer no sample: that is raised.
    """
    try:
        return resident.ask_canaries(model)
    except CanaryFailed as error:
        died = death(resident.process, resident.order.checkpoint.uri)
        if died is not None:
            raise died from error
        if error.context.get("is_server_error"):
            raise CanaryFailed(error.message, hint=f"read the engine log {resident.process.log}") from error
        log.warning("step %d: %s", resident.order.checkpoint.step, error.message)
        return ()
