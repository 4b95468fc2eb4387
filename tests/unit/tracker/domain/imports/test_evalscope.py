from collections import Counter
from typing import Any

import pytest

from eval_jobs.errors import BadData, Incomparable
from eval_jobs.types import EvalRecord, EvalResult, SampleStatus
from tests.evaluating import quiet
from tests.imported import fields, given
from tests.requires import shared_data
from tracker.adapters.result_files import ImportRequest, read_results
from tracker.domain.compare.view import RunNoise, compare_parts
from tracker.domain.imports.evalscope import EvalScopeFolder, sheet_of_evalscope
from tracker.domain.imports.records import checkpoints_of
from tracker.domain.imports.types import Sheet
from tracker.domain.records.policy import Policy
from tracker.domain.scores.series import series_key

CONFIG: dict[str, object] = {
    "model": "checkpoint-1000",
    "generation_config": {"temperature": 0.0, "max_tokens": 64, "timeout": 60, "batch_size": 8},
    "dataset_args": {"sums": {"few_shot_num": 2, "prompt_template": "{question}", "description": "sums"}},
}


def prediction(index: int, *, stop: str = "stop", tokens: int = 3) -> dict[str, Any]:
    message = {"content": f"answer {index}"}
    return {
        "index": index,
        "model_output": {
            "choices": [{"message": message, "stop_reason": stop}],
            "usage": {"input_tokens": 5, "output_tokens": tokens},
        },
        "messages": asked(index),
    }


def review(index: int, score: float | None, *, group: int | None = None) -> dict[str, Any]:
    value = {} if score is None else {"acc": score}
    return {
        "index": index,
        "target": "4",
        "messages": [*asked(index if group is None else group), {"id": "x", "role": "assistant", "content": "4"}],
        "sample_score": {"score": {"value": value}, "group_id": index if group is None else group},
    }


def asked(index: int) -> list[dict[str, str]]:
    return [{"id": f"drawn {index}", "role": "user", "content": f"question {index}"}]


def folder(*scores: float | None, **more: Any) -> EvalScopeFolder:
    known: dict[str, Any] = {
        "config": fields(CONFIG),
        "reports": {"sums": fields({"dataset_name": "sums", "score": 0.5, "num": len(scores) or 10})},
        "predictions": {"sums_main": [prediction(i) for i in range(len(scores))]} if scores else {},
        "reviews": {"sums_main": [review(i, score) for i, score in enumerate(scores)]} if scores else {},
    }
    return EvalScopeFolder(**(known | more))


@pytest.mark.parametrize("shots", [-1, True, 10**30])
def test_an_impossible_number_of_examples_is_unknown(shots: object) -> None:
    config = CONFIG | {"dataset_args": {"sums": {"few_shot_num": shots}}, "repeats": shots}
    sheet, _ = read(folder(1.0, config=fields(config)))
    assert (sheet.measured[0].benchmark.few_shot, sheet.measured[0].benchmark.repeats >= 1) == (None, True)


def read(of: EvalScopeFolder) -> tuple[Sheet, EvalResult]:
    sheet = sheet_of_evalscope(of, given("outputs"))
    (one,) = sheet.measured
    assert isinstance(one.outcome, EvalResult)
    return sheet, one.outcome


def test_answers_and_scores_are_samples() -> None:
    sheet, result = read(folder(1.0, 0.0))
    assert (sheet.step, sheet.model) == (1000, "checkpoint-1000")
    assert [(s.subset, s.score, s.answer) for s in result.samples] == [
        ("main", 1.0, "answer 0"),
        ("main", 0.0, "answer 1"),
    ]
    assert (result.metric, result.input_tokens, result.output_tokens) == ("accuracy", 10, 6)


def test_the_ids_that_every_run_draws_anew_are_no_part_of_a_question() -> None:
    one = review(0, 1.0)
    other = one | {"messages": [{"id": "another", "role": "user", "content": "question 0"}]}
    first, second = (read(folder(1.0, reviews={"sums_main": [row]}))[1].samples for row in (one, other))
    assert first[0].sample_id == second[0].sample_id


def test_failures_are_no_wrong_answers() -> None:
    rows = [prediction(0, stop="model_length"), prediction(1, stop="max_tokens"), prediction(2)]
    reviews = [review(0, 0.0), review(1, 0.0), review(2, None)]
    _, result = read(folder(0.0, 0.0, 0.0, 0.0, predictions={"sums_main": rows}, reviews={"sums_main": reviews}))
    assert [(s.status, s.score) for s in result.samples] == [
        (SampleStatus.ERROR, None),
        (SampleStatus.TRUNCATED, 0.0),
        (SampleStatus.UNSCORED, None),
        (SampleStatus.ERROR, None),  # the report counts four
    ]


def test_answers_to_one_question_are_its_repeats() -> None:
    rows = [prediction(i) for i in range(3)]
    reviews = [review(0, 1.0), review(1, 0.0, group=0), review(2, 1.0)]
    _, result = read(folder(1.0, 0.0, 1.0, predictions={"sums_main": rows}, reviews={"sums_main": reviews}))
    assert [s.repeat for s in result.samples] == [0, 1, 0]
    assert result.samples[0].sample_id == result.samples[1].sample_id != result.samples[2].sample_id


