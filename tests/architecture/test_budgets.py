"""Size budgets of the code: what grows past them is split, not excused."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.requires import PROJECT

MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 50

PACKAGES = ("eval_jobs", "tracker", "dashboards", "tests", "benchmarks", "examples")
FILES = sorted(path for package in PACKAGES for path in (PROJECT / package).rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PROJECT)))
def test_files_and_functions_stay_readable(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= MAX_FILE_LINES
    too_long = [f"{name} ({lines} lines)" for name, lines in _functions(text) if lines > MAX_FUNCTION_LINES]
    assert not too_long


def test_the_budget_check_sees_a_long_function() -> None:
    long_function = "def f():\n" + "    pass\n" * MAX_FUNCTION_LINES
    assert list(_functions(long_function)) == [("f", MAX_FUNCTION_LINES + 1)]


def _functions(text: str) -> Iterator[tuple[str, int]]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, (node.end_lineno or node.lineno) - node.lineno + 1
