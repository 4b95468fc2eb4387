"""A calibration as `tracker calibrate` asks for it, in worlds that people build for other things."""

from dataclasses import replace
from datetime import datetime

from benchmarks.killing.engine import answer_to
from eval_jobs.identity import SECOND_SEED, calibration_plan
from eval_jobs.ports import Queue
from eval_jobs.queue_types import Backlog
from eval_jobs.types import Suite
from tracker.ports import RecordStore


def ask_twice(queue: Queue, history: RecordStore, run: str, now: datetime) -> None:
    """Ask for a calibration of the run's first checkpoint once it is evaluated; asking again changes nothing.

    With another concurrency than the run's, so that no verdict depends on whether it came before it or after it.
    """
    for record in history.records(run)[:1]:
        suite = replace(record.plan.suite, concurrency=1)
        plan = calibration_plan(record.plan.checkpoint, suite, record.plan.serve, 1)
        queue.add(plan, now=now, backlog=Backlog.NEWEST, keep=True)


def flipping_answer(question: str, digest: str, suite: Suite) -> str:
    """Return what a checkpoint answers; in the second pass of a calibration it knows nothing."""
    return "no idea" if suite.generation.seed >= SECOND_SEED else answer_to(question, digest)
