"""tracker.toml: what is accepted, what is refused, and in which words."""

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from docs.generator.settings import settings_page
from eval_jobs.errors import ConfigError
from eval_jobs.identity import suite_fingerprint
from eval_jobs.types import EngineKind, OnlyWhen
from tests.requires import PROJECT
from tracker.cli.settings_text import commented_toml
from tracker.config import Config, load_config, parse_config

HERE = Path("/project/tracker.toml")
MINIMAL = '[run]\nname = "r"\noutput_dir = "out"\n[[benchmark]]\nbenchmark = "gsm8k"\n'


def refused(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse_config(text, HERE)
    assert caught.value.exit_code == 2
    return str(caught.value)


def test_five_lines_are_enough() -> None:
    config = parse_config(MINIMAL, HERE)
    assert config.run.output_dir == "/project/out"
    assert config.run.state_dir == Path("/project/.tracker")
    assert [b.name for b in config.to_suite({}).benchmarks] == ["gsm8k"]


def test_paths_have_no_dots_and_names_do_not_begin_with_one() -> None:
    assert parse_config(MINIMAL.replace('"out"', '"../other/out"'), HERE).run.output_dir == "/other/out"
    assert "cannot begin with a dot, because MLflow" in refused(MINIMAL.replace('"r"', '".."'))


def test_patterns_of_logs_keep_the_place_of_the_rank() -> None:
    config = parse_config(MINIMAL + '[health]\nlogs = ["slurm-%j-%4t.out", "%x/%N.log"]\n', HERE)
    assert config.health.logs == ("/project/slurm-*-%4t.out", "/project/*/*.log")


def test_checkpoints_may_lie_in_a_bucket() -> None:
    config = parse_config(MINIMAL.replace('"out"', '"s3://bucket/runs/sft"'), HERE)
    assert config.run.output_dir == "s3://bucket/runs/sft"
    assert config.run.is_bucket
    assert not parse_config(MINIMAL, HERE).run.is_bucket


@pytest.mark.parametrize("place", ["gs://bucket/x", "s3://", "s3://AKIAKEY:SECRETSECRET@bucket/x"])
def test_other_addresses_are_refused_and_never_repeated(place: str) -> None:
    message = refused(MINIMAL.replace('"out"', f'"{place}"'))
    assert "s3://bucket/prefix" in message
    assert "SECRETSECRET" not in message


@pytest.mark.parametrize("url", ["minio:9000", "http://AKIAKEY:SECRETSECRET@minio:9000"])
def test_an_endpoint_is_an_address_without_keys(url: str) -> None:
    message = refused(MINIMAL + f'[s3]\nendpoint_url = "{url}"\n')
    assert "s3.endpoint_url" in message
    assert "SECRETSECRET" not in message


@pytest.mark.parametrize(
    ("setting", "instead"),
    [
        ('[serve]\nengine = "remote"\nbase_url = "https://SECRETSECRET@host/v1"\n', "serve.api_key_env"),
        ('[serve]\nengine = "remote"\nbase_url = "https://host/v1?api_key=SECRETSECRET"\n', "serve.api_key_env"),
        ('[tracking]\nuri = "https://me:SECRETSECRET@mlflow"\n', "MLFLOW_TRACKING_PASSWORD"),
        ('[tracking]\nuri = "postgresql://me:SECRETSECRET@host/mlflow"\n', "MLFLOW_TRACKING_PASSWORD"),
        ('[store]\ndatabase = "postgresql://me:SECRETSECRET@host/tracker"\n', "store.password_env"),
    ],
)
def test_an_address_with_a_key_is_refused_and_never_repeated(setting: str, instead: str) -> None:
    message = refused(MINIMAL + setting)
    assert instead in message
    assert "SECRETSECRET" not in message


def test_a_database_may_be_asked_for_as_somebody() -> None:
    uri = "postgresql://me@host/mlflow"
    assert parse_config(MINIMAL + f'[tracking]\nuri = "{uri}"\n', HERE).tracking.uri == uri


def test_two_lines_bring_a_data_set() -> None:
    config = parse_config(MINIMAL + '[[benchmark]]\nbenchmark = "exact"\ndata = "d/sums.jsonl"\n', HERE)
    sums = config.to_suite({"sums": "abc"}).benchmarks[1]
    assert (sums.name, sums.adapter, sums.data, sums.data_digest) == ("sums", "exact", "/project/d/sums.jsonl", "abc")


def test_a_typo_is_refused_with_the_nearest_setting() -> None:
    message = refused(MINIMAL + "[serve]\nmax_model_length = 128\n")
    assert "unknown setting serve.max_model_length (did you mean max_model_len?)" in message


def test_a_typo_in_a_table_name_is_refused_with_the_nearest_table() -> None:
    assert "did you mean serve?" in refused(MINIMAL + "[server]\n")


def test_a_typo_in_the_second_benchmark_says_which_one() -> None:
    message = refused(MINIMAL + '[[benchmark]]\nbenchmark = "arc"\nlimits = 3\n')
    assert "unknown setting benchmark.[2].limits (did you mean limit?)" in message


def test_an_unlike_word_lists_the_known_settings() -> None:
    assert "known: name, from_step" in refused(MINIMAL + "[[phase]]\nzzz = 1\n")


def test_all_wrong_settings_are_named_at_once() -> None:
    message = refused(MINIMAL + "[suite]\nconcurrency = 0\n[probe]\nrequests = -1\n")
    assert "suite.concurrency" in message
    assert "probe.requests" in message


def test_a_missing_table_is_named() -> None:
    assert "missing setting benchmark" in refused('[run]\nname = "r"\noutput_dir = "o"\n')


def test_broken_toml_names_the_line() -> None:
    assert "line 1" in refused("[run\n")


def test_a_file_may_begin_with_a_byte_order_mark_but_not_be_in_another_encoding(tmp_path: Path) -> None:
    file = tmp_path / "tracker.toml"
    file.write_text(MINIMAL, encoding="utf-8-sig")
    assert load_config(file).run.name == "r"
    file.write_bytes(MINIMAL.replace('"r"', '"微调"').encode("gbk"))
    with pytest.raises(ConfigError, match="not UTF-8 text") as caught:
        load_config(file)
    assert caught.value.hint == "save the file as UTF-8"


def test_a_new_file_with_many_benchmarks_has_no_comments() -> None:
    benchmarks = tuple({"benchmark": "exact", "data": f"data/{n}.jsonl"} for n in range(9))
    chosen: dict[str, tuple[Mapping[str, object], ...]] = {
        "run": ({"name": "r", "output_dir": "out"},),
        "serve": ({"max_model_len": 8192, "dtype": "float16"},),
        "suite": ({"max_tokens": 64},),
        "tracking": ({"uri": "sqlite:///m.db"},),
    }
    text = commented_toml({**chosen, "benchmark": benchmarks})
    assert len(text.splitlines()) <= 60
    assert len(parse_config(text, HERE).benchmark) == 9
    assert "min_effect" in commented_toml({**chosen, "benchmark": benchmarks[:2]})


def test_a_store_in_a_file_is_relative_to_the_configuration() -> None:
    tracking = parse_config(MINIMAL + '[tracking]\nuri = "sqlite:///runs/mlflow.db"', HERE).tracking
    assert tracking.uri == "sqlite:////project/runs/mlflow.db"


def test_a_missing_file_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="tracker init"):
        load_config(tmp_path / "tracker.toml")


