"""How long it takes to judge one more checkpoint of a long run: 20 benchmarks of up to 14,042 samples.

    python -m benchmarks.judge_time

Prints what one new checkpoint costs: adding its scores to those of the run (one product with every earlier one), and
the verdicts; with every benchmark as a whole, and with its 10 to 57 clusters as subsets. Beside them the same from
nothing, as if the run were read anew, and the memory that the scores and one judgement take. 1,000 checkpoints need
2 GB.
"""

from __future__ import annotations

import statistics
import time
import tracemalloc
from dataclasses import replace
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
from tracker.domain.records.losses import Measure
from tracker.domain.records.policy import Policy
from tracker.domain.scores.run_scores import RunScores, scores_of, with_record
from tracker.domain.scores.sample_columns import STATUSES, Questions, SampleColumns, object_array, split_columns
from tracker.domain.verdicts.context import RunContext
from tracker.domain.verdicts.judge import judge

NEWEST = 10
"""Checkpoints that are timed, at the end of the run."""

NAMES = tuple(f"benchmark-{k}" for k in range(len(SIZES)))
SUITE = Suite(name="twenty", benchmarks=tuple(Benchmark(name=name, adapter="exact") for name in NAMES))
START = datetime(2026, 1, 1, tzinfo=UTC)


Columns = dict[str, SampleColumns]


def main() -> None:
    """Measure and print."""
    table = Table(title="one more checkpoint of 20 benchmarks, 40,837 samples; medians in ms")
    for name in ("run", "subsets", "add", "judge", "both", "all anew", "bytes a sample", "peak, MB"):
        table.add_column(name, justify="right")
    series = simulate(seed=1, case=Case(world="real", trend="improve"))
    for checkpoints, with_subsets in ((100, False), (100, True), (1000, False)):
        numbers = measure(records_of(lengthened(series, checkpoints), with_subsets=with_subsets))
        table.add_row(f"{checkpoints}", "10 to 57" if with_subsets else "none", *numbers)
    Console().print(table)


def measure(records: list[tuple[EvalRecord, Columns]]) -> tuple[str, ...]:
    """Return medians of adding, judging, both and reading anew, the bytes of a sample, and the peak of judging."""
    policy = Policy(planned_checkpoints=len(records))
    scores = scores_of("run", records[:-NEWEST])
    adding, judging = [], []
    for record, columns in records[-NEWEST:]:
        begun = time.perf_counter()
        scores = with_record(scores, record, columns)
        added = time.perf_counter()
        judge(record, scores, RunContext(), policy, now=START)
        judging.append(1000 * (time.perf_counter() - added))
        adding.append(1000 * (added - begun))
    tracemalloc.start()
    judge(records[-1][0], scores, RunContext(), policy, now=START)
    peak_mb = tracemalloc.get_traced_memory()[1] / 1e6
    tracemalloc.stop()
    begun = time.perf_counter()
    scores_of("run", records)
    anew_ms = 1000 * (time.perf_counter() - begun)
    add_ms, judge_ms = statistics.median(adding), statistics.median(judging)
    size = bytes_of(scores) / (len(records) * sum(SIZES))
    return (*(f"{n:.0f}" for n in (add_ms, judge_ms, add_ms + judge_ms, anew_ms)), f"{size:.2f}", f"{peak_mb:.1f}")


def lengthened(series: Series, checkpoints: int) -> Series:
    """Return a run of `checkpoints`: each later answer is one of the newest 40 to the same question."""
    rng = np.random.default_rng(1)
    benchmarks = []
    for one in series.benchmarks:
        newest = one.scores[-40:]
        drawn = rng.integers(len(newest), size=(checkpoints - len(one.scores), one.groups.size))
        later = np.take_along_axis(newest, drawn, axis=0)
        benchmarks.append(replace(one, scores=np.concatenate([one.scores, later])))
    return replace(series, benchmarks=tuple(benchmarks))


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
