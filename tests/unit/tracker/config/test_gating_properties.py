"""Whatever tables of a gate load, the policy that they give is within its documented ranges."""

import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from eval_jobs.errors import ConfigError
from tests.unit.tracker.config.test_gating import PROJECT_OF_TWO, policy_of
from tracker.config import parse_config
from tracker.config.gating import SMALLEST_EFFECT
from tracker.domain.gate.rules import QUANTILES, GatePolicy
from tracker.domain.records.types import LatencyMetric

HERE = Path("/project/tracker.toml")

ODD = st.one_of(st.floats(), st.sampled_from([0, 1, -1, 0.001, 0.5, 10**400, True, "0.5", "high"]))


def mostly(usual: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    """Draw one of ten values from `ODD`, so that whole policies load as well."""
    return st.integers(0, 9).flatmap(lambda draw: ODD if draw == 9 else usual)


SHARES = mostly(st.floats(min_value=0.0005, max_value=1))
NAMES = st.sampled_from(["gsm8k", "my qa", "gsm8k", "my qa", "a.b", "", 'q"uote', "tab\t", "\N{SNOWMAN}"])
RULES = st.fixed_dictionaries(
    {},
    optional={
        "required": st.booleans(),
        "min_effect": SHARES,
        "min_coverage": SHARES,
        "floor": mostly(st.floats(allow_nan=False, allow_infinity=False)),
    },
)
LIMITS = st.fixed_dictionaries(
    {
        "metric": st.sampled_from(["ttft", "tpot", "e2e"]),
        "quantile": st.sampled_from(["p50", "p90", "p95", "p99"]),
        "max_ms": mostly(st.floats(min_value=0.1, max_value=1e6)),
    },
    optional={"load": st.sampled_from(["default", "default", "busy", ""]), "required": st.booleans()},
)
GATES = st.fixed_dictionaries(
    {},
    optional={
        "alpha": mostly(st.floats(min_value=1e-9, max_value=0.5)),
        "min_effect": SHARES,
        "min_coverage": SHARES,
        "others_required": st.booleans(),
        "benchmark": st.dictionaries(NAMES, RULES, max_size=2),
        "latency": st.lists(LIMITS, max_size=2),
    },
)


@given(GATES)
def test_any_policy_that_loads_is_within_its_ranges(gate_table: dict[str, object]) -> None:
    try:
        policy = policy_of(f"gate = {toml(gate_table)}\n")
    except ConfigError:
        return
    assert_in_range(policy)


@given(GATES, st.floats(min_value=0, max_value=0.999), st.floats(min_value=0.01, max_value=1))
def test_any_policy_of_a_project_that_loads_is_within_its_ranges(
    gate_table: dict[str, object], min_effect: float, min_coverage: float
) -> None:
    verdicts = f"[policy]\nmin_effect = {min_effect}\nmin_coverage = {min_coverage}\n"
    try:
        config = parse_config(f"gate = {toml(gate_table)}\n{PROJECT_OF_TWO}{verdicts}", HERE)
    except ConfigError:
        return
    try:
        policy = config.gate.to_policy()
    except ConfigError:
        assert min_effect < SMALLEST_EFFECT
        assert "min_effect" not in gate_table
        return
    assert_in_range(policy)
    assert set(policy.benchmarks) <= {"gsm8k", "my qa"}


def assert_in_range(policy: GatePolicy) -> None:
    assert 0 < policy.alpha < 0.5
    for rule in (policy.otherwise, *policy.benchmarks.values()):
        assert rule.min_effect is None or SMALLEST_EFFECT <= rule.min_effect < 1
        assert 0 < rule.min_coverage <= 1
        assert rule.floor is None or abs(rule.floor) < float("inf")
    for limit in policy.latency:
        assert 0 < limit.max_ms < float("inf")
        assert limit.quantile in QUANTILES.values()
        assert limit.metric in LatencyMetric
        assert limit.load
    rules = [policy.otherwise, *policy.benchmarks.values()]
    assert any(rule.required for rule in rules) or any(limit.required for limit in policy.latency)


def toml(value: object) -> str:
    """Write a TOML value in one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {toml(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    if isinstance(value, float):
        return repr(value)
    return json.dumps(value, ensure_ascii=False)
