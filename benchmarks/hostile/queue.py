"""Worker processes that take plans from one SQLite queue as fast as they can: nothing between a claim and its record.

print(measure(plans=500, workers=8))
"""

from __future__ import annotations

import multiprocessing
import statistics
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, replace
from datetime import timedelta
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Barrier
from pathlib import Path

from benchmarks.scale_data import Size, plan_at, record_at
from eval_jobs.host.clock import SystemClock
from eval_jobs.queue.database_sql import open_database
from eval_jobs.queue.sql_queue import SqlQueue

SIZE = Size(benchmarks=2, samples=20)
RUNS = 4
LEASE = timedelta(seconds=60)
START_TIMEOUT_S = 120.0


@dataclass(frozen=True, kw_only=True)
class QueueLoad:
    """What came out of a queue under load."""

    plans: int
    workers: int
    lost: int
    """Plans without a record."""
    doubled: int
    """Plans that were claimed more than once, or have more than one record."""
    claim_p50_ms: float
    claim_p95_ms: float
    claims_per_s: float


def measure(plans: int, workers: int) -> QueueLoad:
    """Fill a queue, let `workers` processes empty it together, and count what was lost and doubled."""
    with tempfile.TemporaryDirectory(prefix="tracker-queue-") as folder:
        url = f"sqlite:///{folder}/tracker.db"
        queue = SqlQueue(open_database(url))
        known = [plan_at(SIZE, f"run-{index % RUNS}", index) for index in range(plans)]
        for plan in known:
            queue.add(plan, now=SystemClock().now())
        begun_s, waits_s, claimed = _emptied(url, workers)
        seconds = time.perf_counter() - begun_s
        records = Counter(record.plan.id for record in queue.finished())
        twice = {plan for plan, times in (claimed + records).items() if times > 2 or claimed[plan] > 1}
        Path(folder, "tracker.db").unlink()
    cuts = statistics.quantiles(waits_s, n=20)
    return QueueLoad(
        plans=plans,
        workers=workers,
        lost=len({plan.id for plan in known} - records.keys()),
        doubled=len(twice),
        claim_p50_ms=1e3 * statistics.median(waits_s),
        claim_p95_ms=1e3 * cuts[-1],
        claims_per_s=len(waits_s) / seconds,
    )


# --- private


def _emptied(url: str, workers: int) -> tuple[float, list[float], Counter[str]]:
    """Return when the workers began, how long each claim took, and how often each plan was claimed."""
    context = multiprocessing.get_context("spawn")
    ready, results = context.Barrier(workers + 1), context.SimpleQueue()
    processes = [context.Process(target=_work, args=(url, f"w{k}", ready, results)) for k in range(workers)]
    for process in processes:
        process.start()
    ready.wait(START_TIMEOUT_S)
    begun_s = time.perf_counter()
    waits_s: list[float] = []
    claimed: Counter[str] = Counter()
    for _ in processes:
        waits, plans = results.get()
        waits_s += waits
        claimed.update(plans)
    for process in processes:
        process.join()
    return begun_s, waits_s, claimed


def _work(url: str, name: str, ready: Barrier, results: SimpleQueue[tuple[list[float], list[str]]]) -> None:
    queue, clock = SqlQueue(open_database(url)), SystemClock()
    record = record_at(SIZE, "run", 0, seed=1)
    waits_s: list[float] = []
    plans: list[str] = []
    ready.wait(START_TIMEOUT_S)
    while True:
        begun_s, now = time.perf_counter(), clock.now()
        claim = queue.claim(worker=name, now=now, lease_until=now + LEASE)
        waits_s.append(time.perf_counter() - begun_s)
        if claim is None:
            break
        plans.append(claim.plan.id)
        queue.extend(claim, lease_until=clock.now() + LEASE)
        queue.finish(claim, replace(record, plan=claim.plan), now=clock.now())
    results.put((waits_s, plans))


if __name__ == "__main__":
    print(measure(plans=500, workers=8))
