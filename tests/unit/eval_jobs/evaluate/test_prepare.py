"""A child that is started before it is needed."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from eval_jobs.evaluate.evalscope.evaluator import EvalScopeEvaluator
from eval_jobs.types import Benchmark, Generation, Suite
from tests.evaluating import child_pid

LOCAL = Suite(
    name="s",
    benchmarks=(Benchmark(name="sums", adapter="exact", data="sums.jsonl"),),
    generation=Generation(max_tokens=8),
)
ONLINE = Suite(name="s", benchmarks=(Benchmark(name="gsm8k", adapter="gsm8k"),), generation=Generation(max_tokens=8))


@pytest.fixture
def evaluator(tmp_path: Path) -> Iterator[EvalScopeEvaluator]:
    """Its child says nothing and ends with its stdin, as a real one that is still being imported."""
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\nexec {sys.executable} -c 'import sys; sys.stdin.read()'\n")
    python.chmod(0o755)
    made = EvalScopeEvaluator(tmp_path / "work", python=str(python))
    yield made
    made.close()


def test_preparing_starts_one_child_and_waits_for_nothing(evaluator: EvalScopeEvaluator) -> None:
    evaluator.prepare(LOCAL, api_key_env="")
    first = child_pid(evaluator)
    evaluator.prepare(LOCAL, api_key_env="")
    assert first is not None
    assert child_pid(evaluator) == first


def test_a_child_that_may_not_do_what_comes_next_is_replaced(evaluator: EvalScopeEvaluator) -> None:
    found = set()
    for suite, key in ((LOCAL, ""), (LOCAL, "GATEWAY_KEY"), (ONLINE, "GATEWAY_KEY")):
        evaluator.prepare(suite, api_key_env=key)
        found.add(child_pid(evaluator))
    assert len(found - {None}) == 3


def test_an_interpreter_that_is_not_there_is_said_later(tmp_path: Path) -> None:
    evaluator = EvalScopeEvaluator(tmp_path, python=str(tmp_path / "nothing"))
    evaluator.prepare(LOCAL, api_key_env="")
    assert child_pid(evaluator) is None
