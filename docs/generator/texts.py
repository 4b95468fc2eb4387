"""Write every text that a user can see into one file for each subject: `make texts`. Read them in one go."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

from docs.generator.commands import commands_page
from docs.generator.settings import settings_page

ROOT = Path(__file__).parents[2]
OUT = ROOT / "build" / "texts"

SUBJECTS: Mapping[str, tuple[str, ...]] = {
    "commands": ("tracker/cli", "tracker/api", "tracker/config"),
    "alerts": ("tracker/domain/alerts", "tracker/adapters/alerts"),
    "verdicts": (
        "tracker/domain/records",
        "tracker/domain/compare",
        "tracker/domain/calibration",
        "tracker/domain/gate",
    ),
    "domain": ("tracker/domain",),
    "adapters": ("tracker/adapters", "tracker/app", "tracker/wiring", "tracker/ports"),
    "evaluation": ("eval_jobs",),
    "report": ("dashboards",),
}
"""Folders by subject; a file that belongs to an earlier subject is left out of a later one."""


def main() -> None:
    """Write the catalogues to build/texts."""
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "help.txt").write_text(commands_page(), encoding="utf-8")
    (OUT / "settings.txt").write_text(settings_page(), encoding="utf-8")
    seen: set[Path] = set()
    for subject, folders in SUBJECTS.items():
        files = [file for folder in folders for file in sorted((ROOT / folder).rglob("*")) if file not in seen]
        seen.update(files)
        (OUT / f"{subject}.txt").write_text("\n".join(_catalogue(files)) + "\n", encoding="utf-8")


def texts_of(file: Path) -> Iterator[tuple[int, str]]:
    """Yield the texts of a module with their lines: strings with a space that are no docstrings; {} for values."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    hidden: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr):
            hidden.add(id(node.value))
        if isinstance(node, ast.JoinedStr):
            hidden |= {id(part) for part in ast.walk(node) if part is not node}
    for node in ast.walk(tree):
        text = None if id(node) in hidden else _text(node)
        if text is not None and " " in text.strip():
            yield node.lineno, text  # type: ignore[attr-defined]


# --- private


def _text(node: ast.AST) -> str | None:
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    return None


def _catalogue(files: list[Path]) -> Iterator[str]:
    for file in files:
        if file.suffix == ".j2":
            yield f"\n## {file.relative_to(ROOT)}\n{file.read_text(encoding='utf-8')}"
        elif file.suffix == ".py" and (found := sorted(texts_of(file))):
            yield f"\n## {file.relative_to(ROOT)}"
            yield from (f"{line:4}  {text!r}" for line, text in found)


if __name__ == "__main__":
    main()