def test_a_remote_engine_needs_an_address() -> None:
    assert "base_url" in refused(MINIMAL + '[serve]\nengine = "remote"\n')


def test_our_own_adapters_need_data() -> None:
    assert "requires data" in refused('[run]\nname = "r"\noutput_dir = "o"\n[[benchmark]]\nbenchmark = "exact"\n')


def test_two_benchmarks_of_one_name_are_refused() -> None:
    assert "duplicate benchmark name 'gsm8k'" in refused(MINIMAL + '[[benchmark]]\nbenchmark = "gsm8k"\n')


def test_a_latency_reference_is_the_first_checkpoint_or_a_folder_beside_the_file() -> None:
    def reference(value: str) -> str:
        return parse_config(f'{MINIMAL}[probe]\nreference = "{value}"\n', HERE).probe.reference

    assert [reference(v) for v in ("", "first", "base", "/models/base")] == [
        "",
        "first",
        "/project/base",
        "/models/base",
    ]


def test_a_remote_model_without_a_step_cannot_be_compared_with_a_reference() -> None:
    remote = '[serve]\nengine = "remote"\nbase_url = "http://h/v1"\nmodel = "run{}"\n[probe]\nreference = "first"\n'
    assert "{step}" in refused(MINIMAL + remote.replace("{}", ""))
    assert parse_config(MINIMAL + remote.replace("{}", "-{step}"), HERE).probe.reference == "first"


def test_phases_out_of_order_are_refused() -> None:
    phases = '[[phase]]\nname = "b"\nfrom_step = 5\n[[phase]]\nname = "a"\nfrom_step = 1\n'
    assert "in ascending order of from_step" in refused(MINIMAL + phases)


