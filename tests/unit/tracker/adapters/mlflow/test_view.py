"""The ready-made page of charts, as MLflow reads it from a tag."""

import base64
import json
import zlib
from typing import Any

import pytest

from tracker.adapters.mlflow.view import MAX_CHARTS, VIEW_KEY, view_link, view_state

KEYS = ("bench/facts", "bench/sums", "coverage/facts", "perf/ttft_ms_p50", "perf/ttft_ms_p95", "train/loss", "train/lr")


def read(value: str) -> dict[str, Any]:
    state: dict[str, Any] = json.loads(zlib.decompress(base64.b64decode(value.removeprefix("deflate;"))))
    return state


def charts(value: str) -> list[list[str]]:
    return [chart["selectedMetricKeys"] for chart in read(value)["compareRunCharts"]]


def test_the_loss_and_every_benchmark_have_charts_of_their_own() -> None:
    assert charts(view_state(KEYS, None))[:3] == [["train/loss"], ["bench/facts"], ["bench/sums"]]


def test_the_loss_of_a_joined_run_is_found_under_the_trainers_name() -> None:
    assert charts(view_state(["bench/facts", "loss", "eval_loss"], None))[0] == ["loss"]


def test_latency_has_a_chart_for_each_median() -> None:
    assert ["perf/ttft_ms_p50"] in charts(view_state(KEYS, None))
    assert not [keys for keys in charts(view_state(KEYS, None)) if "perf/ttft_ms_p95" in keys]


def test_every_chart_lies_in_a_section_of_the_page() -> None:
    state = read(view_state(KEYS, None))
    assert {c["metricSectionId"] for c in state["compareRunCharts"]} <= {s["uuid"] for s in state["compareRunSections"]}


def test_the_same_keys_give_the_same_page() -> None:
    once = view_state(KEYS, None)
    assert view_state(KEYS, once) == once


def test_metrics_of_another_run_stay_on_the_page() -> None:
    first = view_state(["bench/facts", "loss"], None)
    assert charts(view_state(["bench/sums", "train/loss"], first))[:3] == [
        ["loss", "train/loss"],
        ["bench/facts"],
        ["bench/sums"],
    ]


@pytest.mark.parametrize("damaged", ["", "hello", "deflate;", "deflate;AAAA", "deflate;" + "=" * 5])
def test_a_tag_that_somebody_else_wrote_is_replaced(damaged: str) -> None:
    assert view_state(KEYS, damaged) == view_state(KEYS, None)


def test_a_page_without_any_metric_is_empty() -> None:
    assert charts(view_state([], None)) == []


def test_the_table_of_runs_has_parameters_and_scores_as_columns() -> None:
    columns = read(view_state(KEYS, None))["selectedColumns"]
    assert {"params.`learning_rate`", "params.`seed`", "tags.`verdict`", "metrics.`bench/sums`"} <= set(columns)


def test_many_benchmarks_are_shown_one_by_one_and_the_tag_stays_small() -> None:
    value = view_state([f"bench/b{i:03}" for i in range(500)], None)
    assert len(charts(value)) == MAX_CHARTS
    assert len(value) < 5000


def test_the_average_loss_that_a_trainer_logs_at_the_end_is_no_curve() -> None:
    assert charts(view_state(["loss", "train_loss"], None))[0] == ["loss"]


def test_the_link_names_the_experiment_and_the_page() -> None:
    link = view_link("http://127.0.0.1:5000/", "7")
    assert link.startswith("http://127.0.0.1:5000/#/experiments/7/runs?")
    assert VIEW_KEY in link
