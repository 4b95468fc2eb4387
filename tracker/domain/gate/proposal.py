"""A policy for `tracker gate` from what a run has shown: what an equal candidate passes, benchmark by benchmark. Pure.

Neighbouring checkpoints of a run differ by little besides noise. Their flips, in the clusters of the benchmark, and the
run's jitter give the standard errors of a pair; from these follows the margin (`margins`).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from statistics import median

from eval_jobs.types import EvalRecord
from tracker.domain.compare.view import ComparedBenchmark, RunNoise, compare_what_can_be
from tracker.domain.gate.contexts import LOOKS_CLUSTERED, as_asked, counted_contexts, subsets_move_together
from tracker.domain.gate.margins import LARGEST, margin_of, power_of_each, typical_spread
from tracker.domain.gate.rules import COUNTS, BenchmarkRule, Clusters, GatePolicy
from tracker.domain.gate.types import Contexts
from tracker.domain.records.policy import Policy
from tracker.domain.scores.statistics.paired import Spread

CHECKPOINTS = 6
"""Newest checkpoints to take flips from."""


class LimitedBy(StrEnum):
    """What makes a margin as large as it is."""

    SAMPLES = "samples"
    CLUSTERS = "clusters"
    """A few clusters might be lost as a whole."""
    JITTER = "jitter"
    """The score moves between checkpoints: more samples do not help."""


@dataclass(frozen=True, kw_only=True)
class ProposedRule:
    """The proposed rule of one benchmark, with what it follows from."""

    benchmark: str
    min_effect: float | None = None
    """None: too few samples, or nothing to compare."""
    clusters: Clusters = Clusters.FOUND
    samples: int = 0
    """With a score on both sides of a pair; 0: no pair has any."""
    contexts: Contexts | None = None
    flips: float = 0.0
    """Share of the samples whose score changed between neighbouring checkpoints: the median over pairs."""
    jitter: float | None = None
    """Standard deviation of the score between checkpoints beyond that, in score units; None: unknown."""
    limit: LimitedBy = LimitedBy.SAMPLES


@dataclass(frozen=True, kw_only=True)
class ProposedPolicy:
    """A policy that was proposed from some checkpoints of a run."""

    run_id: str
    steps: tuple[int, ...]
    alpha: float
    rules: tuple[ProposedRule, ...]
    """In the order of the suite."""

    @property
    def gated(self) -> tuple[ProposedRule, ...]:
        """Return the rules with a margin."""
        return tuple(rule for rule in self.rules if rule.min_effect is not None)

    def to_policy(self) -> GatePolicy:
        """Return the policy: measured benchmarks without a margin are advisory, others have the default margin."""
        rules: dict[str, BenchmarkRule] = {}
        for rule in self.rules:
            if rule.samples:
                has_margin = rule.min_effect is not None
                rules[rule.benchmark] = BenchmarkRule(
                    min_effect=rule.min_effect, clusters=rule.clusters, required=has_margin, min_loss=COUNTS
                )
        return GatePolicy(alpha=self.alpha, benchmarks=rules, otherwise=BenchmarkRule(min_loss=COUNTS))


def proposed_policy(
    records: Sequence[EvalRecord], names: Sequence[str], noise: RunNoise, alpha: float
) -> ProposedPolicy:
    """Return the policy for the benchmarks `names`, from records of one run in the order of their steps.

    The records have their samples and are at least two; `noise` is that of the run.
    """
    pairs = tuple(pairwise(records))
    clusters = {name: _clusters(name, pairs) for name in names}
    policy = GatePolicy(benchmarks={name: BenchmarkRule(clusters=clusters[name]) for name in names})
    measured = _compared(pairs, policy, noise)
    rules = {name: ProposedRule(benchmark=name, clusters=clusters[name]) for name in names}
    for name, ones in measured.items():
        contexts = counted_contexts(records[-1], name, clusters[name])
        rules[name] = _measured(ones, contexts, clusters[name], alpha, len(measured))
    return ProposedPolicy(
        run_id=records[-1].plan.checkpoint.run_id,
        steps=tuple(record.plan.checkpoint.step for record in records),
        alpha=alpha,
        rules=tuple(rules.values()),
    )


def _compared(
    pairs: Iterable[tuple[EvalRecord, EvalRecord]], policy: GatePolicy, noise: RunNoise
) -> dict[str, list[ComparedBenchmark]]:
    """Return what can be compared of the policy's benchmarks in each pair, by benchmark."""
    found: dict[str, list[ComparedBenchmark]] = {}
    for pair in pairs:
        before, after = (as_asked(record, policy) for record in pair)
        for one in compare_what_can_be(before, after, Policy(), noise, examples=0).benchmarks:
            if one.benchmark in policy.benchmarks:
                found.setdefault(one.benchmark, []).append(one)
    return found


def _clusters(name: str, pairs: Sequence[tuple[EvalRecord, EvalRecord]]) -> Clusters:
    """Return the clusters to take into account: subsets, if no context is found and their changes go together."""
    if counted_contexts(pairs[-1][1], name, Clusters.FOUND) is not None:
        return Clusters.FOUND
    smallest = min(subsets_move_together(before, after, name) for before, after in pairs)
    return Clusters.SUBSET if smallest * len(pairs) < LOOKS_CLUSTERED else Clusters.FOUND


def _measured(
    found: Sequence[ComparedBenchmark], contexts: Contexts | None, clusters: Clusters, alpha: float, required: int
) -> ProposedRule:
    newest, spread = found[-1], typical_spread(one.spread_of_run for one in found)
    margin = margin_of(spread, alpha, power_of_each(required))
    return ProposedRule(
        benchmark=newest.benchmark,
        min_effect=margin if margin <= LARGEST else None,
        clusters=clusters,
        samples=newest.comparison.n_common,
        contexts=contexts,
        flips=median((one.comparison.n_lost + one.comparison.n_gained) / one.comparison.n_common for one in found),
        jitter=newest.comparison.jitter or None,
        limit=_limit(spread, typical_spread(one.spread for one in found)),
    )


def _limit(spread: Spread, without_jitter: Spread) -> LimitedBy:
    if spread.stderr**2 > 2 * without_jitter.stderr**2:
        return LimitedBy.JITTER
    return LimitedBy.CLUSTERS if spread.cautious > 1.5 * spread.stderr else LimitedBy.SAMPLES
