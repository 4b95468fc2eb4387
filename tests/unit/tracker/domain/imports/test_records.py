from dataclasses import replace

import pytest

from eval_jobs.codec import record_from_bytes, record_to_bytes
from eval_jobs.errors import BadData, ConfigError
from tests.imported import bench, fields, given, lm_eval
from tracker.domain.imports.bench_serve import sheet_of_bench_serve
from tracker.domain.imports.lm_eval import sheets_of_lm_eval
from tracker.domain.imports.records import (
    checkpoints_of,
    demand_known_metrics,
    demand_no_other_metric,
    known_chances,
    models_of,
)
from tracker.domain.imports.types import Sheet
from tracker.domain.scores.pairing import explain_difference
from tracker.domain.scores.series import series_key

TARGET = {"run_id": "run", "suite": "suite"}


def sheet(source: str = "a", step: int = 1000, **scores: float) -> Sheet:
    (found,) = sheets_of_lm_eval(fields(lm_eval(scores, step=step)), {}, given(source))
    return replace(found, source=source)


def test_files_of_one_step_are_one_checkpoint_and_steps_are_in_order() -> None:
    found = checkpoints_of([sheet("b", 2000, x=0.5), sheet("a", 1000, x=0.5), sheet("c", 1000, y=0.5)], **TARGET)
    assert [c.record.plan.checkpoint.step for c in found] == [1000, 2000]
    assert [o.benchmark for o in found[0].record.outcomes] == ["x", "y"]


def test_the_same_files_give_the_same_plan_wherever_they_lie_and_in_any_order() -> None:
    one = checkpoints_of([sheet("a", x=0.5), sheet("b", y=0.5)], **TARGET)[0]
    other = checkpoints_of([sheet("z", x=0.5), sheet("b", y=0.5)], **TARGET)[0]
    assert one.record.plan.id == other.record.plan.id
    assert checkpoints_of([sheet("a", x=0.6), sheet("b", y=0.5)], **TARGET)[0].record.plan.id != one.record.plan.id


@pytest.mark.parametrize(
    ("named", "models"),
    [
        (["org/base", "org/base", "org/other"], {"base": {1000, 2000}, "other": {3000}}),
        (["org/base", "base", ""], {}),
        (["out/checkpoint-1000", "out/checkpoint-2000", "out/checkpoint-3000"], {}),
        (["base-step1000", "base-step2000", "other"], {"base": {1000, 2000}, "other": {3000}}),
        (["after-1k", "after-2k", "after-3k"], {}),
    ],
)
def test_several_models_in_one_run_are_noticed_and_names_of_checkpoints_are_none(
    named: list[str], models: dict[str, set[int]]
) -> None:
    sheets = [replace(sheet(str(k), 1000 * (k + 1), x=0.5), model=name) for k, name in enumerate(named)]
    assert models_of(one.record for one in checkpoints_of(sheets, **TARGET)) == models


@pytest.mark.parametrize(
    ("one", "other", "named"),
    [
        ("org/base", "org/base-instruct", "base in a, base-instruct in b"),
        ("/runs/a/checkpoint-1000", "/runs/b/checkpoint-1000", "a in a, b in b"),
        ("org/a\x1b[2J", "org/b", "a�[2J in a, b in b"),
        ("org/base", "/local/base", ""),
        ("/old/run/checkpoint-1000", "/new/run/checkpoint-1000", ""),
        ("org/base", "", ""),
    ],
)
def test_one_step_of_several_models_is_refused_with_their_names(one: str, other: str, named: str) -> None:
    sheets = [replace(sheet("a", x=0.5), model=one), replace(sheet("b", y=0.5), model=other)]
    if not named:
        assert len(checkpoints_of(sheets, **TARGET)) == 1
        return
    with pytest.raises(BadData) as caught:
        checkpoints_of(sheets, **TARGET)
    assert caught.value.message == f"step 1000 has results of two models: {named}"
    elsewhere = replace(sheets[1], engine=replace(sheets[1].engine, name="evalscope"))
    assert len(checkpoints_of([sheets[0], elsewhere], **TARGET)) == 1


def test_a_metric_that_no_task_has_is_refused_with_those_that_there_are() -> None:
    sheets = [sheet("a", x=0.5), sheet("b", y=0.5)]
    demand_known_metrics(sheets[0].metrics, sheets)
    with pytest.raises(ConfigError) as caught:
        demand_known_metrics(["exact"], sheets)
    assert caught.value.message == "no task has the metric exact as a score from 0 to 1"
    assert caught.value.hint == "the files have acc, acc,none, acc_norm and acc_norm,none"
    with pytest.raises(ConfigError) as caught:
        demand_known_metrics(["exact"], [replace(sheets[0], metrics=())])
    assert caught.value.hint == "remove --metric: the files have one metric each"


