"""A local server process that keeps running between checkpoints: vLLM (`vllm`) or SGLang (`sglang`).

    with VllmEngine(work_dir, clock).serving(checkpoint, spec, progress=print) as endpoint:
        ...

    strategy       already loaded, may be swapped in, or an adapter of the loaded base? Otherwise a cold start
    warm           swap it in, or load the adapter; the loaded bytes are verified to be the checkpoint's
    canaries       fixed prompts, whose outputs are kept with every checkpoint
    certificate    once for each kind: the same checkpoint is also started cold, and must give bit-identical outputs

Any doubt ends in a cold start.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from eval_jobs.errors import CanaryFailed, ServerDied, SwapFailed, SwapRefused
from eval_jobs.host.machine import device_name, machine_id
from eval_jobs.identity import content_hash
from eval_jobs.ports import Clock, Note
from eval_jobs.serve.process import lifecycle as process
from eval_jobs.serve.process.launch import HOST
from eval_jobs.serve.process.readiness import death
from eval_jobs.serve.resident.certificate import CertificateScope, Proof, canaries_digest, first_difference, store
from eval_jobs.serve.resident.cold import ColdStarts
from eval_jobs.serve.resident.loaded import Identity, Loaded, Resident, identity
from eval_jobs.serve.resident.order import Order, is_without_effect, take_order
from eval_jobs.serve.resident.sleeping import fall_asleep
from eval_jobs.serve.resident.strategy import COLD, STAY, LoadStrategy, choose_strategy, sleep_level
from eval_jobs.types import Between, Canary, Checkpoint, Endpoint, EngineInfo, ServeSpec

log = logging.getLogger(__name__)

KNOWN_ANSWERS = 16
"""Number of checkpoints whose canary outputs are kept, to compare them when they are served again."""


LoadInto = Callable[[Resident, Order, LoadStrategy], Loaded]
"""Signature of `warm.load_into`."""


class ResidentEngine:
    """`eval_jobs.ports.Engine` on a local server. Its files are in `work_dir`: `engines`, `certificates`."""

    def __init__(self, work_dir: Path, clock: Clock, *, starts: ColdStarts, load_into: LoadInto) -> None:
        """Initialize without a running engine."""
        self._starts = starts
        self._load_into = load_into
        self._proofs = work_dir.absolute() / "certificates"
        self._clock = clock
        self._resident: Resident | None = None
        self._answers: dict[tuple[str, Identity], tuple[Canary, ...]] = {}
        self._failures: Counter[str] = Counter()

    @contextmanager
    def serving(self, checkpoint: Checkpoint, spec: ServeSpec, *, progress: Note) -> Iterator[Endpoint]:
        """Load `checkpoint` into the running engine, or start one on it. It keeps running after the context ends."""
        process.reap(self._starts.folder, self._clock)
        order = take_order(checkpoint, spec)
        with ExitStack() as undo:
            undo.callback(self.close)
            endpoint = self._served(order, progress)
            undo.pop_all()
        try:
            yield endpoint
        finally:
            died = self._end_service(order)
        if died is not None:
            raise died

    def rest(self) -> None:
        """Apply `serve.between`, and stop an engine that was idle for too long."""
        resident = self._resident
        if resident is None:
            return
        spec = resident.order.spec
        idle_s = self._clock.monotonic_s() - resident.idle_since_s
        if resident.why_gone():
            log.warning("%s while idle, log: %s", resident.why_gone(), resident.process.log)
            self.close()
        elif spec.between is Between.STOP or idle_s >= spec.idle_timeout_s:
            log.info("stopping the engine: idle for %.0f s", idle_s)
            self.close()
        elif spec.between is Between.SLEEP and not resident.order.on_cpu and not resident.asleep:
            self._fall_asleep(resident)

    def used_cpu_s(self) -> float | None:
        """Return the CPU time of all engines so far in seconds, None if they compute on an accelerator."""
        return self._starts.used_cpu_s()

    def close(self) -> None:
        """Stop the engine if one runs."""
        self._resident = None
        self._starts.stop()

    # --- private: one service

    def _served(self, order: Order, progress: Note) -> Endpoint:
        started_s = self._clock.monotonic_s()
        resident = self._resident
        strategy = choose_strategy(
            order, resident, self._starts.launch_fingerprint(order), proofs=self._proofs, failures=self._failures
        )
        if strategy.is_sick:
            self._starts.distrust()
        if resident is None or strategy.method == COLD:
            reason = strategy.reason
            resident = self._cold(order, reason, progress)
        else:
            resident, reason = self._warm(resident, order, strategy, progress)
        resident.order = order
        loaded = resident.newest()
        load_s = self._clock.monotonic_s() - started_s
        log.info("loaded step %d (%s) in %.2f s: %s", order.checkpoint.step, loaded.method, load_s, reason)
        resident.take_note("serving")
        info = EngineInfo(
            name=resident.name,
            version=resident.version,
            load_method=loaded.method,
            load_s=load_s,
            log=str(resident.process.log),
            machine=machine_id(),
            device=device_name(on_cpu=order.on_cpu),
            gpus=order.gpus,
            is_batch_invariant=order.is_batch_invariant,
            canaries=loaded.canaries,
            load_reason=reason,
            certificate=loaded.certificate,
        )
        url = f"http://{HOST}:{resident.launch.port}/v1"
        return Endpoint(
            base_url=url,
            model=loaded.model,
            api_key_env="",
            info=info,
            tokenizer=order.tokenizer,
            client_cores=resident.client_cores,
            client_niceness=resident.client_niceness,
        )

    def _end_service(self, order: Order) -> ServerDied | None:
        """Return why the engine died, None if it is kept for the next checkpoint."""
        resident = self._resident
        if resident is None:
            return None
        died = death(resident.process, order.checkpoint.uri)
        if died is not None:
            log.warning("step %d: %s", order.checkpoint.step, died)
            self.close()
            return died
        resident.idle_since_s = self._clock.monotonic_s()
        resident.take_note("idle")
        return None

    def _cold(self, order: Order, reason: str, progress: Note) -> Resident:
        self._resident = None
        log.info("step %d: cold start: %s", order.checkpoint.step, reason)
        if order.spec.between is Between.SLEEP and order.on_cpu:
            log.warning('serve.between = "sleep" has no effect on a CPU: the engine keeps its memory')
        self._resident = resident = self._starts.start(order, progress)
        self._remember(resident, order.checkpoint, resident.newest().canaries)
        return resident

    def _warm(self, resident: Resident, order: Order, strategy: LoadStrategy, progress: Note) -> tuple[Resident, str]:
        """Load `order` into the running engine; if that is not proven to be correct, start it cold and compare.

        Returns: the engine that serves it now, and why it was loaded this way.
        """
        started_s = self._clock.monotonic_s()
        before = resident.newest().canaries
        progress("loading the checkpoint into the running engine")
        attempt = self._attempt(resident, order, strategy)
        if not attempt.doubt and (strategy.proof is not None or strategy.method == STAY):
            self._remember(resident, order.checkpoint, resident.newest().canaries)
            return resident, strategy.reason
        reason = attempt.doubt or strategy.reason
        cold = self._cold(order, reason, progress)
        if strategy.kind is None or not attempt.can_be_compared:
            return cold, reason
        useless = _why_useless(cold, before, strategy.kind)
        if useless:
            return cold, f"{reason}; not compared: {useless}"
        took_s = self._clock.monotonic_s() - started_s
        return cold, f"{reason}; {self._compared(strategy.kind, attempt, cold, took_s)}"

    # --- private: doubts and proofs

    def _attempt(self, resident: Resident, order: Order, strategy: LoadStrategy) -> _Attempt:
        try:
            loaded = self._load_into(resident, order, strategy)
        except SwapRefused as error:
            return _Attempt(doubt=error.message)
        except SwapFailed as error:
            self._starts.distrust()
            if strategy.kind is not None:
                self._failures[strategy.kind.id] += 1
            return _Attempt(doubt=error.message)
        resident.keep(loaded)
        try:
            canaries = resident.ask_canaries(loaded.model)
        except CanaryFailed as error:
            # If the engine died, missing outputs are no evidence about this way of loading.
            is_alive = not (resident.why_gone() or resident.why_silent())
            return _Attempt(doubt=error.message, can_be_compared=is_alive)
        resident.keep(replace(loaded, canaries=canaries))
        known = self._answers.get(self._key(resident, order.checkpoint), ())
        differed = first_difference(canaries, known) if known else ""
        doubt = f"outputs differ from those of its previous load ({differed})" if differed else ""
        return _Attempt(canaries=canaries, doubt=doubt, can_be_compared=bool(canaries))

    def _compared(self, kind: CertificateScope, attempt: _Attempt, cold: Resident, took_s: float) -> str:
        """Compare with the cold start, store the proof, and return the result in words."""
        loaded = cold.newest()
        checkpoint, differed = loaded.checkpoint, attempt.doubt
        if attempt.canaries:
            differed = first_difference(attempt.canaries, loaded.canaries)
        proof = Proof(
            kind=kind,
            date=self._clock.now(),
            checkpoint=f"{checkpoint.run_id} step {checkpoint.step} ({checkpoint.digest[:12]})",
            canaries=canaries_digest(loaded.canaries),
            took_s=took_s,
            differed=differed,
        )
        store(self._proofs, proof)
        if proof.is_certificate:
            return f"bit-identical to a cold start, now certified ({kind.id})"
        log.error("step %d: weight swap changed the outputs: %s", checkpoint.step, proof.differed)
        return f"differs from a cold start, now refused ({kind.id}): {proof.differed}"

    def _remember(self, resident: Resident, checkpoint: Checkpoint, canaries: tuple[Canary, ...]) -> None:
        key = self._key(resident, checkpoint)
        self._answers.pop(key, None)  # moved to the end: the least recently served one is dropped first
        self._answers[key] = canaries
        while len(self._answers) > KNOWN_ANSWERS:
            del self._answers[next(iter(self._answers))]

    def _key(self, resident: Resident, checkpoint: Checkpoint) -> tuple[str, Identity]:
        return content_hash(resident.launch_fingerprint), identity(checkpoint)

    def _fall_asleep(self, resident: Resident) -> None:
        level = sleep_level(resident, self._proofs)
        if not level:
            log.info("stopping the engine: its weights cannot be swapped")
            self.close()
            return
        try:
            fall_asleep(resident.launch.port, level)
        except SwapFailed as error:
            log.warning("%s, log: %s", error.message, resident.process.log)
            self._starts.distrust()
            self.close()
            return
        resident.asleep = level
        resident.take_note("asleep")
        log.info("engine asleep (level %d)", level)


def _why_useless(cold: Resident, before: tuple[Canary, ...], kind: CertificateScope) -> str:
    """Return why a cold start proves nothing about `kind`, "" if it does. `before`: outputs of the previous weights."""
    loaded = cold.newest()
    if not loaded.canaries:
        return "no outputs after the cold start"
    if cold.engine != kind.engine:
        return f"the cold start used {cold.engine}, not {kind.engine}"
    if loaded.canaries == before:
        return "the previous weights give the same outputs"
    if cold.order.adapter is not None and is_without_effect(Path(loaded.checkpoint.uri)):
        return "the adapter has no effect"
    return ""


@dataclass(frozen=True, kw_only=True)
class _Attempt:
    """Result of loading a checkpoint into a running engine."""

    canaries: tuple[Canary, ...] = ()
    doubt: str = ""
    """Why it must not be used; empty: there is no objection."""
    can_be_compared: bool = False
    """Whether a comparison with a cold start would prove something about this way of loading."""
