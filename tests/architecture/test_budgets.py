"""Budgets of the code: what grows past them is split, not excused."""

import ast
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.requires import PROJECT

MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 50

MAX_MODULES = 15
"""Of a folder of the product; `tracker/cli/commands` has one for each command."""
MAX_NAMED_AS_FOLDER = 0
"""Modules that repeat the name of their folder."""

COMPLEX = 8
MAX_COMPLEXITY = 22
MAX_COMPLEX_SHARE = 0.044
"""Of the product's functions, those that are more than COMPLEX. Both limits only go down: to 14, and to 0.02."""

PRODUCT = ("eval_jobs", "tracker", "dashboards")
Function = ast.FunctionDef | ast.AsyncFunctionDef
BRANCHES = (
    *(ast.If, ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler, ast.Assert, ast.match_case),
    *(ast.IfExp, ast.comprehension, ast.BoolOp),
)


class Measured(NamedTuple):
    """A function's numbers, without its tree: trees of all files at once are slow to keep."""

    name: str
    line: int
    lines: int
    complexity: int


def test_files_and_functions_stay_readable() -> None:
    found = []
    for path in files(*PRODUCT, "tests", "benchmarks", "examples"):
        if (lines := len(path.read_text("utf-8").splitlines())) > MAX_FILE_LINES:
            found.append(f"{named(path)}: {lines} lines")
        found += [f"{named(path)}: {f.name} has {f.lines} lines" for f in too_long(functions(path))]
    assert not found


def test_a_folder_holds_few_modules_and_none_repeats_its_name() -> None:
    modules = [path for path in files(*PRODUCT) if path.name != "__init__.py"]
    folders = Counter(path.parent for path in modules)
    del folders[PROJECT / "tracker/cli/commands"]
    assert not {named(folder): count for folder, count in folders.items() if count > MAX_MODULES}
    repeating = [named(path) for path in modules if f"{path.stem}_".startswith(f"{path.parent.name}_")]
    assert len(repeating) <= MAX_NAMED_AS_FOLDER, repeating


def test_functions_stay_simple() -> None:
    found = {f"{named(p)}:{f.line} {f.name}": f.complexity for p in files(*PRODUCT) for f in functions(p)}
    assert not {name: branches for name, branches in found.items() if branches > MAX_COMPLEXITY}
    complex_ones = [name for name, branches in found.items() if branches > COMPLEX]
    assert len(complex_ones) <= MAX_COMPLEX_SHARE * len(found), complex_ones


def test_the_budgets_see_a_long_and_a_complex_function(tmp_path: Path) -> None:
    source = tmp_path / "source.py"
    branches = "    if x and x > 1 or not x:\n        return [y if y else 0 for y in x if y]\n"
    source.write_text("def f(x):\n" + branches + "    pass\n" * (MAX_FUNCTION_LINES - 2))
    (function,) = too_long(functions(source))
    assert function.lines == MAX_FUNCTION_LINES + 1
    assert function.complexity == 1 + 1 + 2 + 1 + 1  # if, and/or, if-else, for


# --- private


def files(*packages: str) -> list[Path]:
    return sorted(path for package in packages for path in (PROJECT / package).rglob("*.py"))


def named(path: Path) -> str:
    return path.relative_to(PROJECT).as_posix()


@cache
def functions(path: Path) -> tuple[Measured, ...]:
    found = (node for node in statements_of(ast.parse(path.read_text("utf-8"))) if isinstance(node, Function))
    return tuple(Measured(f.name, f.lineno, (f.end_lineno or f.lineno) - f.lineno + 1, complexity(f)) for f in found)


def statements_of(node: ast.AST) -> Iterator[ast.AST]:
    """Yield all statements inside a node, at every depth: no expression holds a function."""
    for block in ("body", "orelse", "handlers", "finalbody", "cases"):
        for child in getattr(node, block, ()):
            yield child
            yield from statements_of(child)


def too_long(found: Iterable[Measured]) -> list[Measured]:
    return [function for function in found if function.lines > MAX_FUNCTION_LINES]


def complexity(function: Function) -> int:
    """Count the ways through a function, those inside expressions too, without functions inside it."""
    branches = (node for node in nodes_of(function) if isinstance(node, BRANCHES))
    return 1 + sum(len(node.values) - 1 if isinstance(node, ast.BoolOp) else 1 for node in branches)


def nodes_of(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, Function | ast.ClassDef):
            yield child
            yield from nodes_of(child)
