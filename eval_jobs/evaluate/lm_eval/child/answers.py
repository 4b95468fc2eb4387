"""Responses of one benchmark, kept in a file: after a kill, answered requests are not sent again."""

import json
from pathlib import Path
from typing import Any

from eval_jobs.evaluate.common.parse import parse_lines
from eval_jobs.host.storage import mapped_storage_errors

Json = dict[str, Any]


class Answers:
    """Response bodies by the key of their request. Not thread-safe."""

    def __init__(self, path: Path) -> None:
        """Read the responses of earlier runs; a killed process may have left a partial line."""
        self._path = path
        text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
        self._known: dict[str, Json] = {
            str(row["key"]): body for row in parse_lines(text.split("\n")) if isinstance(body := row.get("body"), dict)
        }
        if text and not text.endswith("\n"):  # the next row must not be appended to a partial line
            self._append("\n")

    def __contains__(self, key: str) -> bool:
        return key in self._known

    def of(self, key: str) -> Json | None:
        """Return the response to a request; None if there is none."""
        return self._known.get(key)

    def keep(self, key: str, body: Json) -> None:
        """Store a response.

        Raises:
            DiskFull, StoreError: it cannot be written.
        """
        self._append(json.dumps({"key": key, "body": body}) + "\n")
        self._known[key] = body

    def _append(self, text: str) -> None:
        with mapped_storage_errors(self._path.parent):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a", encoding="utf-8") as file:
                file.write(text)
