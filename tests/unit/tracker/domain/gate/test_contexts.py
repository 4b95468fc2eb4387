"""Clusters in a gate: which count, what they are called, and what is said where the policy misses them."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest

from eval_jobs.types import EvalRecord, EvalResult
from tests.unit.tracker.domain.making import record_of
from tracker.domain.compare.view import RunNoise
from tracker.domain.gate.contexts import subsets_move_together
from tracker.domain.gate.decision import gate
from tracker.domain.gate.rules import BenchmarkRule, Clusters, GatePolicy
from tracker.domain.gate.types import BenchmarkCheck, Contexts

SCORES = [1.0, 0.0] * 120
PASSAGES = [f"passage:{at // 4}" if at < 200 else "" for at in range(240)]
"""50 passages of 4 questions, and 40 questions alone."""


def in_subsets(record: EvalRecord, size: int) -> EvalRecord:
    (result,) = record.results
    samples = tuple(replace(sample, subset=f"{at // size}") for at, sample in enumerate(result.samples))
    return replace(record, outcomes=(replace(result, samples=samples),))


def checked(
    after: Sequence[float], clusters: Clusters, ids: Sequence[str] = (), *, subset: int = 240
) -> BenchmarkCheck:
    policy = GatePolicy(otherwise=BenchmarkRule(clusters=clusters))
    before, now = (in_subsets(record_of(step, {"b": x}, clusters=ids), subset) for step, x in ((1, SCORES), (2, after)))
    return gate(before, now, policy, RunNoise()).benchmarks[0]


def flipped(chance: Random, *, together: float) -> list[float]:
    """One answer in ten flips; with `together` all flips of a subset of 12 may be losses, or gains."""
    after = []
    for at, score in enumerate(SCORES):
        toward = float(at // 12 % 2)
        is_flip = chance.random() < 0.1
        after.append(toward if chance.random() < together else 1.0 - score if is_flip else score)
    return after


@pytest.mark.parametrize(
    ("clusters", "ids", "subset", "contexts", "method"),
    [
        (Clusters.FOUND, PASSAGES, 240, Contexts(kind="passage", count=50, samples=200), "clustered-t"),
        (Clusters.FOUND, [f"document:{at // 2}" for at in range(240)], 240, ("document", 120, 240), "clustered-t"),
        (Clusters.FOUND, [f"page {at // 2}" for at in range(240)], 240, ("cluster", 120, 240), "clustered-t"),
        (Clusters.FOUND, (), 12, None, "mcnemar-midp"),
        (Clusters.SUBSET, (), 12, ("subset", 20, 240), "clustered-t"),
        (Clusters.SUBSET, PASSAGES, 12, ("subset", 20, 240), "clustered-t"),
        (Clusters.NONE, PASSAGES, 12, None, "mcnemar-midp"),
    ],
)
def test_the_policy_says_which_clusters_count_and_they_are_named(
    clusters: Clusters, ids: Sequence[str], subset: int, contexts: Contexts | tuple[str, int, int] | None, method: str
) -> None:
    check = checked(flipped(Random(1), together=0.0), clusters, ids, subset=subset)  # noqa: S311 - no secret
    if isinstance(contexts, tuple):
        contexts = Contexts(kind=contexts[0], count=contexts[1], samples=contexts[2])
    assert check.clusters.contexts == contexts
    assert check.compared is not None
    assert check.compared.comparison.method == method


def test_questions_of_one_passage_make_the_errors_of_scores_and_changes_larger() -> None:
    lost = [0.0 if at % 40 < 4 else score for at, score in enumerate(SCORES)]
    alone, together = (checked(lost, clusters, PASSAGES) for clusters in (Clusters.NONE, Clusters.FOUND))
    assert alone.compared is not None
    assert together.compared is not None
    assert together.compared.spread_of_run.stderr > 1.2 * alone.compared.spread_of_run.stderr
    assert (alone.compared.after.units, together.compared.after.units) == (240, 90)
    assert (together.min_effect or 0.0) > 1.2 * (alone.min_effect or 0.0)


@pytest.mark.parametrize(
    ("clusters", "ids", "together", "warning"),
    [
        (Clusters.NONE, PASSAGES, 0.0, '50 passages are taken as independent samples: remove clusters = "none"'),
        (Clusters.FOUND, PASSAGES, 0.4, ""),
        (Clusters.FOUND, (), 0.4, 'the changes within its 20 subsets go together: set clusters = "subset"'),
        (Clusters.NONE, (), 0.4, 'the changes within its 20 subsets go together: set clusters = "subset"'),
        (Clusters.FOUND, (), 0.0, ""),
        (Clusters.SUBSET, (), 0.4, ""),
    ],
)
def test_questions_that_look_clustered_are_named_where_the_policy_says_that_they_are_not(
    clusters: Clusters, ids: Sequence[str], together: float, warning: str
) -> None:
    check = checked(flipped(Random(1), together=together), clusters, ids, subset=12)  # noqa: S311 - no secret
    assert check.clusters.warning == warning


def test_independent_changes_seldom_look_clustered() -> None:
    chance = Random(3)  # noqa: S311 - no secret
    before = in_subsets(record_of(1, {"b": SCORES}), 12)
    small = 0
    for _ in range(100):
        after = in_subsets(record_of(2, {"b": flipped(chance, together=0.0)}), 12)
        small += subsets_move_together(before, after, "b") < 0.05
    assert small <= 11


def test_few_subsets_and_results_that_cannot_be_paired_do_not_look_clustered() -> None:
    one = in_subsets(record_of(1, {"b": SCORES}), 60)
    assert subsets_move_together(one, one, "b") == 1.0
    assert subsets_move_together(one, one, "other") == 1.0
    other = replace(one, outcomes=tuple(replace(o, fingerprint="x") for o in one.outcomes if isinstance(o, EvalResult)))
    assert subsets_move_together(one, other, "b") == 1.0
