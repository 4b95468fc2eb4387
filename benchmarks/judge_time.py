"""How long it takes to judge one more checkpoint of a long run: 100 checkpoints, 20 benchmarks, up to 14,042 samples.

    python -m benchmarks.judge_time

Prints what one new checkpoint costs: adding its scores to those of the run (one product with every earlier one), and
the verdicts; with every benchmark as a whole, and with its 10 to 57 clusters as subsets. Beside them the same from
nothing, as if the run were read anew, and the memory that the scores take.
"""

from __future__ import annotations

import statistics
import time
from datetime import UTC, datetime, timedelta

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.verdicts.series import SIZES, Case, Series, simulate
from eval_jobs.identity import benchmark_fingerprint, make_plan
from eval_jobs.types import (
    Benchmark,
    Checkpoint,
    CheckpointFormat,
    EvalPlan,
    EvalRecord,
    EvalResult,
    SampleStatus,
    ServeSpec,
    Suite,
)
from tracker.domain.records.policy import Policy
from tracker.domain.records.types import Measure
from tracker.domain.scores.run_scores import RunScores, scores_of, with_record
from tracker.domain.scores.sample_columns import STATUSES, Questions, SampleColumns, object_array, split_columns
from tracker.domain.verdicts.context import RunContext
from tracker.domain.verdicts.judge import judge

NEWEST = 10
"""Checkpoints that are timed, at the end of the run."""

NAMES = tuple(f"benchmark-{k}" for k in range(len(SIZES)))
SUITE = Suite(name="twenty", benchmarks=tuple(Benchmark(name=name, adapter="exact") for name in NAMES))
POLICY = Policy(planned_checkpoints=100)
START = datetime(2026, 1, 1, tzinfo=UTC)


Columns = dict[str, SampleColumns]


def main() -> None:
    """Measure and print."""
    series = simulate(seed=1, case=Case(world="real", trend="improve"))
    table = Table(title="one more checkpoint of 100 x 20 benchmarks, 40,837 samples; medians in ms")
    for name in ("subsets", "add its scores", "judge it", "together", "all anew", "bytes a sample"):
        table.add_column(name, justify="right")
    for with_subsets in (False, True):
        add_ms, judge_ms, anew_ms, size = measure(records_of(series, with_subsets=with_subsets))
        numbers = (add_ms, judge_ms, add_ms + judge_ms, anew_ms)
        table.add_row("10 to 57" if with_subsets else "none", *(f"{n:.0f}" for n in numbers), f"{size:.2f}")
    Console().print(table)


def measure(records: list[tuple[EvalRecord, Columns]]) -> tuple[float, float, float, float]:
    """Return medians of adding, judging and reading anew in ms, and the bytes of a sample at a checkpoint."""
    scores = scores_of("run", records[:-NEWEST])
    adding, judging = [], []
    for record, columns in records[-NEWEST:]:
        begun = time.perf_counter()
        scores = with_record(scores, record, columns)
        added = time.perf_counter()
        judge(record, scores, RunContext(), POLICY, now=START)
        judging.append(1000 * (time.perf_counter() - added))
        adding.append(1000 * (added - begun))
    begun = time.perf_counter()
    scores_of("run", records)
    anew_ms = 1000 * (time.perf_counter() - begun)
    return statistics.median(adding), statistics.median(judging), anew_ms, bytes_of(scores) / (100 * sum(SIZES))


def bytes_of(scores: RunScores) -> int:
    """Return what the values of all measures take; names and Gram matrices left out."""
    return sum(s.matrices[measure].codes.nbytes for s in scores.series.values() for measure in Measure)


def records_of(series: Series, *, with_subsets: bool) -> list[tuple[EvalRecord, Columns]]:
    """Return the simulated run as records with their samples."""
    questions = [
        Questions(
            sample_ids=object_array([f"{name}-{i}" for i in range(b.groups.size)]),
            subsets=object_array([f"subset {g}" if with_subsets else "" for g in b.groups.tolist()]),
            cluster_ids=object_array([f"cluster {g}" for g in b.groups.tolist()]),
        )
        for name, b in zip(NAMES, series.benchmarks, strict=True)
    ]
    rng = np.random.default_rng(0)
    found = []
    for t in range(len(series.benchmarks[0].scores)):
        plan = plan_of(1000 * (t + 1))
        columns = {
            name: next(
                split_columns(
                    [(asked, slice(None))],
                    statuses=np.full(b.groups.size, STATUSES.index(SampleStatus.SCORED)),
                    scores=b.scores[t].astype(np.float64),
                    output_tokens=rng.integers(1, 256, b.groups.size).astype(np.float64),
                )
            )
            for name, asked, b in zip(NAMES, questions, series.benchmarks, strict=True)
        }
        found.append((record_of(plan, t), columns))
    return found


def plan_of(step: int) -> EvalPlan:
    """Return the plan of a checkpoint."""
    checkpoint = Checkpoint(
        run_id="run",
        step=step,
        uri=f"pins/{step}",
        source_uri=f"out/checkpoint-{step}",
        format=CheckpointFormat.FULL,
        digest=f"{step:064x}",
        ready_at=START,
    )
    return make_plan(checkpoint, SUITE, ServeSpec(), ())


def record_of(plan: EvalPlan, t: int) -> EvalRecord:
    """Return what came out; the samples themselves are in the columns."""
    outcomes = tuple(
        EvalResult(
            benchmark=b.name, fingerprint=benchmark_fingerprint(b, SUITE), metric="accuracy", samples=(), duration_s=1.0
        )
        for b in SUITE.benchmarks
    )
    finished_at = START + timedelta(hours=t)
    return EvalRecord(
        plan=plan, outcomes=outcomes, probes=(), engine=None, started_at=finished_at, finished_at=finished_at
    )


if __name__ == "__main__":
    main()
