"""Which samples of two results can be compared, and what differs when none can. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from eval_jobs.identity import series_fingerprints, series_serving, series_serving_hash, series_settings
from eval_jobs.neutral_settings import neutral_values
from eval_jobs.types import Benchmark, EvalPlan, EvalRecord, EvalResult
from tracker.domain.records.reason_text import difference_text
from tracker.domain.records.reasons import Difference
from tracker.domain.scores.grouping import cluster_index
from tracker.domain.scores.matrix import FloatArray, IntArray
from tracker.domain.scores.summary import result_of, sample_means

_SHOWN_CHARS = 60
_NOT_SHOWN = frozenset(("serve.base_url", "serve.only_when", "benchmark.data"))
"""Settings whose values are long, or may contain a password."""
_OF_NOISE = ("suite.concurrency", "serve.args ")
_OTHER_VERSION = Difference(setting="scoring_version")
"""Equal settings with different fingerprints: another version of the tracker wrote one of them."""


@dataclass(frozen=True, kw_only=True)
class Pairing:
    """Scores of two results on the samples with a score on both sides; repeats are averaged."""

    sample_ids: tuple[str, ...]
    candidate: FloatArray
    """Shape (n,), oriented so that higher is better: the score x, or 1 - x if lower is better."""
    baseline: FloatArray
    """Shape (n,), oriented like `candidate`."""
    clusters: IntArray | None
    """Index of each sample's cluster, shape (n,); None if no cluster has two samples."""
    planned: int
    """Samples planned on either side."""

    @property
    def common_fraction(self) -> float:
        """Samples with a score on both sides / samples planned."""
        if self.planned:
            return len(self.sample_ids) / self.planned
        return 0.0


def pair(candidate: EvalResult, baseline: EvalResult) -> Pairing:
    """Pair two results of one benchmark by sample ID; whether they are comparable is `measured_alike`."""
    now, before = sample_means(candidate), sample_means(baseline)
    common = [key for key in now if key in before]
    planned = {s.sample_id for s in candidate.samples} | {s.sample_id for s in baseline.samples}
    return Pairing(
        sample_ids=tuple(common),
        candidate=_oriented([now[key].score for key in common], candidate),
        baseline=_oriented([before[key].score for key in common], candidate),
        clusters=cluster_index([now[key].cluster_id for key in common]),
        planned=len(planned),
    )


def measured_alike(candidate: EvalRecord, baseline: EvalRecord, benchmark: str) -> bool:
    """Return whether both results of a benchmark had the same settings, as far as these can change a score.

    Serving is separate: `served_alike`.
    """
    now, before = result_of(candidate, benchmark), result_of(baseline, benchmark)
    if now is None or before is None:
        return False
    return series_fingerprints(candidate.plan, [now]) == series_fingerprints(baseline.plan, [before])


def served_alike(candidate: EvalPlan, baseline: EvalPlan) -> bool:
    """Return whether both were served with the same settings, as far as these can change a score."""
    return series_serving_hash(candidate.serve) == series_serving_hash(baseline.serve)


def explain_difference(
    candidate: EvalPlan, baseline: EvalPlan, benchmark: str, *, metrics: tuple[str, str] = ("", "")
) -> tuple[str, ...]:
    """Return one phrase for every setting of `benchmark` or its serving that differs and can change its scores.

    `metrics` are those of both results: the reason if no setting differs.
    """
    for plan in (candidate, baseline):
        if benchmark_of(plan, benchmark) is None:
            return (f"{benchmark} was not evaluated at step {plan.checkpoint.step}",)
    found = differences_of(candidate, baseline, benchmark)
    if found == (_OTHER_VERSION,) and metrics[0] != metrics[1]:
        found = (Difference(setting="metric", now=metrics[0], before=metrics[1]),)
    return tuple(map(difference_text, found))


def differences_of(candidate: EvalPlan, baseline: EvalPlan, benchmark: str) -> tuple[Difference, ...]:
    """Return every setting of `benchmark` or its serving that differs and can change scores; () if a plan lacks it."""
    now, before = benchmark_of(candidate, benchmark), benchmark_of(baseline, benchmark)
    if now is None or before is None:
        return ()
    if bool(now.measured_with) != bool(before.measured_with):  # all other settings exist on one side only
        return _differences({"adapter": now.adapter}, {"adapter": before.adapter})
    found = _differences(series_settings(now, candidate.suite), series_settings(before, baseline.suite))
    now_served, then_served = series_serving(candidate.serve), series_serving(baseline.serve)
    if now_served["engine"] != then_served["engine"]:  # all other settings exist on one side only
        now_served, then_served = {"engine": now_served["engine"]}, {"engine": then_served["engine"]}
    found += _differences(now_served, then_served, "serve.")
    return found or (_OTHER_VERSION,)


def all_differences(candidate: EvalPlan, baseline: EvalPlan, benchmark: str) -> tuple[str, ...]:
    """Return the phrases of `explain_difference`, and those for neutral settings that can change noise."""
    neutral = [one for one in neutral_differences(candidate, baseline) if one.setting.startswith(_OF_NOISE)]
    phrases = explain_difference(candidate, baseline, benchmark)
    if neutral and phrases == (difference_text(_OTHER_VERSION),):
        phrases = ()
    return (*phrases, *map(difference_text, neutral))


def neutral_differences(candidate: EvalPlan, baseline: EvalPlan) -> tuple[Difference, ...]:
    """Return every setting that differs and cannot change a score: an information, the results are comparable."""
    common = {one.name for one in candidate.suite.benchmarks} & {one.name for one in baseline.suite.benchmarks}
    found = _differences(neutral_values(candidate, common), neutral_values(baseline, common))
    return tuple(Difference(setting=one.setting) if one.setting in _NOT_SHOWN else one for one in found)


def benchmark_of(plan: EvalPlan, name: str) -> Benchmark | None:
    """Return a benchmark of a plan; None if the plan lacks it."""
    return next((b for b in plan.suite.benchmarks if b.name == name), None)


def _oriented(scores: list[float], result: EvalResult) -> FloatArray:
    values = np.array(scores, dtype=np.float64)
    if result.higher_is_better:
        return values
    return 1.0 - values


def _differences(
    settings: Mapping[str, object], earlier: Mapping[str, object], prefix: str = ""
) -> tuple[Difference, ...]:
    return tuple(
        Difference(setting=prefix + name, now=_shown(settings.get(name)), before=_shown(earlier.get(name)))
        for name in sorted(settings.keys() | earlier.keys())
        if settings.get(name) != earlier.get(name)
    )


def _shown(value: object) -> str:
    if value is None or value in ((), ""):
        return "the default"
    text = ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
    if len(text) <= _SHOWN_CHARS:
        return text
    return f"{text[:_SHOWN_CHARS]}..."
