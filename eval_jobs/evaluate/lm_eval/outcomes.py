"""Outcome of each request of one lm-evaluation-harness run: written by the child, read for the results."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from eval_jobs.evaluate.common.parse import Place, parse_lines
from eval_jobs.host.storage import mapped_storage_errors
from eval_jobs.spending import known_sum
from eval_jobs.types import SampleStatus

NOWHERE: Place = ("", -1)
"""Place of a request that does not belong to a single sample."""
_FILE = "outcomes.jsonl"


@dataclass(frozen=True, kw_only=True)
class RequestOutcome:
    """Outcome of one request."""

    status: SampleStatus
    detail: str = ""
    output_tokens: int | None = None
    input_tokens: int | None = None


class Outcomes:
    """Outcomes of all requests of one run."""

    def __init__(self, rows: Iterable[tuple[Place, RequestOutcome]]) -> None:
        self._by_place: dict[Place, list[RequestOutcome]] = defaultdict(list)
        for place, outcome in rows:
            self._by_place[place].append(outcome)

    @classmethod
    def read(cls, folder: Path) -> Outcomes:
        """Read the file of `write_outcomes`; empty if there is none."""
        path = folder / _FILE
        rows = parse_lines(path.read_text(encoding="utf-8").split("\n")) if path.is_file() else ()
        return cls(map(_read, rows))

    def of(self, task: str, number: object) -> tuple[RequestOutcome, ...]:
        """Return the outcomes of the requests of one sample."""
        if isinstance(number, int):
            return tuple(self._by_place.get((task, number), ()))
        return ()

    def first_refusal(self) -> str:
        """Return why the first request without an answer failed; empty if all have one."""
        return next((one.detail for one in self._every() if one.status is SampleStatus.ERROR), "")

    def tokens(self) -> tuple[int | None, int | None]:
        """Return the input and output tokens of all requests, as reported by the endpoint; None if not reported."""
        every = self._every()
        return known_sum(one.input_tokens for one in every), known_sum(one.output_tokens for one in every)

    def _every(self) -> list[RequestOutcome]:
        return [one for found in self._by_place.values() for one in found]


def write_outcomes(folder: Path, rows: Iterable[tuple[Place, RequestOutcome]]) -> None:
    """Write the outcome of each request.

    Raises:
        DiskFull, StoreError: it cannot be written.
    """
    text = "".join(json.dumps({"place": place, **asdict(outcome)}) + "\n" for place, outcome in rows)
    with mapped_storage_errors(folder):
        (folder / _FILE).write_text(text, encoding="utf-8")


def _read(row: object) -> tuple[Place, RequestOutcome]:
    assert isinstance(row, dict)  # noqa: S101 - our own child wrote it
    task, number = row["place"]
    outcome = RequestOutcome(
        status=SampleStatus(row["status"]),
        detail=str(row["detail"]),
        output_tokens=row["output_tokens"],
        input_tokens=row["input_tokens"],
    )
    return (str(task), int(number)), outcome