def test_a_report_without_rows_gives_its_mean_and_the_largest_error_that_is_possible() -> None:
    _, result = read(folder())
    assert result.aggregate is not None
    assert (result.aggregate.mean, result.aggregate.samples) == (0.5, 10)
    assert result.aggregate.stderr == pytest.approx((0.25 / 9) ** 0.5)


def test_scores_without_their_answers_are_not_taken_for_proper_ones() -> None:
    sheet, result = read(folder(1.0, 0.0, predictions={}))
    assert result.aggregate is not None
    assert "predictions/sums_main.jsonl is missing" in sheet.left_out[0].reason


def test_a_score_that_is_no_share_is_left_out() -> None:
    sheet = sheet_of_evalscope(folder(35.5), given("outputs"))
    assert not sheet.measured
    assert sheet.left_out[0].reason == "`accuracy` is not a score from 0 to 1"


def test_rows_of_a_data_set_that_nothing_names_are_refused() -> None:
    with pytest.raises(BadData, match=r"cannot assign other_main\.jsonl"):
        read(folder(1.0, reviews={"other_main": []}))


def test_a_data_set_whose_name_begins_like_another_ones_keeps_its_rows() -> None:
    reports = {name: fields({"dataset_name": name, "score": 1.0, "num": 1}) for name in ("sums", "sums_hard")}
    rows = {"sums_main": [prediction(0)], "sums_hard_main": [prediction(0)]}
    reviews = {"sums_main": [review(0, 1.0)], "sums_hard_main": [review(0, 0.0)]}
    sheet = sheet_of_evalscope(folder(1.0, reports=reports, predictions=rows, reviews=reviews), given("outputs"))
    found = {m.benchmark.name: m.outcome for m in sheet.measured}
    scores = {name: [s.score for s in o.samples] for name, o in found.items() if isinstance(o, EvalResult)}
    assert scores == {"sums": [1.0], "sums_hard": [0.0]}


@pytest.mark.parametrize(
    ("config", "is_same"),
    [
        ({"generation_config": {"temperature": 1.0, "max_tokens": 64}}, False),
        ({"limit": 5}, False),
        ({"dataset_args": {"sums": {"few_shot_num": 3}}}, False),
        ({"model": "checkpoint-2000", "generation_config": {"temperature": 0.0, "max_tokens": 64, "timeout": 9}}, True),
    ],
)
def test_the_way_of_asking_makes_the_fingerprint(config: dict[str, object], is_same: bool) -> None:  # noqa: FBT001
    one, other = read(folder(1.0))[1], read(folder(1.0, config=fields(CONFIG | config)))[1]
    assert (one.fingerprint == other.fingerprint) is is_same


@pytest.mark.shared_data
def test_a_real_folder_gives_the_scores_of_its_reports() -> None:
    found = read_results([shared_data("per_sample/evalscope_qwen-plus")], ImportRequest(step=1), progress=quiet)
    (sheet,) = found.sheets
    results = {m.benchmark.name: m.outcome for m in sheet.measured if isinstance(m.outcome, EvalResult)}
    samples = {name: r.samples for name, r in results.items()}
    assert {name: len(rows) for name, rows in samples.items()} == {
        "gpqa_diamond": 0,
        "gsm8k": 10,
        "ifeval": 10,
        "iquiz": 20,
    }
    assert results["gpqa_diamond"].aggregate is not None
    assert results["gpqa_diamond"].aggregate.mean == 0.8
    means = {name: sum(s.score or 0.0 for s in rows) / len(rows) for name, rows in samples.items() if rows}
    assert means == pytest.approx({"gsm8k": 1.0, "ifeval": 0.9, "iquiz": 0.85})
    assert Counter(s.status for rows in samples.values() for s in rows) == {SampleStatus.SCORED: 40}
    assert {s.subset for s in samples["iquiz"]} == {"IQ", "EQ"}


def test_another_metric_is_another_series_although_no_setting_has_its_name() -> None:
    def record(step: int, metric: str) -> EvalRecord:
        rows = [replace_metric(review(i, 1.0), metric) for i in range(2)]
        sheet = sheet_of_evalscope(folder(1.0, 1.0, reviews={"sums_main": rows}), given(f"step{step}", step=step))
        assert sheet.metrics == (metric,)
        return checkpoints_of([sheet], run_id="run", suite="suite")[0].record

    first, same, other = record(1, "rouge"), record(2, "rouge"), record(3, "f1")
    keys = [series_key(one.plan, one.results[0]) for one in (first, same, other)]
    assert keys[0] == keys[1] != keys[2]
    with pytest.raises(Incomparable, match="sums: metric is f1, was rouge"):
        compare_parts([(first, other)], Policy(), RunNoise())


def replace_metric(row: dict[str, Any], metric: str) -> dict[str, Any]:
    return row | {"sample_score": {"score": {"value": {metric: 1.0}}, "group_id": row["index"]}}
