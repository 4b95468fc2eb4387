"""docs/reliability.md promises: every row names a test that exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/reliability.md"
REFERENCE = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")


def rows() -> list[str]:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line.startswith("|") and not line.startswith(("| fault |", "|---"))]


def functions(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


@pytest.mark.parametrize("row", rows())
def test_a_row_names_tests_that_exist(row: str) -> None:
    found = REFERENCE.findall(row)
    assert found, f"no test is named in: {row}"
    for file, name in found:
        assert (ROOT / file).is_file(), f"{file} does not exist"
        assert not name or name in functions(ROOT / file), f"{file} has no {name}"
