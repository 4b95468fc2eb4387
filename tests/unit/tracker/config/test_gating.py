"""The tables of a gate: what they mean, what is refused, and in which words."""

from dataclasses import fields
from pathlib import Path

import pytest

from docs.generator.settings import settings_page
from eval_jobs import limits
from eval_jobs.errors import ConfigError
from eval_jobs.types import Percentiles
from tests.unit.tracker.domain.making import record_of
from tracker.config import load_gate_policy, parse_config
from tracker.config.gating import GateFile
from tracker.config.reading import checked
from tracker.domain.compare.view import RunNoise
from tracker.domain.gate.decision import gate
from tracker.domain.gate.rules import QUANTILES, BenchmarkRule, GatePolicy, LatencyLimit
from tracker.domain.gate.types import GateWord
from tracker.domain.records.types import LatencyMetric

HERE = Path("/project/tracker.toml")
PROJECT_OF_TWO = (
    '[run]\nname = "r"\noutput_dir = "out"\n[[benchmark]]\nbenchmark = "gsm8k"\n'
    '[[benchmark]]\nbenchmark = "general_qa"\nname = "my qa"\n'
)
WHOLE = """
[gate]
alpha = 0.01
min_effect = 0.03
min_coverage = 0.9
min_loss = 0.02
others_required = false
[gate.benchmark.gsm8k]
required = true
min_effect = 0.02
min_coverage = 0.95
floor = 0.4
[gate.benchmark."my qa"]
required = false
[[gate.latency]]
metric = "ttft"
quantile = "p95"
max_ms = 200
[[gate.latency]]
metric = "e2e"
quantile = "p50"
max_ms = 1500.5
load = "default"
required = false
"""
MEANT = GatePolicy(
    alpha=0.01,
    otherwise=BenchmarkRule(required=False, min_effect=0.03, min_coverage=0.9, min_loss=0.02),
    benchmarks={
        "gsm8k": BenchmarkRule(required=True, min_effect=0.02, min_coverage=0.95, floor=0.4, min_loss=0.02),
        "my qa": BenchmarkRule(required=False, min_effect=0.03, min_coverage=0.9, min_loss=0.02),
    },
    latency=(
        LatencyLimit(metric=LatencyMetric.TTFT, quantile=0.95, max_ms=200.0),
        LatencyLimit(metric=LatencyMetric.E2E, quantile=0.5, max_ms=1500.5, required=False),
    ),
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "gate.toml"


def policy_of(text: str) -> GatePolicy:
    """Return the policy of a file of its own."""
    return checked(GateFile, text, Path("/ci/gate.toml")).gate.to_policy()


def refused(text: str) -> str:
    """Return what is said of a file of its own."""
    with pytest.raises(ConfigError) as caught:
        policy_of(text)
    assert caught.value.exit_code == 2
    assert caught.value.message.startswith("/ci/gate.toml")
    return caught.value.message


def refused_in_project(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse_config(PROJECT_OF_TWO + text, HERE)
    assert caught.value.message.startswith("/project/tracker.toml: ")
    return caught.value.message


def test_the_same_tables_mean_the_same_in_tracker_toml_and_in_a_file_of_their_own(file: Path) -> None:
    file.write_text(WHOLE, encoding="utf-8")
    assert load_gate_policy(file) == MEANT
    assert parse_config(PROJECT_OF_TWO + WHOLE, HERE).gate.to_policy() == MEANT


def test_without_any_setting_the_gate_has_its_defaults() -> None:
    assert policy_of("[gate]\n") == GatePolicy()
    assert parse_config(PROJECT_OF_TWO, HERE).gate.to_policy() == GatePolicy()


def test_a_rule_takes_from_the_gate_what_it_does_not_set() -> None:
    policy = policy_of('[gate]\nmin_effect = 0.04\n[gate.benchmark."a.b"]\nfloor = 0.2\nmin_coverage = 0.5\n')
    assert policy.benchmarks == {"a.b": BenchmarkRule(min_effect=0.04, min_coverage=0.5, floor=0.2)}
    assert policy.otherwise == BenchmarkRule(min_effect=0.04)


def test_in_tracker_toml_the_gate_goes_by_what_the_verdicts_go_by_where_it_says_nothing() -> None:
    verdicts = "[policy]\nalpha = 0.2\nmin_effect = 0.03\nmin_coverage = 0.8\n"
    policy = parse_config(PROJECT_OF_TWO + verdicts + "[gate.benchmark.gsm8k]\nfloor = 0.1\n", HERE).gate.to_policy()
    assert policy.alpha == 0.05, "that of the verdicts is spent over a whole run"
    assert policy.otherwise == BenchmarkRule(min_effect=0.03, min_coverage=0.8)
    assert policy.benchmarks["gsm8k"] == BenchmarkRule(min_effect=0.03, min_coverage=0.8, floor=0.1)
    own = parse_config(PROJECT_OF_TWO + verdicts + "[gate]\nmin_effect = 0.02\nmin_coverage = 0.9\n", HERE).gate
    assert own.to_policy().otherwise == BenchmarkRule(min_effect=0.02, min_coverage=0.9)


def test_verdicts_on_any_loss_at_all_need_a_loss_that_matters_for_the_gate_and_watching_does_not_mind() -> None:
    any_loss = "[policy]\nmin_effect = 0\n"
    config = parse_config(PROJECT_OF_TWO + any_loss, HERE)
    with pytest.raises(ConfigError, match=r"policy\.min_effect = 0 is too small for a gate") as caught:
        config.gate.to_policy()
    assert "set gate.min_effect" in caught.value.hint
    own = parse_config(PROJECT_OF_TWO + any_loss + "[gate]\nmin_effect = 0.02\n", HERE)
    assert own.gate.to_policy().otherwise.min_effect == 0.02


def test_a_gate_may_be_held_to_the_benchmarks_that_have_a_table() -> None:
    same = [1.0] * 900 + [0.0] * 100
    before = record_of(1, {"sums": same, "facts": same})
    after = record_of(2, {"sums": same, "facts": [0.0] * 1000})
    named = policy_of("[gate]\nothers_required = false\n[gate.benchmark.sums]\n")
    assert gate(before, after, named, RunNoise()).word is GateWord.PASS
    assert gate(before, after, policy_of("[gate]\n"), RunNoise()).word is GateWord.REGRESSION


def test_every_quantile_that_may_be_limited_is_one_that_a_probe_keeps() -> None:
    kept = {one.name for one in fields(Percentiles)} - {"mean"}
    assert set(QUANTILES) == kept
    for name, quantile in QUANTILES.items():
        limit = f'[[gate.latency]]\nmetric = "tpot"\nquantile = "{name}"\nmax_ms = 1\n'
        assert policy_of(limit).latency[0].quantile == quantile
        assert f"p{quantile * 100:.0f}" == name


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[gate]\nalhpa = 0.1\n", "unknown setting gate.alhpa (did you mean alpha?)"),
        ("[gate.benchmrk.a]\n", "unknown setting gate.benchmrk (did you mean benchmark?)"),
        (
            "[gate.benchmark.gsm8k]\nmin_efect = 0.1\n",
            "unknown setting gate.benchmark.gsm8k.min_efect (did you mean min_effect?)",
        ),
        (
            '[gate.benchmark."my qa"]\nflor = 0.1\n',
            'unknown setting gate.benchmark."my qa".flor (did you mean floor?)',
        ),
        (
            "[gate.benchmark.a]\nzzz = 1\n",
            "gate.benchmark.a.zzz (known: required, min_effect, min_coverage, floor, clusters)",
        ),
        (
            '[[gate.latency]]\nmetric = "ttft"\nquantile = "p95"\nmax_ms = 1\nlaod = "x"\n',
            "unknown setting gate.latency.[1].laod (did you mean load?)",
        ),
        ("alpha = 0.1\n[gate]\n", "unknown setting alpha (known: gate)"),
        ("[gates]\n", "unknown setting gates (did you mean gate?)"),
        ("", "missing setting gate"),
        (PROJECT_OF_TWO + "[gate]\n", "unknown setting run (known: gate)"),
    ],
)
def test_an_unknown_setting_is_refused_with_the_nearest_name(text: str, words: str) -> None:
    assert words in refused(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[gate]\nalpha = 0\n", "gate.alpha: Input should be greater than 0"),
        ("[gate]\nalpha = 0.5\n", "gate.alpha: Input should be less than 0.5"),
        ("[gate]\nalpha = nan\n", "gate.alpha: "),
        ("[gate]\nmin_effect = 0\n", "gate.min_effect: Input should be greater than or equal to 0.001"),
        ("[gate]\nmin_effect = 1\n", "gate.min_effect: Input should be less than 1"),
        ("[gate]\nmin_effect = nan\n", "gate.min_effect: "),
        ("[gate]\nmin_coverage = 0\n", "gate.min_coverage: Input should be greater than 0"),
        ("[gate]\nmin_coverage = 95\n", "gate.min_coverage: Input should be less than or equal to 1"),
        ('[gate]\nothers_required = "often"\n', "gate.others_required: Input should be a valid boolean"),
        ("[gate.benchmark.a]\nmin_effect = -0.1\n", "gate.benchmark.a.min_effect: Input should be greater than"),
        ("[gate.benchmark.a]\nmin_coverage = 1.1\n", "gate.benchmark.a.min_coverage: Input should be less than"),
        ('[gate.benchmark."a.b"]\nfloor = nan\n', 'gate.benchmark."a.b".floor: Input should be a finite number'),
        ("[gate.benchmark.a]\nfloor = inf\n", "gate.benchmark.a.floor: Input should be a finite number"),
        ('[gate.benchmark.a]\nfloor = "high"\n', "gate.benchmark.a.floor: Input should be a valid number"),
        ("[gate.benchmark]\na = 0.4\n", "gate.benchmark.a: this is a table: write [gate.benchmark.a]"),
        ("[[gate]]\n", "gate: this is a table: write [gate]"),
        ("gate = 1\n", "gate: this is a table: write [gate]"),
        ("[gate]\nbenchmark = 1\n", "gate.benchmark: Input should be a valid dictionary"),
    ],
)
def test_a_value_out_of_its_range_is_refused_with_the_range(text: str, words: str) -> None:
    assert words in refused(text)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (('"ttft"', '"itl"'), "gate.latency.[1].metric: Input should be 'ttft', 'tpot' or 'e2e'"),
        (('"p95"', '"p75"'), "gate.latency.[1].quantile: Input should be 'p50', 'p90', 'p95' or 'p99'"),
        (('"p95"', "0.95"), "gate.latency.[1].quantile: Input should be 'p50', 'p90', 'p95' or 'p99'"),
        (("200", "0"), "gate.latency.[1].max_ms: Input should be greater than 0"),
        (("200", "inf"), "gate.latency.[1].max_ms: Input should be a finite number"),
        (('load = "x"', 'load = ""'), "gate.latency.[1].load: String should have at least 1 character"),
        (("max_ms = 200", ""), "missing setting gate.latency.[1].max_ms"),
        (('metric = "ttft"', ""), "missing setting gate.latency.[1].metric"),
        (('quantile = "p95"', ""), "missing setting gate.latency.[1].quantile"),
        (("[[gate.latency]]", "[gate.latency]"), "gate.latency: this is an array of tables: write [[gate.latency]]"),
    ],
)
def test_a_limit_that_could_not_be_held_is_refused(change: tuple[str, str], words: str) -> None:
    limit = '[[gate.latency]]\nmetric = "ttft"\nquantile = "p95"\nmax_ms = 200\nload = "x"\n'
    assert policy_of(limit).latency[0].load == "x"
    assert words in refused(limit.replace(*change))


