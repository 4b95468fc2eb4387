"""Plan, progress and failures of one evaluation; plan and failures are kept in the run's folder for the parent."""

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from eval_jobs.errors import EndpointFailed, EndpointRefused, TrackerError
from eval_jobs.evaluate.asking.pipes import Send
from eval_jobs.evaluate.common.answer_check import is_overflow
from eval_jobs.evaluate.common.outputs import failures
from eval_jobs.evaluate.common.parse import Place
from eval_jobs.evaluate.common.protocol import FAILURES_FILE, MADE_BY_FILE, PLANNED_FILE, Message
from eval_jobs.host.storage import mapped_storage_errors

MAX_DOUBTFUL = 0.1
"""Largest share of newly unanswered samples for which the server may be at fault; above it the plan is retried."""

Rows = Sequence[dict[str, object]]


class PlanChanged(Exception):
    """The folder has answers to other questions or of another EvalScope version: answers are known by position only."""


@dataclass(frozen=True, kw_only=True)
class Failure:
    """Why a sample has no answer, or no score."""

    detail: str
    answered: bool
    may_pass: bool
    """Whether the server may be at fault."""


class Journal:
    """Journal of one evaluation: one or more passes over the questions. Written by the child; see `parse` for rows."""

    def __init__(self, request: Message, send: Send) -> None:
        self.name = str(request["benchmark"])
        self.folder = Path(request["task"]["work_dir"])
        self.repeats = int(request["repeats"])
        self.part = request.get("part")
        """Which rows are evaluated, for `task_config.rows_of_part`; None: all."""
        self.left_out = 0
        """Number of questions of the benchmark that are not evaluated."""
        self.stage = "configuring"
        """For error messages; then `loading`, then `evaluating`."""
        self.metric = ""
        self.planned = 0
        self.done = 0
        self.answered = 0
        """Number of questions with an answer."""
        self.failures: dict[Place, Failure] = {}
        """Questions without an answer, or with an answer that could not be scored."""
        self._doubted_before = {place for place, row in failures(self.folder).items() if row.get("may_pass")}
        self._asking_s: list[float] = []
        self._send = send

    def plan(self, rows: Rows, *, made_by: dict[str, object]) -> None:
        """Write every question to the plan before any request is sent.

        `rows`: see `parse`; `made_by`: version of the harness and of the benchmark.

        Raises:
            PlanChanged: the folder has another plan, or one of another version.
            DiskFull, StoreError: it cannot be written.
        """
        self.planned = len(rows)
        texts = {self.folder / MADE_BY_FILE: _jsonl([made_by]), self.folder / PLANNED_FILE: _jsonl(rows)}
        found = {path: path.read_text(encoding="utf-8", errors="replace") for path in texts if path.is_file()}
        if self.folder / PLANNED_FILE in found and found != texts:
            raise PlanChanged
        for path, text in texts.items():
            if found.get(path) != text:
                _write(path, text)

    def begin(self, *, metric: str, to_ask: int) -> None:
        """Record the start of a pass; questions answered before (in a resumed evaluation) count as done."""
        self.metric = metric
        self.stage = "evaluating"
        self.done = self.answered = self.planned - to_ask
        self._report()

    def begin_again(self, *, only: Collection[Place] | None = None) -> None:
        """Prepare another pass: rejected requests stay rejected, all other failures are tried again.

        Args:
            only: the places to try again; None: all.
        """
        again = {place for place, failure in self.failures.items() if failure.answered or failure.may_pass}
        again &= again if only is None else set(only)
        self.failures = {place: failure for place, failure in self.failures.items() if place not in again}

    def step(self, *, answered: bool) -> None:
        """Count one question as finished."""
        self.done += 1
        self.answered += answered
        self._report()

    def note_asking(self, seconds: float) -> None:
        """Record for how long requests of one question were in flight. Thread-safe."""
        self._asking_s.append(seconds)

    @property
    def asking_s(self) -> float:
        """Seconds for which requests were in flight, summed over all of them."""
        return sum(self._asking_s)

    def refusal(self, place: Place) -> str:
        """Return why the server rejected this question in an earlier pass; "" if it did not."""
        failure = self.failures.get(place)
        if failure is not None and not (failure.answered or failure.may_pass):
            return failure.detail
        return ""

    @property
    def doubtful(self) -> set[Place]:
        """Questions without an answer for which the server may be at fault."""
        return {place for place, failure in self.failures.items() if failure.may_pass}

    def check(self, *, hint: str = "see the server log: it may not support this kind of request") -> None:
        """Write the failures (unless every request failed), and reject a result that only shows a server fault.

        Raises:
            EndpointFailed: too many answers are missing; `hint` applies if all of them are.
            DiskFull, StoreError: it cannot be written.
        """
        details = [failure.detail for failure in self.failures.values() if not failure.answered]
        if details and len(details) == self.planned and not any(map(is_overflow, details)):
            raise EndpointFailed(f"every request of `{self.name}` failed: {details[0]}", hint=hint)
        self._write_failures()
        # Retry once: in the next evaluation, perhaps of a restarted server, the same samples count as not answered.
        reasons = [self.failures[place].detail for place in self.doubtful - self._doubted_before]
        if len(reasons) > MAX_DOUBTFUL * self.planned:
            raise EndpointFailed(
                f"{len(self.doubtful)} of {self.planned} requests of `{self.name}` got no valid response: {reasons[0]}",
                hint="see the server log; increase suite.request_timeout_s if the server is slow",
            )

    def stopped(self, error: EndpointFailed | EndpointRefused, base_url: str) -> TrackerError:
        """Return the error of a stopped evaluation, with the number of samples answered so far."""
        again = "answers are kept; a retry requests only the missing ones"
        return type(error)(
            f"{base_url} failed after {self.answered} of {self.planned} samples of `{self.name}`: {error.message}",
            hint=again if error.retryable else error.hint,
        )

    def drop_torn_lines(self) -> None:
        """Remove a partial last line left by a kill: EvalScope would append the next row to it."""
        for path in (*self.folder.glob("predictions/*/*.jsonl"), *self.folder.glob("reviews/*/*.jsonl")):
            if path.is_file() and not (content := path.read_bytes()).endswith(b"\n"):
                with path.open("r+b") as file:
                    file.truncate(content.rfind(b"\n") + 1)

    def _write_failures(self) -> None:
        rows: Rows = [
            {
                "subset": subset,
                "index": index,
                "detail": f"the scorer failed: {failure.detail}" if failure.answered else failure.detail,
                "may_pass": failure.may_pass,
            }
            for (subset, index), failure in self.failures.items()
        ]
        _write(self.folder / FAILURES_FILE, _jsonl(rows))

    def _report(self) -> None:
        self._send({"type": "progress", "benchmark": self.name, "done": self.done, "total": self.planned})


def _jsonl(rows: Rows) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def _write(path: Path, text: str) -> None:
    """Write a file atomically: a kill in between leaves the old one."""
    temporary = path.with_suffix(".new")
    with mapped_storage_errors(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
