import json
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from eval_jobs.errors import BadData
from eval_jobs.types import ProbeResult
from tests.evaluating import quiet
from tests.imported import bench, fields, given
from tests.requires import shared_data
from tracker.adapters.result_files import ImportRequest, read_results
from tracker.domain.imports.bench_serve import is_bench_serve, sheet_of_bench_serve


def probe(**more: object) -> ProbeResult:
    return sheet_of_bench_serve(fields(bench(**more)), given("f.json")).probes[0]


def test_times_are_those_of_the_requests_that_were_answered() -> None:
    found = probe()
    assert (found.completed, found.failed, found.first_error) == (3, 1, "the server closed the connection")
    assert found.ttft_ms is not None
    assert (found.ttft_ms.p50, found.ttft_ms.p90) == pytest.approx((200, 280))
    assert found.tpot_ms is not None
    assert found.tpot_ms.mean == pytest.approx(np.mean([20, 20, 40]))
    assert found.e2e_ms is not None
    assert found.e2e_ms.p50 == pytest.approx(240)
    assert [request.position for request in found.requests] == [0, 1, 3]


def test_the_load_says_what_was_sent() -> None:
    load = probe().load
    assert (load.name, load.requests, load.concurrency, load.request_rate) == (
        "10 tokens in, 3 out, concurrency 2",
        4,
        2,
        None,
    )
    assert probe(request_rate=5.0, max_concurrency=None).load.name == "10 tokens in, 3 out, 5 requests/s"
    assert (
        probe(request_rate=5.0, burstiness=0.5).load.name
        == "10 tokens in, 3 out, 5 requests/s, max concurrency 2, burstiness 0.5"
    )


def test_answers_whose_length_the_model_chose_are_one_load_at_every_checkpoint() -> None:
    shorter, longer = probe(output_lens=[3, 1, 0, 5]), probe(output_lens=[9, 9, 0, 1], total_output_tokens=19)
    assert shorter.load == longer.load
    assert shorter.load.name == "10 tokens in, variable out, concurrency 2"


def test_the_step_is_read_from_the_model_and_the_time_from_the_file() -> None:
    sheet = sheet_of_bench_serve(fields(bench()), given("f.json"))
    assert (sheet.step, sheet.measured_at) == (1000, datetime(2026, 3, 1, 10, tzinfo=UTC))
    assert (sheet.engine.name, sheet.engine.load_method) == ("vllm", "imported")


def test_without_single_requests_the_percentiles_of_the_file_count() -> None:
    summary = bench(p50_ttft_ms=1.0, p90_ttft_ms=2.0, p95_ttft_ms=3.0, p99_ttft_ms=4.0, mean_ttft_ms=1.5)
    for name in ("ttfts", "itls", "errors", "input_lens", "output_lens"):
        del summary[name]
    sheet = sheet_of_bench_serve(fields(summary), given("f.json"))
    assert sheet.probes[0].ttft_ms is not None
    assert (sheet.probes[0].ttft_ms.p95, sheet.probes[0].ttft_ms.mean) == (3.0, 1.5)
    assert [left.name for left in sheet.left_out] == ["tpot", "itl", "e2el"]


def test_percentiles_below_zero_are_refused() -> None:
    ttft = {f"{name}_ttft_ms": -1.0 for name in ("mean", "median", "p90", "p95", "p99")}
    with pytest.raises(BadData, match="negative"):
        probe(ttfts=None, itls=None, errors=None, output_lens=None, **ttft)


def test_a_file_without_percentiles_is_refused_with_what_to_do() -> None:
    summary = {k: v for k, v in bench().items() if k not in ("ttfts", "itls", "errors")}
    with pytest.raises(BadData, match=r"evals/f\.json: `ttfts` is missing") as caught:
        sheet_of_bench_serve(fields(summary), given("f.json"))
    assert "--save-detailed" in caught.value.hint


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"ttfts": [0.1, None, 0.0, 0.3]}, "`ttfts` is a list of size 4 (expected a list of numbers)"),
        ({"errors": [""]}, "`errors` must have 4 values"),
        ({"completed": "three"}, "`completed` is 'three' (expected a non-negative integer)"),
        ({"duration": None}, "`duration` is missing (expected a number)"),
        ({"itls": [["0.1"], [0.1], [], [0.1]]}, "`itls` contains a duration that is not a number from 0 on"),
        ({"itls": [[float("nan")], [0.1], [], [0.1]]}, "`itls` contains a duration that is not a number from 0 on"),
        ({"ttfts": [-0.1, 0.2, 0.0, 0.3]}, "`ttfts` contains a duration that is not a number from 0 on"),
        ({"duration": -1.0}, "`duration` is negative"),
    ],
)
def test_what_is_wrong_names_the_field(more: dict[str, object], said: str) -> None:
    with pytest.raises(BadData) as caught:
        probe(**more)
    assert said in caught.value.message


def test_other_json_is_no_benchmark() -> None:
    assert not is_bench_serve({"results": {}, "duration": 1})


@pytest.mark.shared_data
def test_real_files_agree_with_what_they_say_of_themselves() -> None:
    folder = shared_data("latency/vllm_bench_serve")
    for file in sorted(folder.glob("*.json")):
        found = read_results([file], ImportRequest(step=1), progress=quiet)
        (one,) = found.sheets[0].probes
        said = {k: v for k, v in _numbers(file).items() if k.endswith("_ttft_ms")}
        assert one.ttft_ms is not None
        assert (one.ttft_ms.p50, one.ttft_ms.p99) == pytest.approx((said["median_ttft_ms"], said["p99_ttft_ms"]))
        assert one.ttft_ms.mean == pytest.approx(said["mean_ttft_ms"])
        assert one.failed == 0


def _numbers(file: Path) -> dict[str, float]:
    return {k: v for k, v in json.loads(file.read_text()).items() if isinstance(v, float)}