def test_all_wrong_settings_are_named_at_once() -> None:
    message = refused("[gate]\nalpha = 2\n[gate.benchmark.a]\nfloor = nan\n[gate.benchmark.b]\nflor = 1\n")
    for words in ("gate.alpha", "gate.benchmark.a.floor", "gate.benchmark.b.flor"):
        assert words in message


@pytest.mark.parametrize("name", ["mmlu.stem", "mmlu.stem.v1", "mmlu-5.1", pytest.param("a" + ".b" * 5000, id="deep")])
def test_a_name_with_dots_and_without_quotes_is_shown_with_them(name: str) -> None:
    words = f'quote a name that contains dots: [gate.benchmark."{name}"]'
    assert words[: limits.MESSAGE_CHARS - 100] in refused(f"[gate.benchmark.{name}]\nfloor = 0.1\n")
    assert set(policy_of(f'[gate.benchmark."{name}"]\nfloor = 0.1\n').benchmarks) == {name}


def test_rules_are_tables_by_name_and_no_list() -> None:
    message = refused('[[gate.benchmark]]\nname = "gsm8k"\n')
    assert "gate.benchmark: use one table per benchmark, such as [gate.benchmark.gsm8k]" in message


def test_one_time_has_one_limit() -> None:
    limit = '[[gate.latency]]\nmetric = "ttft"\nquantile = "p95"\nmax_ms = {}\n'
    message = refused(limit.format(200) + limit.format(300))
    assert "gate: p95 of ttft under load default has two limits: remove one" in message
    assert len(policy_of(limit.format(200) + limit.format(300) + 'load = "busy"\n').latency) == 2


