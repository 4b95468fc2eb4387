from datetime import UTC, datetime
from typing import Any

import pytest

from eval_jobs.errors import BadData
from eval_jobs.records.imported import Aggregate
from eval_jobs.types import BenchmarkFailure, EvalResult, SampleStatus
from tests.evaluating import quiet
from tests.imported import AT, fields, given, lm_eval, lm_eval_rows
from tests.requires import shared_data
from tracker.adapters.result_files import ImportRequest, read_results
from tracker.domain.imports.lm_eval import is_lm_eval, sheets_of_lm_eval
from tracker.domain.imports.types import Sheet


def sheet(document: dict[str, object], samples: dict[str, list[dict[str, object]]] | None = None, *names: str) -> Sheet:
    (found,) = sheets_of_lm_eval(fields(document), samples or {}, given(*names))
    return found


def result(of: Sheet, at: int = 0) -> EvalResult:
    outcome = of.measured[at].outcome
    assert isinstance(outcome, EvalResult)
    return outcome


def settings(of: Sheet, at: int = 0) -> dict[str, str]:
    return dict(of.measured[at].benchmark.measured_with)


def test_a_results_file_gives_mean_error_and_number_of_samples() -> None:
    found = sheet(lm_eval({"arc_easy": 0.6}, n=50))
    assert (found.step, found.model, found.engine.version) == (1000, "org/model", "0.4.13")
    assert found.measured_at == datetime.fromtimestamp(1772360200, UTC)
    aggregate = result(found).aggregate
    assert aggregate is not None
    assert (aggregate.mean, aggregate.stderr, aggregate.samples) == (0.6, 0.01, 50)
    assert (result(found).metric, result(found).samples) == ("acc,none", ())


def test_files_of_the_first_versions_are_read_too() -> None:
    old: dict[str, object] = {
        "results": {"lambada": {"ppl": 24.8, "ppl_stderr": 0.9, "acc": 0.4, "acc_stderr": 0.007}},
        "versions": {"lambada": 0},
        "config": {"model": "hf-causal", "model_args": "pretrained=org/m", "num_fewshot": 5},
    }
    (found,) = sheets_of_lm_eval(fields(old), {}, given("160m_step3000.json"))
    assert (found.step, found.measured_at, found.measured[0].benchmark.few_shot) == (3000, AT, 5)
    assert (result(found).metric, settings(found)["metric"]) == ("acc", "acc")
    assert result(found).aggregate is not None


def test_a_file_of_a_whole_run_is_one_checkpoint_for_every_entry() -> None:
    document = {
        "tokens": [1, 2],
        "checkpoints": [100, 200],
        "results": {"copa": {"acc": [0.5, 0.6], "acc_stderr": [0.04, 0.05]}},
    }
    assert is_lm_eval(document)
    sheets = sheets_of_lm_eval(fields(document), {}, given("run_agg.json"))
    means = [(s.step, r.mean, r.stderr) for s in sheets if (r := result(s).aggregate) is not None]
    assert means == [(100, 0.5, 0.04), (200, 0.6, 0.05)]


@pytest.mark.shared_data
def test_a_published_file_of_a_whole_run_is_read() -> None:
    file = shared_data("checkpoint_evals/bigscience/tr3d-1B3-oscar-checkpoints_agg.json")
    sheets = read_results([file], ImportRequest(), progress=quiet).sheets
    assert (len(sheets), sheets[0].step, sheets[-1].step) == (63, 19500, 117000)
    lambada = {s.step: r.mean for s in sheets if (r := _aggregates(s).get("lambada")) is not None}
    assert (lambada[40500], lambada[42000], lambada[43500]) == pytest.approx((0.39, 0.27, 0.39), abs=0.01)


def _aggregates(of: Sheet) -> dict[str, Aggregate]:
    outcomes = (one.outcome for one in of.measured)
    return {o.benchmark: o.aggregate for o in outcomes if isinstance(o, EvalResult) and o.aggregate is not None}


def test_a_whole_run_with_a_value_too_few_is_refused_with_file_and_field() -> None:
    document = {"checkpoints": [100, 200], "results": {"copa": {"acc": [0.5]}}}
    with pytest.raises(BadData, match=r"evals/f\.json: `results\.copa\.acc` must have 2 values"):
        sheets_of_lm_eval(fields(document), {}, given())


def test_the_wanted_metric_and_filter_are_taken() -> None:
    document = lm_eval({"gsm8k": 0.3})
    document["results"]["gsm8k"] = {"exact_match,strict-match": 0.3, "exact_match,flexible-extract": 0.4}
    document["higher_is_better"] = {"gsm8k": {"exact_match": True}}
    (first,) = sheets_of_lm_eval(fields(document), {}, given())
    (chosen,) = sheets_of_lm_eval(fields(document), {}, given(metrics=["exact_match,flexible-extract"]))
    assert (result(first).metric, result(chosen).metric) == ("exact_match,strict-match", "exact_match,flexible-extract")
    assert result(first).fingerprint != result(chosen).fingerprint


def test_what_the_file_says_of_the_direction_counts() -> None:
    document = lm_eval({"odd": 0.3}, higher_is_better={"odd": {"acc": False}})
    found = sheet(document)
    assert not result(found).higher_is_better
    assert not found.measured[0].benchmark.higher_is_better


