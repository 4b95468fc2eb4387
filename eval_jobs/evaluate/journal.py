"""What one evaluation planned, how far it is and what failed; kept in the run's folder for the client to read."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from eval_jobs.evaluate.child_pipes import Send
from eval_jobs.evaluate.parse import Place
from eval_jobs.evaluate.protocol import FAILURES_FILE, PLANNED_FILE, Message

Rows = Sequence[dict[str, object]]


class Journal:
    """Written by the child; see `parse` for the rows."""

    def __init__(self, request: Message, send: Send) -> None:
        self.name = str(request["benchmark"])
        self.folder = Path(request["task"]["work_dir"])
        self.repeats = int(request["repeats"])
        self.stage = "configuring"
        """For error messages, then `loading`, then `asking`."""
        self.metric = ""
        self.planned = 0
        self.done = 0
        self.unanswered: list[str] = []
        """Why, one entry a question."""
        self._failures: dict[Place, str] = {}
        self._send = send

    def plan(self, rows: Rows) -> None:
        """Write down every question before anything is asked."""
        self.planned = len(rows)
        _write_jsonl(self.folder / PLANNED_FILE, rows)

    def begin(self, *, metric: str, to_ask: int) -> None:
        """Note that asking begins; the questions that a resumed evaluation has answered already are done."""
        self.metric = metric
        self.stage = "asking"
        self.done = self.planned - to_ask
        self._report()

    def step(self) -> None:
        """Count one question as finished."""
        self.done += 1
        self._report()

    def fail(self, place: Place, detail: str, *, answered: bool) -> None:
        """Note a question that was not answered, or was answered and could not be scored."""
        self._failures[place] = f"the scorer failed: {detail}" if answered else detail
        if not answered:
            self.unanswered.append(detail)

    def finish(self) -> None:
        """Write down what failed."""
        rows: Rows = [{"subset": s, "index": i, "detail": detail} for (s, i), detail in self._failures.items()]
        _write_jsonl(self.folder / FAILURES_FILE, rows)

    @property
    def answered(self) -> int:
        """Questions that have an answer."""
        return self.done - len(self.unanswered)

    def drop_torn_lines(self) -> None:
        """Cut what a kill left of a half-written line: EvalScope would write the next row right behind it."""
        for path in (*self.folder.glob("predictions/*/*.jsonl"), *self.folder.glob("reviews/*/*.jsonl")):
            if path.stat().st_size:
                _drop_torn_line(path)

    # --- private

    def _report(self) -> None:
        self._send({"type": "progress", "done": self.done, "total": self.planned})


def _drop_torn_line(path: Path) -> None:
    content = path.read_bytes()
    if not content.endswith(b"\n"):
        with path.open("r+b") as file:
            file.truncate(content.rfind(b"\n") + 1)


def _write_jsonl(path: Path, rows: Rows) -> None:
    """Write the whole file or nothing: a kill in between leaves the old one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".new")
    temporary.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    temporary.replace(path)
