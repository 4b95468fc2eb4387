"""What one evaluation planned, how far it is and what failed; kept in the run's folder for the client to read."""

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
from eval_jobs.host.storage import storage_error

MAX_DOUBTFUL = 0.1
"""More samples than this share without an answer, for which the server may be to blame: try all of it again later."""

Rows = Sequence[dict[str, object]]


class PlanChanged(Exception):
    """The folder holds answers to other questions, or another EvalScope's: it knows them by their position only."""


@dataclass(frozen=True, kw_only=True)
class Failure:
    """Why a sample has no answer, or no score."""

    detail: str
    answered: bool
    may_pass: bool
    """Whether the server may be to blame."""


class Journal:
    """Written by the child; see `parse` for the rows. One evaluation is one pass over the questions, or several."""

    def __init__(self, request: Message, send: Send) -> None:
        self.name = str(request["benchmark"])
        self.folder = Path(request["task"]["work_dir"])
        self.repeats = int(request["repeats"])
        self.part = request.get("part")
        """Which rows are asked, for `parts.rows_of_part`; None: all."""
        self.left_out = 0
        """Questions of the benchmark that are not asked."""
        self.stage = "configuring"
        """For error messages, then `loading`, then `asking`."""
        self.metric = ""
        self.planned = 0
        self.done = 0
        self.answered = 0
        """Questions that have an answer."""
        self.failures: dict[Place, Failure] = {}
        self._doubted_before = {place for place, row in failures(self.folder).items() if row.get("may_pass")}
        self._asking_s: list[float] = []
        self._send = send

    def plan(self, rows: Rows, *, made_by: dict[str, object]) -> None:
        """Write down every question before anything is asked.

        Args:
            rows: see `parse`.
            made_by: names the version of what asks and scores.

        Raises:
            PlanChanged: the folder holds another plan, or another version's.
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
        """Note that asking begins; the questions that a resumed evaluation has answered already are done."""
        self.metric = metric
        self.stage = "evaluating"
        self.done = self.answered = self.planned - to_ask
        self._report()

    def begin_again(self, *, only: Collection[Place] | None = None) -> None:
        """Prepare another pass: what the server refused stays refused, everything else has another chance.

        Args:
            only: the places that are asked again; None: all.
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
        """Note how long requests of one question were in flight; from any thread."""
        self._asking_s.append(seconds)

    @property
    def asking_s(self) -> float:
        """For how long requests were in flight, summed over them."""
        return sum(self._asking_s)

    def fail(self, place: Place, failure: Failure) -> None:
        """Note a question that was not answered, or was answered and could not be scored."""
        self.failures[place] = failure

    def refusal(self, place: Place) -> str:
        """Return why the server refused this question in an earlier pass; "" when it did not."""
        failure = self.failures.get(place)
        if failure is not None and not (failure.answered or failure.may_pass):
            return failure.detail
        return ""

    @property
    def unanswered(self) -> list[str]:
        """Why, one entry a question."""
        return [failure.detail for failure in self.failures.values() if not failure.answered]

    @property
    def doubtful(self) -> set[Place]:
        """Questions without an answer for which the server may be to blame."""
        return {place for place, failure in self.failures.items() if failure.may_pass}

    @property
    def newly_doubtful(self) -> set[Place]:
        """Those of them that were not so at the end of an earlier evaluation."""
        return self.doubtful - self._doubted_before

    def finish(self) -> None:
        """Write down what failed.

        Raises:
            DiskFull, StoreError: it cannot be written.
        """
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

    def check(self, *, hint: str = "read the server log: it may not support this kind of request") -> None:
        """Write down what failed, and refuse a result that only shows that the server was not well.

        Raises:
            EndpointFailed: too many answers are missing; `hint` says what to do where all of them are.
            DiskFull, StoreError: it cannot be written.
        """
        details = self.unanswered
        if details and len(details) == self.planned and not any(map(is_overflow, details)):
            raise EndpointFailed(f"every request of `{self.name}` failed: {details[0]}", hint=hint)
        self.finish()
        # Once: in another evaluation, of a server perhaps started anew, the same samples count as not answered.
        if len(self.newly_doubtful) > MAX_DOUBTFUL * self.planned:
            raise EndpointFailed(
                f"{len(self.doubtful)} of {self.planned} requests of `{self.name}` got no valid response: {details[0]}",
                hint="read the server log; increase suite.request_timeout_s if the server is slow",
            )

    def stopped(self, error: EndpointFailed | EndpointRefused, base_url: str) -> TrackerError:
        """Say how far it was when nothing could be asked any more."""
        again = "answers are kept; a retry requests only the missing ones"
        return type(error)(
            f"{base_url} failed after {self.answered} of {self.planned} samples of `{self.name}`: {error.message}",
            hint=again if error.retryable else error.hint,
        )

    def drop_torn_lines(self) -> None:
        """Cut what a kill left of a half-written line: EvalScope would write the next row right behind it."""
        for path in (*self.folder.glob("predictions/*/*.jsonl"), *self.folder.glob("reviews/*/*.jsonl")):
            if path.is_file() and path.stat().st_size:
                _drop_torn_line(path)

    # --- private

    def _report(self) -> None:
        self._send({"type": "progress", "benchmark": self.name, "done": self.done, "total": self.planned})


def _drop_torn_line(path: Path) -> None:
    content = path.read_bytes()
    if not content.endswith(b"\n"):
        with path.open("r+b") as file:
            file.truncate(content.rfind(b"\n") + 1)


def _jsonl(rows: Rows) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def _write(path: Path, text: str) -> None:
    """Write the whole file or nothing: a kill in between leaves the old one."""
    temporary = path.with_suffix(".new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        raise storage_error(path.parent, error) from error
