"""Budgets of the code: what grows past them is split, not excused."""

import ast
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.requires import PROJECT

MAX_FILE_LINES = 400
MAX_PRODUCT_LINES = 350
MAX_FUNCTION_LINES = 50

MAX_MODULES = 14
"""Of a folder of the product."""
MAX_NAMED_AS_FOLDER = 0
"""Modules that repeat the name of their folder."""

COMPLEX = 8
MAX_COMPLEXITY = 12
MAX_COMPLEX_SHARE = 0.02
"""Of the product's functions, those that are more than COMPLEX."""
MAX_IN_EXPRESSIONS = 0.505
"""Of all branches, those that stand inside an expression, where a reader passes them over."""

PRODUCT = ("eval_jobs", "tracker", "dashboards")
Function = ast.FunctionDef | ast.AsyncFunctionDef
STATEMENTS = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler, ast.Assert, ast.match_case)
EXPRESSIONS = (ast.IfExp, ast.comprehension, ast.BoolOp)


class Measured(NamedTuple):
    """A function's numbers, without its tree: trees of all files at once are slow to keep."""

    name: str
    line: int
    lines: int
    in_statements: int
    in_expressions: int

    @property
    def complexity(self) -> int:
        """Ways through the function, without those of functions inside it."""
        return 1 + self.in_statements + self.in_expressions


def test_files_and_functions_stay_readable() -> None:
    found = []
    for path in files(*PRODUCT, "tests", "benchmarks", "examples", "docs"):
        limit = MAX_PRODUCT_LINES if path.relative_to(PROJECT).parts[0] in PRODUCT else MAX_FILE_LINES
        if (lines := len(path.read_text("utf-8").splitlines())) > limit:
            found.append(f"{named(path)}: {lines} lines")
        found += [f"{named(path)}: {f.name} has {f.lines} lines" for f in too_long(functions(path))]
    assert not found


def test_a_folder_holds_few_modules_and_none_repeats_its_name() -> None:
    modules = [path for path in files(*PRODUCT) if path.name != "__init__.py"]
    folders = Counter(path.parent for path in modules)
    assert not {named(folder): count for folder, count in folders.items() if count > MAX_MODULES}
    repeating = [named(path) for path in modules if f"{path.stem}_".startswith(f"{path.parent.name}_")]
    assert len(repeating) <= MAX_NAMED_AS_FOLDER, repeating


def test_functions_stay_simple() -> None:
    found = {f"{named(p)}:{f.line} {f.name}": f for p in files(*PRODUCT) for f in functions(p)}
    assert not {name: f.complexity for name, f in found.items() if f.complexity > MAX_COMPLEXITY}
    complex_ones = [name for name, f in found.items() if f.complexity > COMPLEX]
    assert len(complex_ones) <= MAX_COMPLEX_SHARE * len(found), complex_ones


def test_branches_stand_in_statements() -> None:
    found = [f for path in files(*PRODUCT) for f in functions(path)]
    in_expressions = sum(f.in_expressions for f in found)
    assert in_expressions <= MAX_IN_EXPRESSIONS * (in_expressions + sum(f.in_statements for f in found))


def test_the_budgets_see_a_long_and_a_complex_function(tmp_path: Path) -> None:
    source = tmp_path / "source.py"
    branches = "    if x and x > 1 or not x:\n        return [y if y else 0 for y in x if y]\n"
    source.write_text("def f(x):\n" + branches + "    pass\n" * (MAX_FUNCTION_LINES - 2))
    (function,) = too_long(functions(source))
    assert function.lines == MAX_FUNCTION_LINES + 1
    assert function.in_statements == 1
    assert function.in_expressions == 2 + 1 + 1  # and/or, if-else, for


# --- private


def files(*packages: str) -> list[Path]:
    return sorted(path for package in packages for path in (PROJECT / package).rglob("*.py"))


def named(path: Path) -> str:
    return path.relative_to(PROJECT).as_posix()


@cache
def functions(path: Path) -> tuple[Measured, ...]:
    found = (node for node in statements_of(ast.parse(path.read_text("utf-8"))) if isinstance(node, Function))
    return tuple(measured(function) for function in found)


def statements_of(node: ast.AST) -> Iterator[ast.AST]:
    """Yield all statements inside a node, at every depth: no expression holds a function."""
    for block in ("body", "orelse", "handlers", "finalbody", "cases"):
        for child in getattr(node, block, ()):
            yield child
            yield from statements_of(child)


def too_long(found: Iterable[Measured]) -> list[Measured]:
    return [function for function in found if function.lines > MAX_FUNCTION_LINES]


def measured(function: Function) -> Measured:
    lines = (function.end_lineno or function.lineno) - function.lineno + 1
    nodes = tuple(nodes_of(function))
    in_statements = sum(isinstance(node, STATEMENTS) for node in nodes)
    in_expressions = sum(branches_of(node) for node in nodes)
    return Measured(function.name, function.lineno, lines, in_statements, in_expressions)


def branches_of(node: ast.AST) -> int:
    """Return how many ways an expression adds: `a or b or c` adds two."""
    if isinstance(node, ast.BoolOp):
        return len(node.values) - 1
    return int(isinstance(node, EXPRESSIONS))


def nodes_of(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, Function | ast.ClassDef):
            yield child
            yield from nodes_of(child)
