"""One worker: claims a plan, carries it out, hands in the record, again and again.

    python -m eval_jobs.execute.worker --queue sqlite:////state/tracker.db --work-dir /state/work [--exit-with-parent]

It may be killed at any moment: its lease runs out and another worker takes the plan. SIGTERM and Ctrl-C give the plan
back at once. Logs go to WORK_DIR/worker-PID.log.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import socket
import sys
import threading
from pathlib import Path
from types import FrameType

from eval_jobs.errors import TrackerError
from eval_jobs.evaluate.evalscope import EvalScopeEvaluator
from eval_jobs.execute.clock import SystemClock
from eval_jobs.execute.heartbeat import Heartbeat
from eval_jobs.ports import Queue
from eval_jobs.probe.prober import LatencyProber
from eval_jobs.queue.database_sql import open_database
from eval_jobs.queue.rules import is_worn_out, lease_end, retry_delay_s, should_retry
from eval_jobs.queue.sql_queue import SqlQueue
from eval_jobs.run import Tools, record_of_failure, run_plan
from eval_jobs.serve.selection import EngineByKind
from eval_jobs.types import Claim, EvalRecord

log = logging.getLogger(__name__)

IDLE_S = 0.5
"""Time between two looks at an empty queue."""


class Stopped(BaseException):
    """Somebody asked the worker to end."""


class LeaseLost(BaseException):
    """The plan belongs to another worker by now."""


def make_tools(work_dir: Path) -> Tools:
    """Return the real tools, keeping everything they write below `work_dir`."""
    clock = SystemClock()
    return Tools(
        engine=EngineByKind(work_dir, clock),
        evaluator=EvalScopeEvaluator(work_dir),
        prober=LatencyProber(),
        clock=clock,
    )


def work(queue: Queue, tools: Tools, *, name: str) -> None:
    """Carry out plans until `Stopped` is raised into this thread."""
    while True:
        now = tools.clock.now()
        claim = queue.claim(worker=name, now=now, lease_until=lease_end(now))
        if claim is None:
            tools.clock.sleep(IDLE_S)
            continue
        log.info("plan %s claimed, step %d, try %d", claim.plan.id, claim.plan.checkpoint.step, claim.attempt)
        try:
            carry_out(claim, queue, tools)
        except LeaseLost:
            log.warning("plan %s was taken by another worker; its half-done work is left to it", claim.plan.id)


def carry_out(claim: Claim, queue: Queue, tools: Tools) -> None:
    """Run one claimed plan to its end: finished, given back, or lost."""
    with Heartbeat(claim, queue, tools.clock, on_lost=lambda: os.kill(os.getpid(), signal.SIGUSR1)) as heartbeat:
        try:
            record = _attempt(claim, tools, heartbeat)
            if should_retry(record, claim.attempt):
                log.warning("plan %s: nothing could be measured; trying again", claim.plan.id)
                heartbeat.note(f"waiting before try {claim.attempt + 1}")
                tools.clock.sleep(retry_delay_s(claim.attempt))
                queue.release(claim, now=tools.clock.now())
                return
        except Stopped:
            queue.release(claim, now=tools.clock.now())
            raise
    if queue.finish(claim, record, now=tools.clock.now()):
        tools.evaluator.forget(claim.plan.id)
        log.info("plan %s finished", claim.plan.id)


def main() -> int:
    """Run a worker until it is told to stop; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m eval_jobs.execute.worker", description=__doc__)
    parser.add_argument("--queue", required=True, help="URL of the queue's database")
    parser.add_argument("--work-dir", required=True, type=Path, help="folder for logs and half-done work")
    parser.add_argument("--exit-with-parent", action="store_true", help="stop when the starting process is gone")
    options = parser.parse_args()
    _log_to(options.work_dir / f"worker-{os.getpid()}.log")
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _stop)
    signal.signal(signal.SIGUSR1, _lose)
    if options.exit_with_parent:
        _watch_parent()
    tools = make_tools(options.work_dir)
    try:
        work(SqlQueue(open_database(options.queue)), tools, name=f"{socket.gethostname()}:{os.getpid()}")
    except Stopped:
        log.info("stopped")
    except TrackerError:
        log.exception("the worker cannot go on")
        return 4
    finally:
        tools.evaluator.close()
        tools.engine.close()
    return 0


# --- private


def _attempt(claim: Claim, tools: Tools, heartbeat: Heartbeat) -> EvalRecord:
    started_at = tools.clock.now()
    try:
        if is_worn_out(claim):
            raise TrackerError(
                f"step {claim.plan.checkpoint.step} brought down {claim.lost} workers in a row",
                hint="see the workers' and engines' logs in the state folder; try it alone with `tracker run`",
            )
        return run_plan(claim.plan, tools=tools, progress=heartbeat.note)
    except TrackerError as error:
        reason = error
    except Exception as error:
        log.exception("plan %s: unexpected error", claim.plan.id)
        reason = TrackerError(f"unexpected error: {error!r}", hint=f"its traceback is in worker-{os.getpid()}.log")
    return record_of_failure(claim.plan, reason, started_at=started_at, finished_at=tools.clock.now())


def _log_to(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    logging.basicConfig(
        filename=path, level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", force=True
    )
    logging.getLogger("httpx").setLevel(logging.WARNING)


def _stop(signum: int, frame: FrameType | None) -> None:
    del signum, frame
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # cleaning up takes seconds and must not be interrupted
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise Stopped


def _lose(signum: int, frame: FrameType | None) -> None:
    del signum, frame
    raise LeaseLost


def _watch_parent() -> None:
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            threading.Event().wait(1.0)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()


if __name__ == "__main__":
    sys.exit(main())
