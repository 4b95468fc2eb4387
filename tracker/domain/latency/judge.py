"""Latency verdicts: TTFT, TPOT and E2E at median and 95th percentile, with one error rate over the run. Pure.

With an interleaved reference the verdict does not depend on changes of the machine. Without one the checkpoint is
compared with the run's own history and is at most `suspect`. The level of one test is alpha / (planned checkpoints *
3 metrics * loads * 2 quantiles * 3 pools): alpha bounds the chance that noise calls any checkpoint of the run slower.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from eval_jobs.types import EvalRecord, ProbeFailure, ProbeLoad, ProbeResult, ReferenceProbe
from tracker.domain.latency.rules import LEARNING, POOLS, Limits, decisions, word_of_history
from tracker.domain.latency.series import (
    REQUESTS_NEEDED,
    Key,
    contrasts_of,
    earlier_records,
    paired_blocks,
    probe_of,
    quantile_of,
    reference_outcome_of,
    reference_probe_of,
    series_of,
)
from tracker.domain.latency.statistics import BASE, WINDOW, LatencyContrast, faster_p, history_spread, slower_p
from tracker.domain.records import reasons
from tracker.domain.records.policy import LatencyPolicy
from tracker.domain.records.types import LatencyMethod, LatencyMetric, LatencyVerdict, VerdictWord
from tracker.domain.scores.matrix import FloatArray
from tracker.domain.scores.statistics.paired import Spread, interval, mde
from tracker.domain.scores.suspicion import SUSPECT_P

MEDIAN = 0.5
NO_SCATTER = 1e-9
"""A bootstrap error up to this is rounding noise of draws that all agree."""


def judge_latency(
    record: EvalRecord, earlier: Sequence[EvalRecord], policy: LatencyPolicy
) -> tuple[LatencyVerdict, ...]:
    """Return six verdicts for each load of `record`: TTFT, TPOT, E2E, by p50 and p95.

    Records of other runs and of the same or higher steps in `earlier` are ignored. Their order does not matter, and
    their samples are not used. A record without loads has no verdicts.
    """
    if not record.plan.loads:
        return ()
    before = tuple(_of_series(record, earlier_records(record, earlier)))
    keys = product(record.plan.loads, LatencyMetric, REQUESTS_NEEDED)
    return tuple(
        _judged(_Case(record=record, before=before, load=load, key=(metric, quantile), policy=policy))
        for load, metric, quantile in keys
    )


def _of_series(record: EvalRecord, earlier: Iterable[EvalRecord]) -> Iterator[EvalRecord]:
    series, engine, serve = series_of(record), record.engine, record.plan.serve
    for one in earlier:
        is_same = one.engine == engine and one.plan.serve == serve  # the usual case; hashing takes longer
        if is_same or series_of(one) == series:
            yield one


@dataclass(frozen=True, kw_only=True)
class _Case:
    """One quantile of one metric under one load, and the inputs for its verdict."""

    record: EvalRecord
    before: tuple[EvalRecord, ...]
    """Earlier records of the same series."""
    load: ProbeLoad
    key: Key
    policy: LatencyPolicy

    @property
    def needed(self) -> int:
        return REQUESTS_NEEDED[self.key[1]]

    def limits(self, method: LatencyMethod) -> Limits:
        policy = self.policy
        floor = math.log1p(policy.min_slowdown_p50 if self.key[1] == 0.5 else policy.min_slowdown_p95)
        if method is LatencyMethod.HISTORY:
            return Limits(alpha_test=SUSPECT_P, floor=floor)
        tests = policy.planned_checkpoints * len(LatencyMetric) * len(REQUESTS_NEEDED) * len(POOLS)
        return Limits(alpha_test=policy.alpha / (tests * len(self.record.plan.loads)), floor=floor)

    def blank(self, method: LatencyMethod, requests: int) -> LatencyVerdict:
        """Return a verdict with everything except the decision."""
        return LatencyVerdict(
            load=self.load.name,
            metric=self.key[0],
            quantile=self.key[1],
            word=VerdictWord.INCONCLUSIVE,
            reason=None,
            method=method,
            requests=requests,
            alpha_test=self.limits(method).alpha_test,
        )


def _judged(case: _Case) -> LatencyVerdict:
    found = reference_outcome_of(case.record, case.load)
    if isinstance(found, ReferenceProbe):
        return _against_reference(case, found)
    probe = probe_of(case.record, case.load)
    if probe is None:
        failure = next((p for p in case.record.probes if p.load == case.load and isinstance(p, ProbeFailure)), None)
        blank = case.blank(LatencyMethod.HISTORY, 0)
        reason = reasons.Failed() if failure is None else reasons.Failed(message=failure.message, error=failure.code)
        return replace(blank, word=VerdictWord.MISSING, reason=reason)
    missed = None if found is None else reasons.Failed(message=found.message, error=found.code)
    return replace(_against_history(case, probe), without_reference=missed)


def _against_reference(case: _Case, probe: ReferenceProbe) -> LatencyVerdict:
    metric, quantile = case.key
    blocks = paired_blocks(probe, metric)
    pairs = sum(block.candidate.size for block in blocks)
    blank = replace(case.blank(LatencyMethod.INTERLEAVED, pairs), reference_step=probe.reference_step)
    contrast = contrasts_of(probe, case.record.plan.id).get(case.key)
    if contrast is None:
        return replace(blank, reason=reasons.FewRequests(needed=case.needed))
    blank = replace(
        blank,
        candidate_ms=_mean_quantile([block.candidate for block in blocks], quantile),
        baseline_ms=_mean_quantile([block.reference for block in blocks], quantile),
    )
    if contrast.stderr <= NO_SCATTER:
        return replace(blank, reason=reasons.NoScatter())
    limits = case.limits(LatencyMethod.INTERLEAVED)
    series = [*_earlier_contrasts(case, probe), contrasts_of(probe, case.record.plan.id)]
    decision = decisions([c[case.key] for c in series], limits, [c[metric, MEDIAN] for c in series])[-1]
    noise = decision.noise
    blank = replace(blank, word=decision.word, sessions=decision.sessions, overdispersion=noise.factor)
    blank = replace(blank, between_starts=math.sqrt(noise.between), learned_from=len(series) - 1)
    return _with_evidence(replace(blank, reason=reasons.AgainstReference(learning=LEARNING)), decision.spread, limits)


def _earlier_contrasts(case: _Case, probe: ReferenceProbe) -> list[Mapping[Key, LatencyContrast]]:
    found: list[Mapping[Key, LatencyContrast]] = []
    for record in case.before:
        earlier = reference_probe_of(record, probe)
        contrasts = {} if earlier is None else contrasts_of(earlier, record.plan.id)
        if case.key in contrasts and contrasts[case.key].stderr > NO_SCATTER:
            found.append(contrasts)
    return found


def _mean_quantile(sides: Sequence[FloatArray], quantile: float) -> float:
    """Return the geometric mean of the quantile over both blocks, as used in the ratio."""
    return math.exp(math.fsum(math.log(np.quantile(side, quantile)) for side in sides) / len(sides))


def _against_history(case: _Case, probe: ProbeResult) -> LatencyVerdict:
    blank = case.blank(LatencyMethod.HISTORY, probe.completed)
    time_ms = quantile_of(probe, *case.key)
    if probe.completed < case.needed:
        return replace(blank, reason=reasons.FewRequests(needed=case.needed))
    if time_ms is None:  # an imported file may lack this metric
        return replace(blank, reason=reasons.Failed())
    blank = replace(blank, candidate_ms=time_ms)
    past = [math.log(t) for t in _earlier_times(case)][-WINDOW:]
    blank = replace(blank, learned_from=len(past))
    if len(past) < BASE:
        word = VerdictWord.INCONCLUSIVE if past else VerdictWord.FIRST
        return replace(blank, word=word, reason=reasons.ShortHistory(needed=BASE))
    spread, limits = history_spread(math.log(time_ms), past), case.limits(LatencyMethod.HISTORY)
    verdict = _with_evidence(replace(blank, word=word_of_history(spread, limits)), spread, limits)
    return replace(
        verdict, reason=reasons.AgainstHistory(checkpoints=BASE), baseline_ms=time_ms / math.exp(spread.centre)
    )


def _earlier_times(case: _Case) -> Iterator[float]:
    """Yield the same quantile of the earlier checkpoints with enough requests, in milliseconds."""
    for record in case.before:
        probe = probe_of(record, case.load)
        if probe is not None and probe.completed >= case.needed:
            time_ms = quantile_of(probe, *case.key)
            if time_ms is not None:
                yield time_ms


def _with_evidence(verdict: LatencyVerdict, spread: Spread, limits: Limits) -> LatencyVerdict:
    low, high = interval(spread)
    # Found with 80 % power: significant, and at least the smallest change that matters.
    detectable = max(mde(spread, limits.alpha_test), limits.floor + mde(spread, 0.5))
    return replace(
        verdict,
        ratio=math.exp(spread.centre),
        ci_low=math.exp(low),
        ci_high=math.exp(high),
        p_slower=slower_p(spread),
        p_faster=faster_p(spread),
        detectable=math.exp(detectable),
    )
