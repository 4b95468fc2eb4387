"""Claim plans from the queue, carry them out and store their records.

    python -m eval_jobs.execute.worker.main --queue sqlite:////state/tracker.db --work-dir /state/work

A worker may be killed at any time: the next worker on the machine requeues its plan, or its lease expires. Only missing
answers are requested again. SIGTERM and Ctrl-C release the plan at once.
While the database is unreachable, the worker retries. Logs go to WORK_DIR/worker-PID.log.
"""

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from eval_jobs.errors import ConfigError, ExitCode, StoreError, TrackerError
from eval_jobs.evaluate.selection import EvaluatorByName
from eval_jobs.execute.child import database_from_environment, log_to, stop_with_parent
from eval_jobs.execute.interrupts import Interrupts, LeaseLost, Stopped
from eval_jobs.execute.life import SignOfLife
from eval_jobs.execute.nudge import Nudged
from eval_jobs.execute.worker.claiming import ClaimFilter, PinVisibility
from eval_jobs.execute.worker.execution_window import ExecutionWindow
from eval_jobs.execute.worker.heartbeat import Heartbeat
from eval_jobs.execute.worker.left_claims import UNEXPECTED_END, take_back_left_claims
from eval_jobs.execute.worker.orphans import evaluator_log_name, reap_orphans
from eval_jobs.execute.worker.passes import run_asked
from eval_jobs.execute.worker_name import own_name
from eval_jobs.host.clock import SystemClock
from eval_jobs.host.unforeseen import error_text
from eval_jobs.ports import Clock, Note, Queue, ShowProgress
from eval_jobs.probe.prober import LatencyProber
from eval_jobs.queue import rules
from eval_jobs.queue.address import QUEUE_URL_VARIABLE
from eval_jobs.queue.database_sql import open_database
from eval_jobs.queue.sql_queue import SqlQueue
from eval_jobs.queue_types import Claim
from eval_jobs.records.progress import Progress, Stage, progress_text
from eval_jobs.run import Tools, record_of_failure
from eval_jobs.serve.selection import EngineByKind
from eval_jobs.types import EvalRecord

log = logging.getLogger(__name__)

IDLE_S = 0.5
"""Polling interval of an empty queue."""
STORE_RETRY_S = 5.0


@dataclass(frozen=True, kw_only=True)
class Worker:
    """The parts of one worker."""

    name: str
    queue: Queue
    tools: Tools
    interrupts: Interrupts
    claim_filter: ClaimFilter
    """Selects the plans for this worker, and when they may begin."""
    lease_s: float = rules.LEASE_S
    show: Note = log.debug
    """Called repeatedly with the current activity."""
    nudged: Nudged | None = None
    """None: the worker only polls."""


@dataclass(frozen=True, kw_only=True)
class WorkerOptions:
    """Options of a worker process."""

    queue_url: str
    password: str = field(default="", repr=False)
    work_dir: Path
    lease_s: float = rules.LEASE_S
    parent: int | None = None
    """ID of the process with which the worker ends."""
    visibility: PinVisibility | None = None
    show: Note = log.debug
    is_nudged: bool = False
    """Stdin and stdout are pipes to the process that started this one (see `nudge`)."""


def make_tools(work_dir: Path) -> Tools:
    """Return the real tools, which write only below `work_dir`, after ending processes of killed workers."""
    clock = SystemClock()
    reap_orphans(work_dir)
    return Tools(
        engine=EngineByKind(work_dir, clock),
        evaluator=EvaluatorByName(work_dir, clock, log_name=evaluator_log_name()),
        prober=LatencyProber(),
        clock=clock,
    )


def work(worker: Worker) -> None:
    """Carry out plans until the worker is stopped.

    Raises:
        Stopped: always; it never returns.
    """
    _forget_what_is_done(worker)
    while True:
        claim = _next_claim(worker)
        if claim is None:
            continue
        plan = claim.plan
        suite, step = plan.suite.name, plan.checkpoint.step
        log.info("claimed plan %s: %s step %d, attempt %d", plan.id, suite, step, rules.tries(claim))
        try:
            carry_out(claim, worker)
        except LeaseLost:
            log.warning("abandoning plan %s: another worker has claimed it", plan.id)


