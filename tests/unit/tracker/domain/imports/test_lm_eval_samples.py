import math
from typing import Any

import pytest

from eval_jobs.harness.samples import samples_of_task
from eval_jobs.types import SampleScore, SampleStatus
from tests.imported import lm_eval_rows


def read(rows: list[dict[str, Any]]) -> tuple[SampleScore, ...]:
    found = samples_of_task(rows, metric="acc", through="none", filters=1)
    assert not isinstance(found, str), found
    return found


def test_a_question_has_one_key_wherever_it_stands_and_whatever_was_answered() -> None:
    rows = lm_eval_rows([1.0, 0.0])
    (first, second), turned = read(rows), read([rows[1], rows[0] | {"acc": 0.0, "resps": [[["-9", "True"]]]}])
    assert [s.sample_id for s in turned] == [second.sample_id, first.sample_id]


def test_the_arguments_of_earlier_versions_give_the_same_key() -> None:
    rows = lm_eval_rows([1.0])
    older = [rows[0] | {"arguments": [list(a.values()) for a in rows[0]["arguments"].values()]}]
    assert read(older)[0].sample_id == read(rows)[0].sample_id


def test_another_example_in_the_prompt_is_another_question() -> None:
    row = lm_eval_rows([1.0])[0]
    other = row | {"arguments": {"gen_args_0": {"arg_0": "example\n\nquestion 0\nAnswer:", "arg_1": " no"}}}
    assert read([row])[0].sample_id != read([other])[0].sample_id


def test_a_question_asked_twice_has_two_keys() -> None:
    row = lm_eval_rows([1.0])[0]
    first, second = read([row, row])
    assert second.sample_id == f"{first.sample_id}#1"


def test_only_rows_of_the_filter_count() -> None:
    rows = lm_eval_rows([1.0, 0.0]) + lm_eval_rows([0.0, 0.0], filter="strict")
    assert [s.score for s in read(rows)] == [1.0, 0.0]


def test_rows_of_several_filters_that_do_not_say_which_are_not_guessed() -> None:
    rows = [{k: v for k, v in row.items() if k != "filter"} for row in lm_eval_rows([1.0])]
    assert samples_of_task(rows, metric="acc", through="none", filters=2) == ("the samples do not record their filter")
    assert isinstance(samples_of_task(rows, metric="acc", through="none", filters=1), tuple)


def test_a_missing_response_is_an_error_a_missing_value_unscored_and_an_empty_response_an_answer() -> None:
    missing: list[object] = [None, [], [[None]], [[[None, False]]], [["answered"], []]]
    error, unscored = (SampleStatus.ERROR, None), (SampleStatus.UNSCORED, None)
    cases: list[tuple[list[dict[str, Any]], tuple[SampleStatus, float | None]]] = [
        *((lm_eval_rows([0.0], resps=responses), error) for responses in missing),
        *((lm_eval_rows([value]), unscored) for value in (None, math.nan)),
        (lm_eval_rows([0.0], resps=[[""]], filtered_resps=[""]), (SampleStatus.SCORED, 0.0)),
        *((lm_eval_rows([value]), (SampleStatus.SCORED, float(value))) for value in (True, False)),
    ]
    found = [(rows, sample, wanted) for rows, wanted in cases for sample in read(rows)]
    assert [(rows, s) for rows, s, wanted in found if (s.status, s.score) != wanted] == []
    assert {sample.answer for _, sample, (status, _) in found if status is SampleStatus.ERROR} == {""}


@pytest.mark.parametrize("value", [-3.2, 1.5, [0, 1], "yes"])
def test_a_metric_that_is_no_score_of_a_sample_is_left_to_its_mean(value: Any) -> None:
    found = samples_of_task(lm_eval_rows([value]), metric="acc", through="none", filters=1)
    assert found == "`acc` of a sample is not a score from 0 to 1"


def test_samples_without_the_metric_or_the_question_are_left_to_their_mean() -> None:
    rows = lm_eval_rows([1.0])
    assert samples_of_task(rows, metric="f1", through="none", filters=1) == "no `f1` in the samples"
    asked = samples_of_task(lm_eval_rows([1.0], arguments={}), metric="acc", through="none", filters=1)
    assert asked == "`arguments` of a sample contains no request"


def test_what_was_generated_is_the_answer() -> None:
    arguments = {"gen_args_0": {"arg_0": "2+2=", "arg_1": {"until": ["\n"]}}}
    (sample,) = read(lm_eval_rows([1.0], arguments=arguments, resps=[["4 of course"]], filtered_resps=["4"], target=4))
    assert (sample.prompt, sample.answer, sample.target) == ("2+2=", "4", "4")
