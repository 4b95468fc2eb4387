"""Pairs of checkpoints whose true difference is known, as records that a gate judges.

    case, lost = simulated_pair(KINDS[0], seed=7)
    report = gate(case.baseline, case.candidate, case.policy, case.noise)

The answers are those of `benchmarks.verdicts.series`: two-parameter items of which 5 to 15 % flip between neighbouring
checkpoints, in five benchmarks of 100 to 1,319 samples. Baseline and candidate are neighbouring checkpoints of a run
that neither gains nor forgets; a planted loss begins at the candidate, in one benchmark. In the world `pure` samples
are independent; in the world `real` each belongs to one of 10 or 20 clusters that move together, and every checkpoint
as a whole moves too: that jitter is learned from the run, as `tracker gate` does. In the world `passages` each
benchmark has 13 clusters of unequal sizes, of which each moves by 3 points.

The policy is a fixed smallest loss, the default of the gate, or what `tracker gate --init` proposes from the six
checkpoints up to the baseline.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache

import numpy as np

from benchmarks.verdicts.series import (
    CHECKPOINTS,
    PLANTS,
    WORLDS,
    Case,
    Floats,
    Ints,
    Series,
    chances_of,
    draw_items,
    simulate,
)
from benchmarks.verdicts.series import Benchmark as SimulatedBenchmark
from eval_jobs.identity import benchmark_fingerprint, make_plan
from eval_jobs.types import (
    Benchmark,
    Checkpoint,
    CheckpointFormat,
    EvalRecord,
    EvalResult,
    SampleScore,
    SampleStatus,
    ServeSpec,
    Suite,
)
from tracker.domain.compare.view import RunNoise
from tracker.domain.gate.proposal import CHECKPOINTS as PROPOSED_FROM
from tracker.domain.gate.proposal import proposed_policy
from tracker.domain.gate.rules import BenchmarkRule, GatePolicy
from tracker.domain.gate.types import GateCase
from tracker.domain.regression.detector import Track, jitter_of
from tracker.domain.regression.jitter import WINDOW
from tracker.domain.scores.matrix import encoded, matrix_of
from tracker.domain.scores.series import series_key

SIZES = (100, 500, 500, 1319, 1319)
"""Samples of each benchmark."""
NAMES = tuple(f"{n}-samples-{k}" for k, n in enumerate(SIZES))
SUITE = Suite(name="gated", benchmarks=tuple(Benchmark(name=name, adapter="exact") for name in NAMES))
START = datetime(2026, 1, 1, tzinfo=UTC)
MIDDLE = 50
"""Candidate of the pairs without a planted loss."""
HISTORY = WINDOW + 2
"""Checkpoints that the jitter is learned from."""
PASSAGES = "passages"
N_PASSAGES, PASSAGE_LOG_SD, PASSAGE_JITTER = 13, 0.7, 0.03


@dataclass(frozen=True, kw_only=True)
class Kind:
    """Pairs that share a truth and a policy."""

    world: str
    """Of WORLDS, or PASSAGES."""
    plant: str | None = None
    """Of PLANTS; None: both sides are equally able."""
    size: int = 0
    """Samples of the benchmark that loses; 0: none."""
    min_effect: float | None = 0.01
    """Smallest loss that matters, in every benchmark; None: the gate's default."""
    is_proposed: bool = False
    """Whether the policy is that of `tracker gate --init`, whatever `min_effect` is."""
    knows_jitter: bool = True
    """False: the run has no earlier checkpoints."""

    @property
    def loss(self) -> float:
        """True loss of the benchmark that loses."""
        return PLANTS[self.plant].loss if self.plant else 0.0

    @property
    def lost(self) -> str | None:
        """Name of the benchmark that loses."""
        return NAMES[SIZES.index(self.size)] if self.plant else None

    def __str__(self) -> str:
        what = f"{100 * self.loss:g} points of {self.size:,} samples" if self.plant else "nothing lost"
        world = {"pure": "independent", PASSAGES: f"{N_PASSAGES} passages, jitter"}.get(self.world, "clusters, jitter")
        unknown = "" if self.knows_jitter else " not known"
        return f"{what}; {world}{unknown}; {self._policy}"

    @property
    def _policy(self) -> str:
        if self.is_proposed:
            return "proposed policy"
        return "default margin" if self.min_effect is None else f"{100 * self.min_effect:g} matters"


