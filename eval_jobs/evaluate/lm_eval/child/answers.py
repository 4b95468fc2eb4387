"""Every answer of one benchmark, kept in a file: what was answered before a kill is not asked again."""

import json
from pathlib import Path
from typing import Any

from eval_jobs.evaluate.common.parse import parse_lines
from eval_jobs.host.storage import storage_error

Json = dict[str, Any]


class Answers:
    """Reply bodies by the key of their question. For one thread."""

    def __init__(self, path: Path) -> None:
        """Read what earlier runs were answered; a killed process may have left half a line."""
        self._path = path
        text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
        self._known: dict[str, Json] = {
            str(row["key"]): body for row in parse_lines(text.split("\n")) if isinstance(body := row.get("body"), dict)
        }
        if text and not text.endswith("\n"):  # what comes next must not be appended to half a line
            self._append("\n")

    def __contains__(self, key: str) -> bool:
        return key in self._known

    def of(self, key: str) -> Json | None:
        """Return the answer to a question; None: there is none."""
        return self._known.get(key)

    def keep(self, key: str, body: Json) -> None:
        """Write an answer down.

        Raises:
            DiskFull, StoreError: it cannot be written.
        """
        self._append(json.dumps({"key": key, "body": body}) + "\n")
        self._known[key] = body

    # --- private

    def _append(self, text: str) -> None:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            raise storage_error(self._path.parent, error) from error
