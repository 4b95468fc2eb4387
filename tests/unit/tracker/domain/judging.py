"""Short runs of one benchmark, judged."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from eval_jobs.types import BenchmarkFailure, EvalRecord
from tests.unit.tracker.domain.records import Scores, record_of
from tracker.domain.judge import judge
from tracker.domain.types import Policy, Verdict

NOW = datetime(2026, 2, 1, tzinfo=UTC)
POLICY = Policy(planned_checkpoints=10)


def right(count: int, n: int = 200) -> list[float]:
    """The first `count` of `n` samples right: nested, so the same samples stay right."""
    return [1.0] * count + [0.0] * (n - count)


def run_of(*counts: int | Scores | BenchmarkFailure, n: int = 200, **settings_: Any) -> list[EvalRecord]:
    """One record every 100 steps."""
    return [
        record_of(100 * (i + 1), {"sums": right(c, n) if isinstance(c, int) else c}, **settings_)
        for i, c in enumerate(counts)
    ]


def judged(trajectory: Sequence[EvalRecord], index: int = -1, policy: Policy = POLICY) -> Verdict:
    return judge(trajectory[index], trajectory, policy, now=NOW).verdicts[0]


def words(trajectory: Sequence[EvalRecord], policy: Policy = POLICY) -> list[str]:
    return [judged(trajectory, i, policy).word.value for i in range(len(trajectory))]
