"""Write every generated page of docs/: `python -m docs.generator`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from docs.generator.commands import commands_page
from docs.generator.errors import errors_page
from docs.generator.faults import faults_page
from docs.generator.json_schemas import json_page, schemas
from docs.generator.limits import limits_page
from docs.generator.neutral import neutral_page
from docs.generator.results import results_page
from docs.generator.settings import settings_page
from docs.generator.tables import tables_page
from docs.generator.trouble import trouble_page
from docs.generator.verdict_chart import verdicts_picture

DOCS = Path(__file__).parents[1]

PAGES: Mapping[str, Callable[[], str]] = {
    "reference/commands.md": commands_page,
    "reference/settings.md": settings_page,
    "reference/errors.md": errors_page,
    "reference/limits.md": limits_page,
    "reference/neutral-settings.md": neutral_page,
    "reference/json.md": json_page,
    "reference/tables.md": tables_page,
    "reference/results.md": results_page,
    "reference/trouble.md": trouble_page,
    "explanation/faults.md": faults_page,
    "images/verdicts.svg": verdicts_picture,
}


def generated() -> dict[Path, str]:
    """Return the text of every generated file by its path."""
    pages = {DOCS / path: page() for path, page in PAGES.items()}
    return pages | {DOCS / "reference" / "schemas" / name: text for name, text in schemas().items()}


def main() -> None:
    """Write the files that differ."""
    for path, text in generated().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