def test_a_gate_that_decides_nothing_is_refused() -> None:
    advisory = "[gate]\nothers_required = false\n[gate.benchmark.a]\nrequired = false\n"
    assert "gate: no check is required: set required = true for at least one" in refused(advisory)
    limit = '[[gate.latency]]\nmetric = "ttft"\nquantile = "p95"\nmax_ms = 1\n'
    assert "no check is required" in refused(advisory + limit + "required = false\n")
    assert policy_of(advisory + limit).latency[0].required


def test_in_tracker_toml_a_rule_for_a_benchmark_that_it_has_not_is_refused_with_the_known_names() -> None:
    rules = '[gate.benchmark.gsm8]\n[gate.benchmark."my qa"]\n[gate.benchmark."general.qa"]\n'
    message = refused_in_project(rules)
    assert "gate.benchmark.gsm8: unknown benchmark (known: gsm8k, my qa)" in message
    assert 'gate.benchmark."general.qa": unknown benchmark' in message
    assert 'gate.benchmark."my qa"' not in message
    assert set(policy_of(rules).benchmarks) == {"gsm8", "my qa", "general.qa"}, "in a file alone nothing is known"


def test_in_tracker_toml_a_limit_under_a_load_that_is_never_probed_is_refused() -> None:
    limit = '[[gate.latency]]\nmetric = "ttft"\nquantile = "p95"\nmax_ms = 200\nload = "busy"\n'
    message = refused_in_project(limit)
    assert "gate.latency.[1].load: unknown load 'busy' (known: default)" in message
    off = refused_in_project("[probe]\nenabled = false\n" + limit.replace("busy", "default"))
    assert "gate.latency.[1].load: unknown load 'default' (known: none, because probe.enabled" in off
    assert policy_of(limit).latency[0].load == "busy"


@pytest.mark.parametrize(
    "text", ["[gate\n", "[gate]\nalpha = 1" + "0" * 5000 + "\n", "[gate]\nalpha = " + "[" * 5000 + "\n"]
)
def test_what_is_no_toml_is_refused(text: str) -> None:
    assert "/ci/gate.toml is not valid TOML: " in refused(text)


def test_a_file_that_is_missing_or_cannot_be_read_is_named(file: Path) -> None:
    with pytest.raises(ConfigError, match=r"gate\.toml not found") as caught:
        load_gate_policy(file)
    assert "policy file" in caught.value.hint
    with pytest.raises(ConfigError, match="cannot read "):
        load_gate_policy(file.parent)
    file.write_bytes(b"[gate]\n# \xff\n")
    with pytest.raises(ConfigError, match=r"gate\.toml is not UTF-8 text"):
        load_gate_policy(file)


def test_the_page_of_settings_shows_the_tables() -> None:
    page = settings_page()
    for head in ("[gate]", "[gate.benchmark.NAME]", "[[gate.latency]]"):
        assert f"## `{head}`\n" in page