def carry_out(claim: Claim, worker: Worker) -> None:
    """Run one claimed plan until it is finished or released.

    Raises:
        Stopped: the plan was released because the worker was requested to stop.
        LeaseLost: the plan belongs to another worker.
    """
    clock, interrupts = worker.tools.clock, worker.interrupts
    what = f"{claim.plan.checkpoint.run_id} step {claim.plan.checkpoint.step}"

    def show(progress: Progress) -> None:
        heartbeat.show(progress)
        worker.show(f"{what}: {progress_text(progress)}")

    def extend(progress: Progress | None, answered: int) -> bool:
        worker.show(f"{what}: {progress_text(progress)}")  # also while the plan reports no progress
        until = rules.lease_end(clock.now(), worker.lease_s)
        return worker.queue.extend(claim, lease_until=until, progress=progress, answered=answered)

    with Heartbeat(extend, on_lost=lambda: interrupts.lose(claim), lease_s=worker.lease_s) as heartbeat:
        try:
            with interrupts.allowed(claim):
                record = _attempt(claim, worker.tools, show)
                again = rules.should_retry(record, claim)
                if again:
                    worker.tools.engine.close()  # the engine may be the cause: the next attempt gets a new one
                    # Held while waiting, so that no other worker uses up the attempts on a restarting server.
                    why = rules.retry_note(record, claim, clock.now())
                    log.warning("plan %s: %s", claim.plan.id, why)
                    heartbeat.show(Progress(stage=Stage.EVALUATING, note=why))
                    clock.sleep(rules.retry_delay_s(rules.tries(claim)))
        except Stopped:
            _give_back(claim, worker, counts=False)
            raise
        if again:
            _give_back(claim, worker, counts=True)
        else:
            _hand_in(record, claim, worker)


