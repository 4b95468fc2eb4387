"""What the type checker cannot see, or could not help with, does not stand in the product."""

import ast
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from tests.requires import PROJECT

MOST_FIELDS = 12
LAZY = {"tracker/cli/main.py"}
"""Imports a command when it is called: its name is known at run time only."""
RECORDS = ("eval_jobs/records/", "eval_jobs/types.py", "tracker/domain/records/")
"""What is stored as JSON, column by column."""
ROWS = {
    "MeasuredRow": "a row of a table",
    "JudgedRow": "a row of a table",
    "BenchmarkLedger": "printed as JSON by `tracker forgetting`",
    "ComparedBenchmark": "printed as JSON by `tracker compare`",
    "Example": "printed as JSON by `tracker compare`",
    "LedgerEntry": "a row of the page's table",
    "Forgetting": "printed as JSON by `tracker forgetting`",
    "CertificateScope": "stored as JSON: what a proof holds for",
    "LostBetween": "printed as JSON by `tracker bisect`",
    "Tick": "shown line by line by `tracker watch`",
    "Pin": "stored as JSON beside the weights",
}
MUTABLE = re.compile(r"\b(dict|list|set|deque|defaultdict|bytearray)\b")

Nodes = Sequence[ast.AST]
Rule = Callable[[str, Nodes], Iterator[str]]


def lazy_imports(file: str, nodes: Nodes) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Attribute) and node.attr == "import_module" and file not in LAZY:
            yield "import_module: write an import statement inside the function"


def untyped_callables(_: str, nodes: Nodes) -> Iterator[str]:
    for node in nodes:
        if (
            isinstance(node, ast.Subscript)
            and ast.unparse(node.value) == "Callable"
            and ast.unparse(node).startswith("Callable[..., ")
        ):
            yield f"{ast.unparse(node)}: write the parameters, or a Protocol"


def any_in_constructors(_: str, nodes: Nodes) -> Iterator[str]:
    for one in _classes(nodes):
        for function in one.body:
            if isinstance(function, ast.FunctionDef) and function.name == "__init__":
                arguments = [node for node in ast.walk(function.args) if isinstance(node, ast.arg)]
                yield from (f"{one.name}.__init__: {arg.arg}" for arg in arguments if _says_any(arg.annotation))
        if _dataclass(one):
            yield from (f"{one.name}: {ast.unparse(field)}" for field in _fields(one) if _says_any(field.annotation))


def unnamed_options(file: str, nodes: Nodes) -> Iterator[str]:
    for node in nodes:
        if "/commands/" in file and isinstance(node, ast.FunctionDef) and node.args.kwarg is not None:
            yield f"{node.name}: **{node.args.kwarg.arg}"


def mutable_parts(_: str, nodes: Nodes) -> Iterator[str]:
    for one in _classes(nodes):
        if "frozen=True" in _dataclass(one):
            for field in _fields(one):
                if MUTABLE.search(ast.unparse(field.annotation)):
                    yield f"{one.name} is frozen, and holds {ast.unparse(field)}"


def many_fields(file: str, nodes: Nodes) -> Iterator[str]:
    for one in _classes(nodes):
        is_row = file.startswith(RECORDS) or one.name in ROWS or "Section" in map(ast.unparse, one.bases)
        if len(_fields(one)) > MOST_FIELDS and not is_row:
            yield f"{one.name} has {len(_fields(one))} fields"


VIOLATIONS: dict[Rule, str] = {
    lazy_imports: "import importlib\nfound = importlib.import_module('json')",
    untyped_callables: "from collections.abc import Callable\nJudge = Callable[..., int]",
    any_in_constructors: "class A:\n    def __init__(self, *, part: Any) -> None: ...",
    unnamed_options: "def command(**options: Any) -> None: ...",
    mutable_parts: "@dataclass(frozen=True, kw_only=True)\nclass A:\n    parts: dict[str, int]",
    many_fields: "class A:\n" + "".join(f"    part_{n}: int\n" for n in range(MOST_FIELDS + 1)),
}


def test_the_type_checker_sees_everything() -> None:
    found = []
    for path in _product():
        nodes, file = nodes_of(path.read_text(encoding="utf-8")), path.relative_to(PROJECT).as_posix()
        found += [f"{file}: {what}" for rule in VIOLATIONS for what in rule(file, nodes)]
    assert found == []


@pytest.mark.parametrize("rule", VIOLATIONS, ids=lambda rule: rule.__name__)
def test_each_rule_sees_its_violation(rule: Rule) -> None:
    assert list(rule("tracker/cli/commands/made_up.py", nodes_of(VIOLATIONS[rule])))


def test_what_may_have_many_fields_is_there() -> None:
    text = "\n".join(path.read_text(encoding="utf-8") for path in _product())
    assert [name for name in ROWS if f"class {name}:" not in text] == []


def nodes_of(source: str) -> Nodes:
    return list(ast.walk(ast.parse(source)))


def _product() -> Iterator[Path]:
    for top in ("eval_jobs", "tracker", "dashboards"):
        yield from sorted((PROJECT / top).rglob("*.py"))


def _classes(nodes: Nodes) -> list[ast.ClassDef]:
    return [node for node in nodes if isinstance(node, ast.ClassDef)]


def _dataclass(one: ast.ClassDef) -> str:
    return next((text for text in map(ast.unparse, one.decorator_list) if text.startswith("dataclass")), "")


def _fields(one: ast.ClassDef) -> list[ast.AnnAssign]:
    found = [node for node in one.body if isinstance(node, ast.AnnAssign)]
    return [field for field in found if "ClassVar" not in ast.unparse(field.annotation)]


def _says_any(annotation: ast.expr | None) -> bool:
    return annotation is not None and re.search(r"\bAny\b", ast.unparse(annotation)) is not None