def test_a_metric_whose_direction_nobody_knows_is_left_out() -> None:
    found = sheet(lm_eval({}, results={"new": {"zeal,none": 0.4}}, higher_is_better={}))
    assert [left.reason for left in found.left_out] == [
        "`zeal,none` cannot be used: the file does not declare whether higher is better"
    ]


@pytest.mark.parametrize(("name", "value"), [("word_perplexity,none", 0.9), ("acc,none", 3.5)])
def test_what_is_no_score_from_0_to_1_is_left_out(name: str, value: float) -> None:
    found = sheet(lm_eval({}, results={"t": {name: value}}))
    assert not found.measured
    assert "not a score from 0 to 1" in found.left_out[0].reason


@pytest.mark.parametrize("value", [None, float("nan"), "N/A"])
def test_a_missing_value_is_a_failure_and_never_a_score(value: object) -> None:
    document = lm_eval({"t": 0.5})
    document["results"]["t"]["acc,none"] = value
    outcome = sheet(document).measured[0].outcome
    assert isinstance(outcome, BenchmarkFailure)
    assert "`results.t.acc,none`" in outcome.message


@pytest.mark.parametrize("shots", [-5, True, 10**30, "5"])
def test_an_impossible_number_of_examples_is_unknown(shots: object) -> None:
    known = {"n-shot": {"copa": shots}, "configs": {"copa": {"num_fewshot": shots}}}
    assert sheet(lm_eval({"copa": 0.5}) | known).measured[0].benchmark.few_shot is None


def test_results_of_thousands_of_tasks_are_refused() -> None:
    with pytest.raises(BadData, match=r"`results` has 2,001 tasks \(at most 2,000\)"):
        sheet(lm_eval({f"task{k}": 0.5 for k in range(2001)}))


def test_the_mean_of_a_group_is_not_counted_beside_its_tasks() -> None:
    document = lm_eval({"mmlu": 0.5, "mmlu_law": 0.5}, groups={"mmlu": {}}, group_subtasks={"mmlu": ["mmlu_law"]})
    assert [m.benchmark.name for m in sheet(document).measured] == ["mmlu_law"]


def test_an_error_that_was_not_reported_is_the_largest_that_is_possible() -> None:
    document = lm_eval({"t": 0.5}, n=101)
    document["results"]["t"]["acc_stderr,none"] = "N/A"
    aggregate = result(sheet(document)).aggregate
    assert aggregate is not None
    assert aggregate.stderr == pytest.approx(0.05)


@pytest.mark.parametrize(
    "more",
    [
        {"versions": {"t": 2.0}},
        {"n-shot": {"t": 5}},
        {"chat_template_sha": "abc"},
        {"system_instruction": "be brief"},
        {"n-samples": {"t": {"effective": 99}}},
        {"configs": {"t": {"doc_to_text": "Q: {{question}}"}}},
        {"config": {"model": "vllm", "model_args": "pretrained=org/model,revision=step1000,dtype=float32"}},
        {"config": {"model": "hf", "model_args": "pretrained=org/model,revision=step1000,dtype=bfloat16"}},
        {"config": {"model": "hf", "model_args": {"dtype": "float32"}, "gen_kwargs": "temperature=1"}},
    ],
)
def test_another_way_of_measuring_is_another_fingerprint(more: dict[str, Any]) -> None:
    (plain,) = sheets_of_lm_eval(fields(lm_eval({"t": 0.5})), {}, given(step=1))
    (other,) = sheets_of_lm_eval(fields(lm_eval({"t": 0.5}, **more)), {}, given(step=1))
    assert result(plain).fingerprint != result(other).fingerprint


def test_another_checkpoint_on_another_device_is_the_same_way_of_measuring() -> None:
    model = {"model": "hf", "model_args": {"pretrained": "x/step7", "dtype": "float32", "device_map": "auto"}}
    here, there = lm_eval({"t": 0.5}, n=10), lm_eval({"t": 0.7}, n=10, config=model | {"limit": 10, "batch_size": 64})
    assert result(sheet(here)).fingerprint == result(sheet(there)).fingerprint


def test_samples_beside_a_results_file_take_the_place_of_its_mean() -> None:
    found = sheet(lm_eval({"t": 0.5}, n=4), {"t": lm_eval_rows([1.0, 0.0, 1.0, 0.0])})
    read = result(found)
    assert read.aggregate is None
    assert [s.score for s in read.samples] == [1.0, 0.0, 1.0, 0.0]
    assert (read.samples[0].prompt, read.samples[0].answer) == ("question 0\nAnswer:\n\n no\n\n yes", " yes")


def test_samples_that_do_not_give_the_reported_mean_are_not_believed() -> None:
    found = sheet(lm_eval({"t": 0.9}, n=2), {"t": lm_eval_rows([1.0, 0.0])})
    assert result(found).aggregate is not None
    reason = "their mean 0.5 is not the reported one, 0.9: importing only mean and standard error"
    assert found.left_out[0].reason == reason


def test_a_question_that_the_samples_lack_is_an_error_and_no_wrong_answer() -> None:
    found = sheet(lm_eval({"t": 1.0}, n=3), {"t": lm_eval_rows([1.0, 1.0])})
    assert [s.status for s in result(found).samples] == [SampleStatus.SCORED] * 2 + [SampleStatus.ERROR]
    assert result(found).samples[-1].score is None