def simulated_pair(kind: Kind, seed: int) -> GateCase:
    """Return two neighbouring checkpoints with the policy and the noise of their run."""
    if kind.world == PASSAGES:
        series = _passages(seed, kind)
    else:
        series = simulate(seed, Case(world=kind.world, trend="plateau", plant=kind.plant), SIZES)
    at = int(series.onset[SIZES.index(kind.size)]) if kind.plant else MIDDLE
    clustered = kind.world == PASSAGES or WORLDS[kind.world].cluster > 0
    first = at - PROPOSED_FROM if kind.is_proposed else at - 1
    *earlier, candidate = (_record(series, t, clustered=clustered) for t in range(first, at + 1))
    policy = GatePolicy(otherwise=BenchmarkRule(min_effect=kind.min_effect))
    if kind.is_proposed:
        noise = _noise(series, earlier[-1], at - 1) if clustered else RunNoise()
        policy = proposed_policy(earlier, NAMES, noise, policy.alpha).to_policy()
    noise = _noise(series, candidate, at) if clustered and kind.knows_jitter else RunNoise()
    return GateCase(baseline=earlier[-1], candidate=candidate, policy=policy, noise=noise)


# --- private


def _passages(seed: int, kind: Kind) -> Series:
    """Simulate like `simulate`, with few passages of unequal size."""
    root = np.random.default_rng([seed, 0x9A55A6E5])
    hit = SIZES.index(kind.size) if kind.plant else None
    benchmarks = []
    for number, (n, rng) in enumerate(zip(SIZES, root.spawn(len(SIZES)), strict=True)):
        items = replace(draw_items(n, rng), groups=_unequal(n, rng))
        expected = rng.uniform(0.4, 0.8) + PASSAGE_JITTER * rng.normal(size=(CHECKPOINTS, N_PASSAGES))
        if kind.plant and number == hit:
            expected -= PLANTS[kind.plant].at(np.arange(CHECKPOINTS) - MIDDLE)[:, None]
        chances = chances_of(items, expected, rng)
        right = rng.random(chances.shape, dtype=np.float32) < chances
        benchmarks.append(SimulatedBenchmark(scores=right.view(np.uint8), groups=items.groups))
    return Series(benchmarks=tuple(benchmarks), onset=np.full(len(SIZES), MIDDLE))


def _unequal(n: int, rng: np.random.Generator) -> Ints:
    shares = rng.lognormal(0.0, PASSAGE_LOG_SD, N_PASSAGES)
    return np.repeat(np.arange(N_PASSAGES), rng.multinomial(n - N_PASSAGES, shares / shares.sum()) + 1)


def _record(series: Series, t: int, *, clustered: bool) -> EvalRecord:
    checkpoint = Checkpoint(
        run_id="run",
        step=1000 * (t + 1),
        uri=f"pins/{t}",
        source_uri=f"out/checkpoint-{t}",
        format=CheckpointFormat.FULL,
        digest=f"{t:064x}",
        ready_at=START,
    )
    outcomes = tuple(
        EvalResult(
            benchmark=benchmark.name,
            fingerprint=benchmark_fingerprint(benchmark, SUITE),
            metric="accuracy",
            samples=tuple(
                _sample(i, f"cluster {group}" if clustered else "", right)
                for i, (group, right) in enumerate(zip(one.groups.tolist(), one.scores[t].tolist(), strict=True))
            ),
            duration_s=1.0,
        )
        for benchmark, one in zip(SUITE.benchmarks, series.benchmarks, strict=True)
    )
    return EvalRecord(
        plan=make_plan(checkpoint, SUITE, ServeSpec(), ()),
        outcomes=outcomes,
        probes=(),
        engine=None,
        started_at=START,
        finished_at=START,
    )


@cache
def _sample(i: int, cluster_id: str, right: int) -> SampleScore:
    """Return the sample, made once: there are millions of them and few that differ."""
    return SampleScore(
        sample_id=f"s{i}", subset="", score=float(right), status=SampleStatus.SCORED, cluster_id=cluster_id
    )


def _noise(series: Series, candidate: EvalRecord, at: int) -> RunNoise:
    """Learn the jitter from the run up to its checkpoint `at`, the candidate."""
    results = [one for one in candidate.outcomes if isinstance(one, EvalResult)]
    jitters = jitter_of([_track(one.scores[: at + 1][-HISTORY:].astype(np.float64)) for one in series.benchmarks])
    return RunNoise(
        jitters={series_key(candidate.plan, one): jitter for one, jitter in zip(results, jitters, strict=True)}
    )


def _track(scores: Floats) -> Track:
    palette = np.array([0.0, 0.0, 1.0])  # the first is that of samples without a score
    matrix = matrix_of([encoded(row, palette) for row in scores], [None] * len(scores), scores.shape[1])
    return Track(scores=matrix, rows=np.arange(len(scores)))
