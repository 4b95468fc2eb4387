"""docs/reliability.md promises: every row names a test that exists."""

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/reliability.md"
REFERENCE = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")


def rows() -> list[str]:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line.startswith("|") and not line.startswith(("| fault |", "|---"))]


@cache
def functions(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_every_row_names_tests_that_exist() -> None:
    wrong = [f"no test is named in: {row}" for row in rows() if not REFERENCE.findall(row)]
    for file, name in {found for row in rows() for found in REFERENCE.findall(row)}:
        if not (ROOT / file).is_file():
            wrong.append(f"{file} does not exist")
        elif name and name not in functions(ROOT / file):
            wrong.append(f"{file} has no {name}")
    assert not wrong
