"""What makes two plans or two samples the same."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from eval_jobs.codec import plan_from_json, plan_to_json
from eval_jobs.identity import (
    benchmark_fingerprint,
    make_plan,
    numbered,
    sample_key,
    serve_settings,
    sweep_plan,
)
from eval_jobs.types import (
    Benchmark,
    Between,
    EngineKind,
    EvalPlan,
    OnlyWhen,
    ProbeLoad,
    ServeSpec,
    SwapPolicy,
    SweepCell,
)
from tests.records import forgetting_run

PLAN = forgetting_run().records[0].plan


def again(plan: EvalPlan, **checkpoint: object) -> EvalPlan:
    moved = replace(plan.checkpoint, **checkpoint)  # type: ignore[arg-type]
    return make_plan(moved, plan.suite, plan.serve, plan.loads)


def test_a_plan_does_not_depend_on_paths_or_times() -> None:
    later = PLAN.checkpoint.ready_at + timedelta(hours=1)
    assert again(PLAN, uri="/elsewhere", source_uri="/gone", ready_at=later).id == again(PLAN).id
    assert again(PLAN, unpickled=True).id == again(PLAN).id, "nor on how its weights were read"


def test_other_weights_and_another_load_are_another_plan() -> None:
    assert again(PLAN, digest="other").id != again(PLAN).id
    for other in (ProbeLoad(requests=7), replace(PLAN.loads[0], request_rate=2.0)):
        assert make_plan(PLAN.checkpoint, PLAN.suite, PLAN.serve, [other]).id != again(PLAN).id


def test_another_tokenizer_beside_the_same_weights_is_another_plan() -> None:
    ids = {again(PLAN, files_digest=digest).id for digest in ("", "one", "other")}
    assert len(ids) == 3


def test_what_a_sweep_asks_is_never_the_plan_of_the_checkpoint_itself() -> None:
    cell = SweepCell(sweep="nightly", target="tiny@100", variant=(("temperature", "0.7"),))
    plans = [
        PLAN,
        sweep_plan(PLAN, cell),
        sweep_plan(PLAN, replace(cell, sweep="weekly")),
        sweep_plan(PLAN, replace(cell, variant=())),
        sweep_plan(PLAN, replace(cell, turn="2026-03-14")),
    ]
    assert len({plan.id for plan in plans}) == len(plans)
    assert [plan.sweep for plan in plans[:2]] == [None, cell]
    assert plan_from_json(plan_to_json(plans[1])) == plans[1]


def test_raising_the_suites_length_does_not_touch_a_benchmark_with_a_length_of_its_own() -> None:
    own = Benchmark(name="a", adapter="exact", max_tokens=5)
    longer = replace(PLAN.suite, generation=replace(PLAN.suite.generation, max_tokens=999))
    assert benchmark_fingerprint(own, PLAN.suite) == benchmark_fingerprint(own, longer)
    shared = replace(own, max_tokens=None)
    assert benchmark_fingerprint(shared, PLAN.suite) != benchmark_fingerprint(shared, longer)


def test_a_fingerprint_fits_into_an_mlflow_digest() -> None:
    assert len(benchmark_fingerprint(PLAN.suite.benchmarks[0], PLAN.suite)) <= 36


def test_other_questions_are_other_samples() -> None:
    assert sample_key("a", [("user", "1+1")], "2") != sample_key("b", [("user", "1+1")], "2"), "of another subset"
    half, other = "\ud83d", "\ud83c"  # of a surrogate pair
    assert sample_key("a", [("user", half)], "2") != sample_key("a", [("user", other)], "2")


def test_serving_that_can_change_a_score_is_another_plan() -> None:
    changes: tuple[dict[str, Any], ...] = (
        *({"dtype": "float16"}, {"max_model_len": 512}, {"args": ("--quantization", "fp8")}),
        *({"trust_remote_code": True}, {"engine": EngineKind.REMOTE}),
    )
    for change in changes:
        other = replace(PLAN.serve, **change)
        assert serve_settings(other) != serve_settings(PLAN.serve)
        assert make_plan(PLAN.checkpoint, PLAN.suite, other, PLAN.loads).id != again(PLAN).id


def test_where_how_patiently_and_how_politely_it_is_served_changes_no_score() -> None:
    moved = ServeSpec(python="/other/python", port=8123, startup_timeout_s=5.0)
    polite = ServeSpec(gpu_memory_utilization=0.3, niceness=10, only_when=OnlyWhen(gpu_below_pct=10))
    # A swap is taken only where it answers as a cold start, to the bit.
    cold = ServeSpec(swap=SwapPolicy.NEVER, between=Between.STOP, idle_timeout_s=1.0)
    assert [serve_settings(spec) == serve_settings(ServeSpec()) for spec in (moved, polite, cold)] == [True] * 3


def test_a_remote_server_is_known_by_the_model_that_is_asked_for() -> None:
    one = ServeSpec(engine=EngineKind.REMOTE, base_url="http://a/v1", model="m-{step}")
    assert serve_settings(replace(one, base_url="http://b/v1", api_key_env="KEY", dtype="half")) == serve_settings(one)
    assert serve_settings(replace(one, model="n-{step}")) != serve_settings(one)


@given(st.lists(st.sampled_from("abc")))
def test_numbering_makes_every_key_unique_and_keeps_the_order(keys: list[str]) -> None:
    result = numbered(keys)
    assert len(set(result)) == len(keys)
    assert [key.split("#")[0] for key in result] == keys