def test_a_metric_that_cannot_be_a_score_is_not_among_the_known_ones() -> None:
    (found,) = sheets_of_lm_eval(
        fields(lm_eval({"x": 0.5}) | {"results": {"x": {"acc": 0.5, "bits": 7.0}}}), {}, given()
    )
    assert found.metrics == ("acc",)


def test_another_metric_of_a_step_never_replaces_the_first_one() -> None:
    acc = checkpoints_of([sheet(x=0.5)], **TARGET)
    (other,) = sheets_of_lm_eval(fields(lm_eval({"x": 0.4})), {}, given(metrics=["acc_norm"]))
    norm = checkpoints_of([other], **TARGET)
    with pytest.raises(BadData) as caught:
        demand_no_other_metric(norm, [acc[0].record])
    assert caught.value.message == "step 1000 has x by acc, the files have acc_norm"
    (later,) = sheets_of_lm_eval(fields(lm_eval({"x": 0.4}, step=2000)), {}, given(metrics=["acc_norm"]))
    newer = checkpoints_of([sheet(x=0.6)], **TARGET)
    for files in (newer, acc, checkpoints_of([later], **TARGET)):
        demand_no_other_metric(files, [acc[0].record])
    demand_no_other_metric(norm, [acc[0].record, norm[0].record])  # stored by an earlier version
    scores = [one.record for one in (*acc, *checkpoints_of([later], **TARGET))]
    assert len({series_key(one.plan, one.results[0]) for one in scores}) == 2


def test_an_adapter_names_its_weights_better_than_its_base() -> None:
    sheets = []
    for source, more in (("a", ",peft=out/lora"), ("b", "")):
        config = {"model": "vllm", "model_args": f"pretrained=org/base{more},revision=step1000"}
        (one,) = sheets_of_lm_eval(fields(lm_eval({source: 0.5}, config=config)), {}, given())
        sheets.append(replace(one, source=source))
    with pytest.raises(BadData, match="step 1000 has results of two models: lora in a, base in b"):
        checkpoints_of(sheets, **TARGET)


def test_a_record_survives_being_stored() -> None:
    record = checkpoints_of([sheet(x=0.5)], **TARGET)[0].record
    assert record_from_bytes(record_to_bytes(record)) == record


def test_of_one_measurement_made_twice_the_newer_counts() -> None:
    old = sheet("old", x=0.4)
    new = replace(sheet("new", x=0.5), measured_at=old.measured_at.replace(year=2027))
    (found,) = checkpoints_of([new, old], **TARGET)
    assert found.record.outcomes == (new.measured[0].outcome,)
    assert [(left.source, left.name) for left in found.left_out] == [("old", "x")]


def test_one_benchmark_measured_in_two_ways_at_one_step_is_refused() -> None:
    five_shot = lm_eval({"x": 0.5}) | {"n-shot": {"x": 5}}
    (other,) = sheets_of_lm_eval(fields(five_shot), {}, given())
    with pytest.raises(BadData, match="conflicting results of x at step 1000: a and evals"):
        checkpoints_of([sheet("a", x=0.5), other], **TARGET)


def test_scores_and_latencies_of_a_step_are_one_record() -> None:
    latency = sheet_of_bench_serve(fields(bench()), given("f.json"))
    (found,) = checkpoints_of([sheet(x=0.5), latency], **TARGET)
    assert found.record.plan.loads == (latency.probes[0].load,)
    assert found.record.engine == latency.engine


def test_two_engines_at_one_step_are_refused() -> None:
    one = sheet_of_bench_serve(fields(bench()), given("f.json"))
    other = sheet_of_bench_serve(fields(bench(backend="sglang")), given("g.json"))
    with pytest.raises(BadData, match="was served by sglang, other results by vllm"):
        checkpoints_of([one, other], **TARGET)


def test_what_differs_between_two_imports_is_said_in_words() -> None:
    (newest,) = sheets_of_lm_eval(fields(lm_eval({"x": 0.5}, versions={"x": 2.0})), {}, given())
    newer, older = (checkpoints_of([s], **TARGET)[0].record.plan for s in (newest, sheet(x=0.5)))
    assert explain_difference(newer, older, "x") == ("task_version is 2.0, was 1.0",)


def test_guessing_is_known_for_accuracies_of_well_known_tasks_only() -> None:
    assert known_chances(checkpoints_of([sheet(copa=0.5, mine=0.5)], **TARGET)) == {"copa": 0.5}