def run_worker(options: WorkerOptions) -> None:
    """Claim and carry out plans until a signal stops it; logs go to a file in `work_dir`.

    Raises:
        ConfigError: the settings of the queue's database are invalid.
        StoreError: the database is reachable but unusable.
    """
    log_path = options.work_dir / f"worker-{os.getpid()}.log"
    log_to(log_path)
    nudged = Nudged() if options.is_nudged else None
    interrupts = Interrupts()
    interrupts.install()
    if options.parent is not None:
        stop_with_parent(options.parent, interrupts)
    try:
        with ExitStack() as closing:
            sign = closing.enter_context(SignOfLife(options.work_dir, "worker", SystemClock()))
            options = replace(options, show=_shown(sign, options.show))
            tools = make_tools(options.work_dir)
            closing.callback(tools.engine.close)
            closing.callback(tools.evaluator.close)
            queue = _open_queue(options, tools.clock, interrupts)
            name = str(own_name(log_path))
            log.info("worker %d is ready, log: %s", os.getpid(), log_path)
            worker = Worker(
                name=name,
                queue=queue,
                tools=tools,
                interrupts=interrupts,
                lease_s=options.lease_s,
                claim_filter=ClaimFilter(visibility=options.visibility, window=ExecutionWindow(tools.clock)),
                show=options.show,
                nudged=nudged,
            )
            work(worker)
    except Stopped:
        log.info("stopped")
    except TrackerError:
        log.exception("worker cannot continue")
        raise
    except Exception:
        log.exception(UNEXPECTED_END)
        raise


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a worker until it is stopped; return the exit code."""
    try:
        run_worker(_parse(arguments))
    except TrackerError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return ExitCode.OK


def _open_queue(options: WorkerOptions, clock: Clock, interrupts: Interrupts) -> Queue:
    """Open the queue; while its database is unreachable, retry without a limit.

    Raises:
        StoreError: the database is reachable but unusable.
        Stopped: the worker was requested to stop.
    """
    engine = open_database(options.queue_url, password=options.password)
    while True:
        try:
            return SqlQueue(engine)
        except StoreError as error:
            if not error.retryable:
                raise
            log.warning("cannot open the queue, retrying in %.0f s: %s", STORE_RETRY_S, error)
            options.show("waiting for the database")
        with interrupts.allowed():
            clock.sleep(STORE_RETRY_S)


def _shown(sign: SignOfLife, show: Note) -> Note:
    def both(line: str) -> None:
        sign.give(line)
        show(line)

    return both


def _next_claim(worker: Worker) -> Claim | None:
    """Claim a plan; if the queue is empty or does not respond, wait briefly and return None."""
    clock = worker.tools.clock
    now = clock.now()
    wait_s = IDLE_S
    try:
        take_back_left_claims(worker.queue, worker.name, now)
        lease_until = rules.lease_end(now, worker.lease_s)
        claim_next = partial(worker.queue.claim, worker=worker.name, now=now, lease_until=lease_until)
        claim = worker.claim_filter.choose(worker.queue, lambda runs: claim_next(except_runs=runs), now)
        worker.show(worker.claim_filter.window.shown or "waiting for plans")
    except StoreError as error:
        log.warning("queue not responding, retrying in %.0f s: %s", STORE_RETRY_S, error)
        claim, wait_s = None, STORE_RETRY_S
        worker.show("waiting for the database")
    if claim is None:
        with worker.interrupts.allowed():
            worker.tools.engine.rest()
            worker.tools.prober.rest()
            nap = clock.sleep if worker.nudged is None else worker.nudged.nap
            nap(wait_s)
    return claim


def _attempt(claim: Claim, tools: Tools, progress: ShowProgress) -> EvalRecord:
    """Carry out the plan; a failure becomes a record too."""
    started_at = tools.clock.now()
    try:
        if rules.is_worn_out(claim):
            raise rules.poisoned(claim)
        return run_asked(claim.plan, tools=tools, progress=progress)
    except TrackerError as error:
        log.warning("plan %s failed: %s", claim.plan.id, error)
        reason = error
    except Exception as error:
        # The edge of the daemon: one plan that triggers a bug must not end the evaluation of the whole run.
        log.exception("plan %s: unexpected error", claim.plan.id)
        reason = TrackerError(
            f"unexpected {error_text(error)}", hint=f"report it with the traceback in worker-{os.getpid()}.log"
        )
    return record_of_failure(claim.plan, reason, started_at=started_at, finished_at=tools.clock.now())


def _hand_in(record: EvalRecord, claim: Claim, worker: Worker) -> None:
    """Store the record; retry while the database is unreachable, because it may contain hours of work."""
    while True:
        try:
            stored = worker.queue.finish(claim, record, now=worker.tools.clock.now())
            break
        except StoreError as error:
            log.warning("plan %s: cannot store results, retrying in %.0f s: %s", claim.plan.id, STORE_RETRY_S, error)
            worker.show("waiting for the database to store results")
        with worker.interrupts.allowed(claim):
            worker.tools.clock.sleep(STORE_RETRY_S)
    if not stored:
        log.warning("dropping results of plan %s: another worker has finished or claimed it", claim.plan.id)
        return
    if not rules.may_pass(record):
        worker.tools.evaluator.forget(claim.plan.id)  # else a later repair evaluates only what is missing
    if worker.nudged is not None:
        worker.nudged.report()
    log.info("plan %s finished", claim.plan.id)


def _forget_what_is_done(worker: Worker) -> None:
    """Delete kept answers of plans that are done: their worker was killed after it had stored the results."""
    evaluator = worker.tools.evaluator
    try:
        done = worker.queue.done(evaluator.kept())
    except StoreError as error:  # retried at the next start
        log.warning("cannot delete leftover files of earlier workers: %s", error)
        return
    for plan_id in sorted(done):
        evaluator.forget(plan_id)


def _give_back(claim: Claim, worker: Worker, *, counts: bool) -> None:
    try:
        worker.queue.release(claim, counts=counts)
        log.info("released plan %s", claim.plan.id)
    except StoreError as error:
        log.warning("cannot release plan %s, its lease will expire: %s", claim.plan.id, error)


def _parse(arguments: Sequence[str] | None) -> WorkerOptions:
    parser = argparse.ArgumentParser(prog="python -m eval_jobs.execute.worker.main", description=__doc__)
    parser.add_argument("--queue", default="", help=f"queue database URL (default: ${QUEUE_URL_VARIABLE})")
    parser.add_argument("--work-dir", required=True, type=Path, help="folder for logs and unfinished work")
    parser.add_argument("--exit-with-parent", type=int, metavar="PID", help="exit when process PID exits")
    parser.add_argument("--nudged", action="store_true", help="stdin and stdout are pipes to the parent process")
    parser.add_argument("--lease-s", type=float, default=rules.LEASE_S, help="lease duration in seconds")
    options = parser.parse_args(arguments)
    if not 0 < options.lease_s <= rules.MAX_LEASE_S:
        parser.error(f"--lease-s must be above 0 and at most {rules.MAX_LEASE_S:.0f}")
    url, password = database_from_environment()
    if not (options.queue or url):
        raise ConfigError("missing queue URL", hint=f"pass --queue URL or set {QUEUE_URL_VARIABLE}")
    return WorkerOptions(
        queue_url=options.queue or url,
        password=password,
        work_dir=options.work_dir,
        lease_s=options.lease_s,
        parent=options.exit_with_parent,
        is_nudged=options.nudged,
    )


if __name__ == "__main__":
    sys.exit(main())
