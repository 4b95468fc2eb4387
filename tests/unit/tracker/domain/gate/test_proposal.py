"""The policy that a run proposes: equal candidates pass it, and it names what it follows from."""

from dataclasses import replace
from random import Random

import pytest

from eval_jobs.types import EvalRecord
from tests.unit.tracker.domain.making import record_of
from tracker.domain.compare.view import RunNoise
from tracker.domain.gate.decision import gate
from tracker.domain.gate.proposal import LimitedBy, ProposedRule, proposed_policy
from tracker.domain.gate.rules import BenchmarkRule, Clusters
from tracker.domain.gate.types import Contexts, GateWord
from tracker.domain.regression.jitter import Jitter
from tracker.domain.scores.series import series_key

SIZES = {"facts": 400, "sums": 500}
PASSAGES = [f"passage:{at // 4}" for at in range(400)]


def run_of(checkpoints: int, chance: Random, sizes: dict[str, int] = SIZES) -> list[EvalRecord]:
    """Records of a run in which one answer in ten differs between neighbours, and nothing is lost or gained."""
    return [
        record_of(
            step,
            {name: [float(chance.random() < (0.95, 0.05)[at % 2]) for at in range(n)] for name, n in sizes.items()},
        )
        for step in range(1, checkpoints + 1)
    ]


def rule_of(records: list[EvalRecord], name: str = "facts", noise: RunNoise | None = None) -> ProposedRule:
    (rule,) = proposed_policy(records, [name], noise or RunNoise(), 0.05).rules
    return rule


@pytest.mark.slow
def test_four_of_five_equal_candidates_pass_what_the_run_proposes() -> None:
    chance, found = Random(1), []  # noqa: S311 - no secret
    for _ in range(20):
        *earlier, candidate = run_of(7, chance)
        policy = proposed_policy(earlier, tuple(SIZES), RunNoise(), 0.05).to_policy()
        found.append(gate(earlier[-1], candidate, policy, RunNoise()).word)
    assert found.count(GateWord.PASS) >= 12  # 99 % of draws with a chance of .8 and more
    assert found.count(GateWord.REGRESSION) <= 4


def test_a_rule_names_samples_flips_and_jitter_and_jitter_makes_its_margin_larger() -> None:
    records = run_of(4, Random(2))  # noqa: S311 - no secret
    calm = rule_of(records)
    assert (calm.samples, calm.jitter, calm.contexts, calm.clusters) == (400, None, None, Clusters.FOUND)
    assert 0.06 < calm.flips < 0.14
    results = {series_key(records[-1].plan, one): Jitter(tau2=0.02**2, variance=1e-9) for one in records[-1].results}
    restless = rule_of(records, noise=RunNoise(jitters=results))
    assert restless.jitter == pytest.approx(0.02)
    assert (calm.limit, restless.limit) == (LimitedBy.SAMPLES, LimitedBy.JITTER)
    assert (restless.min_effect or 0.0) > 1.5 * (calm.min_effect or 1.0)


def test_a_checkpoint_that_lost_much_does_not_make_the_margin_larger() -> None:
    records = run_of(6, Random(3))  # noqa: S311 - no secret
    dropped = record_of(7, {"facts": [0.0] * 400, "sums": [0.0] * 900})
    assert rule_of([*records, dropped]).min_effect == pytest.approx(rule_of(records).min_effect, abs=0.004)


def test_clusters_that_are_found_count_and_subsets_do_where_their_changes_go_together() -> None:
    chance = Random(4)  # noqa: S311 - no secret
    right = [float(chance.random() < 0.5) for _ in PASSAGES]
    scores = [right, [1.0 - x if at // 20 % 3 == 0 else x for at, x in enumerate(right)], right]
    found = [record_of(step, {"facts": x}, clusters=PASSAGES) for step, x in enumerate(scores, start=1)]
    passages = rule_of(found)
    assert (passages.contexts, passages.limit) == (Contexts(kind="passage", count=100, samples=400), LimitedBy.SAMPLES)
    toward = [[float(at // 20 % 2 == step % 2) if at % 5 else 1.0 for at in range(400)] for step in range(3)]
    in_subsets = []
    for step, x in enumerate(toward, start=1):
        (result,) = record_of(step, {"facts": x}).results
        samples = tuple(replace(s, subset=f"{at // 20}") for at, s in enumerate(result.samples))
        in_subsets.append(replace(record_of(step, {"facts": x}), outcomes=(replace(result, samples=samples),)))
    rule = rule_of(in_subsets)
    assert (rule.clusters, rule.contexts) == (Clusters.SUBSET, Contexts(kind="subset", count=20, samples=400))


def test_too_few_samples_are_advisory_and_what_was_not_evaluated_has_the_default() -> None:
    records = run_of(3, Random(5), {"facts": 2, "sums": 900})  # noqa: S311 - no secret
    proposed = proposed_policy(records, ("facts", "sums", "new"), RunNoise(), 0.02)
    few, sums, new = proposed.rules
    assert (few.min_effect, few.samples, new.samples, proposed.gated) == (None, 2, 0, (sums,))
    policy = proposed.to_policy()
    assert policy.alpha == 0.02
    assert not policy.rule_of("facts").required
    assert policy.rule_of("new") == BenchmarkRule(min_loss=0.01)
