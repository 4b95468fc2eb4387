import json
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from eval_jobs.evaluate.common.parse import (
    Place,
    Planned,
    Row,
    by_place,
    metric_name,
    parse_lines,
    parse_samples,
    planned_sample,
    token_sum,
)
from eval_jobs.types import SampleScore, SampleStatus
from tests.requires import PROJECT, shared_data

GOLDEN = PROJECT / "tests" / "golden" / "evalscope"


def rows(path: Path) -> tuple[Row, ...]:
    return parse_lines(path.read_text(encoding="utf-8").splitlines())


def golden_planned() -> list[Planned]:
    return [planned_sample(row) for row in rows(GOLDEN / "planned.jsonl")]


def golden_samples(planned: list[Planned]) -> tuple[SampleScore, ...]:
    failures = {(str(r["subset"]), int(str(r["index"]))): str(r["detail"]) for r in rows(GOLDEN / "failures.jsonl")}
    return parse_samples(
        planned,
        by_place("default", rows(GOLDEN / "predictions.jsonl")),
        by_place("default", rows(GOLDEN / "reviews.jsonl")),
        failures,
    )


def test_every_status_comes_out_as_written_down() -> None:
    found = [asdict(sample) for sample in golden_samples(golden_planned())]
    assert found == json.loads((GOLDEN / "samples.json").read_text(encoding="utf-8"))


def test_every_planned_sample_has_exactly_one_status_and_only_scored_ones_a_score() -> None:
    planned = golden_planned()
    samples = golden_samples(planned)
    assert len(samples) == len(planned)
    for sample in samples:
        assert (sample.score is not None) == (sample.status in (SampleStatus.SCORED, SampleStatus.TRUNCATED))
        assert bool(sample.detail) == (sample.status is not SampleStatus.SCORED)


def test_ids_do_not_depend_on_the_order_of_the_questions() -> None:
    planned = golden_planned()
    moved = [replace(sample, index=len(planned) - 1 - sample.index) for sample in planned]
    empty: dict[Place, Row] = {}
    ids = [s.sample_id for s in parse_samples(planned, empty, empty, {})]
    moved_ids = [s.sample_id for s in parse_samples(moved[::-1], empty, empty, {})]
    assert sorted(ids) == sorted(moved_ids)
    assert len(set(ids)) == len(planned)


def test_repeats_of_a_question_share_its_id_and_occurrences_do_not() -> None:
    question = Planned(subset="s", index=0, repeat=0, messages=(("user", "q"),), target="t")
    planned = [replace(question, index=i, repeat=i % 2) for i in range(4)]
    samples = parse_samples(planned, {}, {}, {})
    assert [s.repeat for s in samples] == [0, 1, 0, 1]
    assert samples[0].sample_id == samples[1].sample_id
    assert samples[2].sample_id == samples[3].sample_id == f"{samples[0].sample_id}#1"


@pytest.mark.parametrize(
    "change",
    [
        {"subset": "other"},
        {"target": "other"},
        {"target": ("t", "u")},
        {"messages": (("user", "other"),)},
        {"messages": (("system", "s"), ("user", "q"))},
    ],
)
def test_another_question_has_another_id(change: dict[str, object]) -> None:
    question = Planned(subset="s", index=0, repeat=0, messages=(("user", "q"),), target="t")
    assert replace(question, **change).key != question.key  # type: ignore[arg-type]


def test_turns_of_the_model_and_positions_do_not_change_the_id() -> None:
    question = Planned(subset="s", index=0, repeat=0, messages=(("user", "q"),), target="t")
    talked = replace(question, index=7, repeat=1, messages=(("user", "q"), ("assistant", "a")), cluster="c")
    assert talked.key == question.key


def test_the_metric_is_named_by_the_reviews_and_by_the_benchmark_when_nothing_was_scored() -> None:
    assert metric_name(rows(GOLDEN / "reviews.jsonl"), default="f1") == "accuracy"
    assert metric_name((), default="f1") == "f1"
    assert metric_name((), default="acc") == "accuracy"


def test_lines_that_are_no_objects_are_left_out() -> None:
    assert parse_lines(['{"index": 1}', "", "[1]", '{"index": 2', "null", '{"index": 3}']) == (
        {"index": 1},
        {"index": 3},
    )


@pytest.mark.shared_data
@pytest.mark.parametrize(
    ("name", "subset", "mean"), [("gsm8k", "main", 1.0), ("ifeval", "default", None), ("iquiz", "IQ", None)]
)
def test_a_real_runs_files_give_its_reported_score(name: str, subset: str, mean: float | None) -> None:
    run = shared_data("per_sample/evalscope_qwen-plus")
    predictions = by_place(subset, rows(run / "predictions" / "qwen-plus" / f"{name}_{subset}.jsonl"))
    reviews = by_place(subset, rows(run / "reviews" / "qwen-plus" / f"{name}_{subset}.jsonl"))
    planned = [planned_of(place, predictions[place], reviews[place]) for place in sorted(predictions)]
    samples = parse_samples(planned, predictions, reviews, {})
    assert Counter(s.status for s in samples) == {SampleStatus.SCORED: 10}
    assert len({s.sample_id for s in samples}) == 10
    assert all(s.output_tokens and s.answer and s.prompt for s in samples)
    assert sum(s.score or 0.0 for s in samples) / 10 == pytest.approx(reported(run, name, subset))
    assert mean is None or mean == reported(run, name, subset)


def planned_of(place: Place, prediction: Row, review: Row) -> Planned:
    messages = prediction["messages"]
    assert isinstance(messages, list)
    prompt = tuple((m["role"], m["content"]) for m in messages if m["role"] != "assistant")
    return Planned(subset=place[0], index=place[1], repeat=0, messages=prompt, target=str(review["target"]))


def reported(run: Path, name: str, subset: str) -> float:
    report = json.loads((run / "reports" / "qwen-plus" / f"{name}.json").read_text(encoding="utf-8"))
    found = [s["score"] for c in report["metrics"][0]["categories"] for s in c["subsets"] if s["name"] == subset]
    return float(found[0])


def _used(**usage: object) -> Row:
    return {"model_output": {"usage": usage or None}}


def test_tokens_are_added_up_over_the_answers_that_tell_theirs() -> None:
    rows_ = [_used(input_tokens=30, output_tokens=2), _used(), _used(input_tokens=12, output_tokens="many"), {}]
    assert token_sum(rows_, "input_tokens") == 42
    assert token_sum(rows_, "output_tokens") == 2


def test_tokens_that_nobody_told_are_not_none_used() -> None:
    assert token_sum([_used(), {}], "input_tokens") is None
    assert token_sum([], "output_tokens") is None


def test_the_recorded_answers_of_evalscope_tell_their_tokens() -> None:
    recorded = rows(GOLDEN / "predictions.jsonl")
    told = [row["model_output"]["usage"] for row in recorded if row["model_output"]["usage"]]  # type: ignore[index]
    assert token_sum(recorded, "input_tokens") == sum(usage["input_tokens"] for usage in told) > 0
    assert token_sum(recorded, "output_tokens") == sum(usage["output_tokens"] for usage in told) > 0