@pytest.mark.parametrize("change", ["[suite]\nseed = 1\n", "[suite]\nmax_tokens = 9\n", "[suite]\nconcurrency = 9\n"])
def test_whatever_changes_a_score_changes_the_fingerprint(change: str) -> None:
    before = parse_config(MINIMAL, HERE).to_suite({})
    assert suite_fingerprint(parse_config(MINIMAL + change, HERE).to_suite({})) != suite_fingerprint(before)


def test_the_place_of_the_data_does_not_change_the_fingerprint_and_its_content_does() -> None:
    text = MINIMAL + '[[benchmark]]\nbenchmark = "exact"\ndata = "sums.jsonl"\n'
    here, elsewhere = parse_config(text, HERE), parse_config(text, Path("/other/tracker.toml"))
    digest = suite_fingerprint(here.to_suite({"sums": "a"}))
    assert suite_fingerprint(elsewhere.to_suite({"sums": "a"})) == digest
    assert suite_fingerprint(here.to_suite({"sums": "b"})) != digest


def test_a_new_file_is_short_and_valid_with_and_without_its_comments() -> None:
    benchmarks = tuple({"benchmark": "exact", "data": f"{name}.jsonl"} for name in "abcdef")
    text = commented_toml({"run": ({"name": "r", "output_dir": "out"},), "benchmark": benchmarks})
    assert len(text.splitlines()) <= 60
    own = parse_config(text, HERE)
    assert own.model_copy(update={"benchmark": ()}) == parse_config(MINIMAL, HERE).model_copy(update={"benchmark": ()})
    uncommented = parse_config(re.sub(r"^# (?=\w+ =|\[)", "", text, flags=re.MULTILINE), HERE)
    assert uncommented.serve.max_model_len == 4096
    assert uncommented.alerts.channel[0].name == "team"


def test_every_setting_has_a_description() -> None:
    assert not re.search(r":   (None)?\n", settings_page())
    assert set(Config.model_fields) == {
        "run", "watch", "serve", "suite", "benchmark", "probe", "policy", "phase", "tracking", "s3", "keep", "store",
        "gate", "alerts", "schedule", "health",
    }  # fmt: skip


@pytest.mark.parametrize("path", sorted(PROJECT.glob("examples/**/tracker.toml")), ids=lambda p: p.parent.name)
def test_every_shipped_configuration_is_valid(path: Path) -> None:
    load_config(path)


def test_when_a_worker_may_begin_travels_with_every_plan() -> None:
    text = MINIMAL + '[serve.only_when]\nhours = "20:00-07:00"\ntime_zone = "Europe/Berlin"\ngpu_below_pct = 10\n'
    spec = parse_config(text, HERE).serve.to_spec()
    assert spec.only_when == OnlyWhen(hours="20:00-07:00", time_zone="Europe/Berlin", gpu_below_pct=10)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ('hours = "20:00-07:00"', "hours requires time_zone"),
        ('hours = "at night"\ntime_zone = "UTC"', 'write it as "20:00-07:00"'),
        ('hours = "20:00-07:00"\ntime_zone = "Berlin"', "unknown serve.only_when.time_zone on this machine: 'Berlin'"),
        ("gpu_below_pct = 0", "serve.only_when.gpu_below_pct"),
        ("gpu_over_s = 1", "serve.only_when.gpu_over_s"),
        ('hour = "20:00-07:00"', "did you mean hours?"),
    ],
)
def test_a_condition_that_could_never_be_met_or_read_is_refused(settings: str, words: str) -> None:
    assert words in refused(MINIMAL + f"[serve.only_when]\n{settings}\n")


@pytest.mark.parametrize(
    "args",
    [
        '["--gpu-memory-utilization", "0.3"]',
        '["--gpu-memory-utilization=0.3"]',
        '["--gpu_memory_utilization", "0.3"]',
        '["--max-num-seqs", "4", "--gpu-mem", "0.3"]',
    ],
)
def test_a_share_of_the_memory_among_the_arguments_is_refused_with_the_name_of_its_setting(args: str) -> None:
    message = refused(MINIMAL + f"[serve]\nargs = {args}\n")
    assert "serve.gpu_memory_utilization" in message


def test_sglang_is_an_engine_with_the_settings_of_vllm_but_for_its_sleep() -> None:
    spec = parse_config(
        MINIMAL + '[serve]\nengine = "sglang"\npython = "/opt/sglang/bin/python"\n', HERE
    ).serve.to_spec()
    assert (spec.engine, spec.python) == (EngineKind.SGLANG, "/opt/sglang/bin/python")
    assert 'use "stay" or "stop"' in refused(MINIMAL + '[serve]\nengine = "sglang"\nbetween = "sleep"\n')
