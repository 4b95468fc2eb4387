"""The walks through the code that docs/explanation/how-it-works.md shows."""

import ast
import re
from itertools import pairwise

from tests.requires import PROJECT

READ_FIRST = PROJECT / "tracker" / "app" / "tick.py"
MAX_FILES, MAX_CALLS = 6, 6
Function = ast.FunctionDef | ast.ClassDef


def walks() -> dict[str, list[tuple[str, list[str]]]]:
    """Return by its first line the files of each walk, with the functions that are named there."""
    page = (PROJECT / "docs" / "explanation" / "how-it-works.md").read_text(encoding="utf-8")
    section = page.split("## Where to read\n")[1].split("\n## ")[0]
    found: dict[str, list[tuple[str, list[str]]]] = {}
    title = ""
    for line in section.splitlines():
        step = re.match(r"[0-9]+\. `(.+?)`: (.+)", line)
        if step is not None:
            found.setdefault(title, []).append((step[1], re.findall(r"`(\w+)`", step[2])))
        elif line:
            title = line
    return found


def functions_of(file: str) -> dict[str, Function]:
    tree = ast.parse((PROJECT / file).read_text(encoding="utf-8"))
    return {node.name: node for node in ast.walk(tree) if isinstance(node, Function)}


def test_every_walk_names_functions_that_exist_in_few_files() -> None:
    assert len(walks()) == 3
    for title, steps in walks().items():
        assert len(steps) <= MAX_FILES, title
        for file, names in steps:
            assert names, file
            assert set(names) <= functions_of(file).keys(), file


def test_watch_reaches_the_verdict_in_few_calls_and_each_function_calls_the_next() -> None:
    steps = next(steps for title, steps in walks().items() if "`tracker watch`" in title)
    path = [functions_of(file)[name] for file, names in steps for name in names]
    assert len(path) - 1 <= MAX_CALLS
    for caller, callee in pairwise(path):
        called = {ast.unparse(node.func) for node in ast.walk(caller) if isinstance(node, ast.Call)}
        assert callee.name in called, f"{caller.name} does not call {callee.name}"


def test_what_is_to_be_read_first_is_short() -> None:
    text = READ_FIRST.read_text(encoding="utf-8")
    imports = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Import | ast.ImportFrom)]
    assert "Start reading here" in text
    assert len(text.splitlines()) <= 150
    assert len(imports) <= 12
