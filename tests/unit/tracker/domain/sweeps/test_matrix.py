"""From a sweep to plans: every combination once, each with its own content, and the loads on every target once."""

from collections import Counter
from dataclasses import replace

from eval_jobs.identity import suite_fingerprint
from eval_jobs.types import EngineKind
from tests.sweeping import CHECKPOINTS, LOADS, NOW, OTHER, RECORDED, SUITE, answered, sweep_of
from tracker.domain.sweeps.estimate import estimate_of, estimate_text
from tracker.domain.sweeps.matrix import different_benchmarks, plans_of, suite_of, variants

RUN = RECORDED.run_id
PROMPTS = {"plain": "", "polite": "please: {question}"}


def test_every_combination_is_asked_of_every_target_and_each_is_a_plan_of_its_own() -> None:
    sweep = sweep_of(
        axes={"temperature": (0.0, 0.7), "prompt": ("plain", "polite")}, prompts=PROMPTS, endpoints=(OTHER,)
    )
    plans = plans_of(sweep, CHECKPOINTS[:2], run=RUN, due_at=NOW)
    cells = [plan.sweep for plan in plans if plan.sweep is not None]
    assert len({plan.id for plan in plans}) == len(plans) == 12
    assert Counter(cell.target for cell in cells) == {f"{RUN}@100": 4, f"{RUN}@200": 4, "other": 4}
    assert cells[1].variant == (("temperature", "0"), ("prompt", "polite"))
    assert {cell.turn for cell in cells if cell.target != "other"} == {""}
    assert plans == plans_of(sweep, CHECKPOINTS[:2], run=RUN, due_at=NOW)


def test_a_sweep_is_never_the_plan_of_the_run_even_where_it_asks_the_same() -> None:
    (plan,) = plans_of(sweep_of(axes={}, suite=SUITE), CHECKPOINTS[:1], run=RUN, due_at=NOW)
    own = RECORDED.records[0].plan
    assert suite_fingerprint(plan.suite) == suite_fingerprint(own.suite)
    assert plan.id != own.id


def test_loads_are_put_on_every_target_once_whatever_the_matrix() -> None:
    plans = plans_of(sweep_of(loads=LOADS, endpoints=(OTHER,)), CHECKPOINTS, run=RUN, due_at=NOW)
    loaded = [plan.sweep.target for plan in plans if plan.loads and plan.sweep]
    assert sorted(loaded) == sorted({plan.sweep.target for plan in plans if plan.sweep})


def test_a_variant_changes_what_it_names_and_nothing_else() -> None:
    own_length = replace(SUITE, benchmarks=(replace(SUITE.benchmarks[0], max_tokens=7), *SUITE.benchmarks[1:]))
    suite = suite_of(own_length, {"max_tokens": 64, "top_k": 5, "few_shot": 3, "prompt": "polite"}, PROMPTS)
    assert (suite.generation.max_tokens, suite.generation.top_k, suite.generation.temperature) == (64, 5, 0.0)
    assert {(b.max_tokens, b.few_shot, b.prompt_template) for b in suite.benchmarks} == {
        (None, 3, "please: {question}")
    }
    assert suite_of(SUITE, {"prompt": "plain"}, PROMPTS) == SUITE
    assert list(variants({})) == [{}]


def test_every_prompt_is_checked_before_anything_is_asked() -> None:
    sweep = sweep_of(axes={"temperature": (0.0, 0.7), "prompt": ("plain", "polite")}, prompts=PROMPTS)
    assert len(different_benchmarks(sweep)) == 2 * len(SUITE.benchmarks)


def test_an_endpoint_is_asked_by_its_address_and_nothing_of_it_is_on_a_disk() -> None:
    (plan,) = plans_of(sweep_of(checkpoints=(), axes={}, endpoints=(OTHER,)), (), run=RUN, due_at=NOW)
    assert (plan.serve.engine, plan.checkpoint.uri, plan.checkpoint.run_id) == (EngineKind.REMOTE, "", RUN)
    assert plan.checkpoint.ready_at == NOW


def test_the_cost_is_that_of_earlier_evaluations_and_what_nothing_tells_is_named() -> None:
    sweep = sweep_of(loads=LOADS, endpoints=(OTHER,))
    plans = plans_of(sweep, CHECKPOINTS[:2], run=RUN, due_at=NOW)
    costly = [answered(RECORDED.records[0].plan)]
    expected = estimate_of(plans, costly, {plans[0].id})
    assert (expected.evaluations, expected.targets, expected.asked) == (6, 3, 1)
    assert expected.evaluating_s == 3 * len(SUITE.benchmarks) * 2.0
    assert "loading other" in expected.unknown
    assert "(no timings yet)" in estimate_text(expected)
    nothing = estimate_of(plans, [], ())
    assert "duration unknown" in estimate_text(nothing)
    assert "nothing left to evaluate" in estimate_text(estimate_of(plans, costly, {p.id for p in plans}))


def test_an_earlier_turn_tells_what_an_endpoint_takes() -> None:
    sweep = sweep_of(checkpoints=(), axes={}, endpoints=(OTHER,), loads=LOADS)
    plans = plans_of(sweep, (), run=RUN, due_at=NOW)
    expected = estimate_of(plans, [answered(plans[0])], ())
    assert expected.evaluating_s == len(SUITE.benchmarks) * 2.0
    assert expected.probing_s > 0
    assert expected.unknown == ("loading other",)


def test_what_the_run_itself_has_answered_costs_its_loads_at_most() -> None:
    plans = plans_of(sweep_of(loads=LOADS), CHECKPOINTS[:1], run="r", due_at=NOW)
    records = [answered(plan) for plan in plans]
    whole = estimate_of(plans, records, ())
    expected = estimate_of(plans, records, (), {plans[0].id})
    assert (expected.own, expected.left) == (1, 2)
    assert expected.evaluating_s == whole.evaluating_s / 2
    assert expected.probing_s == whole.probing_s
    assert "2 evaluations of 1 target, 1 reusing scores from the evaluation of the run; " in estimate_text(expected)
    both = estimate_of(plans, records, {plans[0].id}, {plans[1].id})
    assert (both.asked, both.own, both.left) == (1, 1, 0)
    assert estimate_text(both).endswith("1 reusing scores from the evaluation of the run: nothing left to evaluate")
