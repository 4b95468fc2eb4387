"""What users may rely on: names, signatures, and the columns of the tables; a change belongs into CHANGELOG.md.

python -m tests.architecture.test_public_api   # writes public_api.json anew
"""

import ast
import inspect
import json
from typing import assert_type

from matplotlib.axes import Axes
from pandas import DataFrame

import tracker
from tests.requires import PROJECT
from tracker.domain.tables.catalog import TABLES

GOLDEN = PROJECT / "tests/golden/public_api.json"
STUB = PROJECT / "tracker/__init__.pyi"


def public_api() -> dict[str, object]:
    """Return every public name with its signature, and every table with its columns."""
    names: dict[str, object] = {}
    for name in tracker.__all__:
        found = getattr(tracker, name)
        names[name] = _members(found) if inspect.isclass(found) else str(inspect.signature(found))
    columns = {name: {c.name: f"{c.kind}{c.unit and f', {c.unit}'}" for c in t.columns} for name, t in TABLES.items()}
    return {"names": names, "tables": columns}


def _members(found: type) -> dict[str, str]:
    if issubclass(found, Exception):
        return {"base": found.__mro__[1].__name__}
    members = {}
    for name, member in vars(found).items():
        if inspect.isfunction(member) and (not name.startswith("_") or name in ("__getitem__", "__len__")):
            members[name] = str(inspect.signature(member))
        elif isinstance(member, property) and not name.startswith("_"):
            members[name] = f"property: {inspect.signature(member.fget).return_annotation}"  # type: ignore[arg-type]
    return members


def as_text(api: dict[str, object]) -> str:
    """Return the text of the file."""
    return json.dumps(api, indent=1, ensure_ascii=False) + "\n"


def test_the_public_api_changes_on_purpose_only() -> None:
    assert as_text(public_api()) == GOLDEN.read_text(encoding="utf-8"), "update it as above, and say so in CHANGELOG.md"


def typed_use(project: tracker.Project) -> None:
    """Use the API as a type checker sees it from outside; never called."""
    assert_type(tracker.open("tracker.toml"), tracker.Project)
    assert_type(project["a"].scores("b", steps=[1, 2], subsets=True), DataFrame)
    assert_type(project.samples(steps="latest").to_pandas(), DataFrame)
    assert_type(project.compare(1, "latest").lost("b"), DataFrame)
    assert_type(project.gate("latest", baseline=1).passed, bool)
    assert_type(project.evaluate("out").wait(timeout_s=1.0), DataFrame)
    assert_type(next(project.follow()), DataFrame)
    assert_type(project.plot_scores(), Axes)
    project.scores(steps="newest")  # type: ignore[arg-type]  # no such word


def test_editors_see_the_names_that_are_loaded() -> None:
    stub = ast.parse(STUB.read_text(encoding="utf-8"))
    imported = {alias.name for node in stub.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert sorted(imported) == sorted(tracker.__all__) == dir(tracker)


def test_each_public_method_says_what_it_returns() -> None:
    for name in tracker.__all__:
        found = getattr(tracker, name)
        assert inspect.getdoc(found)
        for member in vars(found) if inspect.isclass(found) else ():
            if not member.startswith("_") and callable(getattr(found, member)):
                assert inspect.getdoc(getattr(found, member)), f"{name}.{member}"


if __name__ == "__main__":
    GOLDEN.write_text(as_text(public_api()), encoding="utf-8")
