"""Which settings and arguments cannot change a score."""

from dataclasses import replace

import pytest

from eval_jobs.identity import benchmark_fingerprint, series_fingerprint, series_fingerprints, series_serving_hash
from eval_jobs.neutral_settings import NEUTRAL, neutral_values, split_arguments
from eval_jobs.types import Benchmark, EngineKind, ServeSpec, Suite
from tests.records import forgetting_run


@pytest.mark.parametrize(
    ("given", "counting", "neutral"),
    [
        ("", "", {}),
        ("-tp 2 --quantization fp8", "--quantization fp8", {"tensor-parallel-size": "2"}),
        ("--max_num_seqs=9 --no-enforce-eager", "", {"max-num-seqs": "9", "enforce-eager": "false"}),
        ("--enforce-eager --seed 7", "--seed 7", {"enforce-eager": "true"}),
        ("--chunked-prefill-size -1 --device-ids 0 1", "", {"chunked-prefill-size": "-1", "device-ids": "0 1"}),
        ("-O3 -cc.mode=3", "", {"optimization-level": "3", "compilation-config.mode": "3"}),
        ("--dtype=half --kv-cache-dtype fp8", "--dtype=half --kv-cache-dtype fp8", {}),
        ("--max-model-len 512 --chat-template t", "--max-model-len 512 --chat-template t", {}),
        ("--no-such --hf-overrides {} -q awq", "--no-such --hf-overrides {} -q awq", {}),
        ("tp tensor-parallel-size --enforce", "tp tensor-parallel-size --enforce", {}),
        ("- -- -= --=1", "- -- -= --=1", {}),
    ],
)  # fmt: skip
def test_arguments_that_cannot_change_a_score_are_told_from_all_others(
    given: str, counting: str, neutral: dict[str, str]
) -> None:
    assert split_arguments(given.split()) == (tuple(counting.split()), neutral)


def test_every_neutral_group_has_a_reason_and_no_setting_two_groups() -> None:
    names = [name for group in NEUTRAL for name in (*group.settings, *group.arguments)]
    assert len(set(names)) == len(names)
    assert all(group.reason and (group.settings or group.arguments) for group in NEUTRAL)
    values = neutral_values(forgetting_run().records[0].plan, {"facts", "sums", "reversal"})
    assert values.keys() == {name for group in NEUTRAL for name in group.settings}


def test_stored_fingerprints_keep_their_values_and_series_are_derived_from_them() -> None:
    benchmark = Benchmark(name="sums", adapter="exact", data_digest="d")
    usual, other = (Suite(name="s", benchmarks=(benchmark,), concurrency=count) for count in (8, 64))
    assert benchmark_fingerprint(benchmark, usual) == "90602e4ff9546c153e9efb9266d8e762"
    assert (
        series_fingerprint(benchmark, usual)
        == series_fingerprint(benchmark, other)
        == "90602e4ff9546c153e9efb9266d8e762"
    )
    assert benchmark_fingerprint(benchmark, usual) != benchmark_fingerprint(benchmark, other)


def test_a_result_of_another_version_keeps_its_own_fingerprint() -> None:
    record = forgetting_run().records[0]
    (result, *_) = record.results
    other = replace(result, fingerprint="other")
    assert series_fingerprints(record.plan, [other, replace(other, benchmark="gone")]) == ("other", "other")


def test_imported_results_leave_out_neutral_settings_that_were_stored() -> None:
    kept = (("metric", "acc"), ("model.dtype", "half"))
    one, two = (
        Benchmark(name="x", adapter="h", measured_with=(*kept, ("model.max_num_seqs", count))) for count in ("8", "64")
    )
    suite = Suite(name="s", benchmarks=())
    assert series_fingerprint(one, suite) == series_fingerprint(replace(two, measured_with=kept), suite)
    assert series_fingerprint(one, suite) != series_fingerprint(replace(two, measured_with=kept[:1]), suite)


def test_arguments_of_a_plugin_have_no_known_meaning_and_all_count() -> None:
    served = [ServeSpec(engine=kind, args=("-tp", "2")) for kind in (EngineKind.VLLM, EngineKind.PLUGIN)]
    assert [series_serving_hash(one) == series_serving_hash(replace(one, args=())) for one in served] == [True, False]
