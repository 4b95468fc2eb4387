"""Files of an evaluation in its folder, read by the child after a pass and by its parent at the end."""

from collections.abc import Mapping
from pathlib import Path

from eval_jobs.evaluate.common.parse import Place, Row, by_place, parse_lines, parse_samples, planned_sample
from eval_jobs.evaluate.common.protocol import FAILURES_FILE, PLANNED_FILE
from eval_jobs.evaluate.common.task_config import MODEL_ID
from eval_jobs.types import SampleScore


class Outputs:
    """Planned samples, answers and scores on disk, at the time of creation."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self._name = name
        self.planned = tuple(planned_sample(row) for row in _rows(folder / PLANNED_FILE))
        self.predictions = self._by_place("predictions")
        self.reviews = self._by_place("reviews")
        self.failures = failures(folder)

    def samples(self) -> tuple[SampleScore, ...]:
        """Return one score for every planned sample."""
        details = {place: str(row["detail"]) for place, row in self.failures.items()}
        return parse_samples(self.planned, self.predictions, self.reviews, details)

    def lost_answers(self, known: Mapping[Place, object]) -> tuple[Place, ...]:
        """Return the planned samples that have no answer and are not in `known`.

        Their rows were written and are lost: truncated by a full disk, or deleted by another program.
        """
        return self._missing_from(self.predictions, known)

    def lost_scores(self, known: Mapping[Place, object]) -> tuple[Place, ...]:
        """Return the planned samples that have no score and are not in `known`."""
        return self._missing_from(self.reviews, known)

    def _missing_from(self, rows: Mapping[Place, Row], known: Mapping[Place, object]) -> tuple[Place, ...]:
        places = ((sample.subset, sample.index) for sample in self.planned)
        return tuple(place for place in places if place not in rows and place not in known)

    def _by_place(self, kind: str) -> dict[Place, Row]:
        found: dict[Place, Row] = {}
        for subset in dict.fromkeys(sample.subset for sample in self.planned):
            found |= by_place(subset, _rows(self.folder / kind / MODEL_ID / f"{self._name}_{subset}.jsonl"))
        return found


def failures(folder: Path) -> dict[Place, Row]:
    """Return the rows that the last evaluation in a folder wrote about samples without an answer or a score."""
    rows = _rows(folder / FAILURES_FILE)
    return {(str(row["subset"]), index): row for row in rows if isinstance(index := row["index"], int)}


def _rows(path: Path) -> tuple[Row, ...]:
    if not path.is_file():
        return ()
    with path.open(encoding="utf-8", errors="replace") as lines:
        return parse_lines(lines)
