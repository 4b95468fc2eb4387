"""Names of benchmarks become keys that MLflow takes, and no two become the same."""

import posixpath
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracker.domain.records.metric_keys import MAX_KEY_CHARS, metric_key, unique_keys

ACCEPTED = re.compile(r"^[/\w.\- :]*$")
"""MLflow's own rule for names, beside that a name must be its own normalised path."""


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("facts", "facts"),
        ("pass@1", "pass_at_1"),
        ("acc,none", "acc_none"),
        ("mmlu/abstract_algebra", "mmlu_abstract_algebra"),
        ("v1.0", "v1.0"),
        ("leading space ", "leading space"),
        ("math (hard) [5-shot] 100%", "math _hard_ _5-shot_ 100_"),
        ("数学", "数学"),
        ("..", "__"),
        (".", "_"),
        ("", "_"),
        ("/", "_"),
    ],
)
def test_a_name_becomes_a_readable_key(name: str, key: str) -> None:
    assert metric_key(name) == key


@given(st.text(max_size=400))
def test_mlflow_takes_every_key(name: str) -> None:
    key = f"truncated/{metric_key(name)}"
    assert ACCEPTED.match(key)
    assert posixpath.normpath(key) == key
    assert len(key) <= 250


@given(st.lists(st.text(alphabet="a@,_/ .", max_size=4), unique=True, max_size=20))
def test_different_names_get_different_keys(names: list[str]) -> None:
    assert len(set(unique_keys(names).values())) == len(names)


@given(st.lists(st.text(max_size=5), max_size=10))
def test_keys_do_not_depend_on_the_order(names: list[str]) -> None:
    assert unique_keys(names) == unique_keys(reversed(names))


def test_a_name_that_is_its_own_key_keeps_it_beside_one_that_is_mapped_to_it() -> None:
    keys = unique_keys(["a@b", "a_at_b"])
    assert keys["a_at_b"] == "a_at_b"
    assert keys["a@b"].startswith("a_at_b-")


def test_long_names_that_begin_alike_stay_apart() -> None:
    first, second = ("x" * 300 + "1", "x" * 300 + "2")
    assert metric_key(first) != metric_key(second)
    assert len(metric_key(first)) <= MAX_KEY_CHARS + 10
