"""Reads what the trainer left on disk about the training: `tracker.ports.CurveReader`.

trainer_state.json is in the pin; logs in JSON lines are next to the trainer's checkpoints and are only read.
"""

import csv
import logging
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

from eval_jobs import limits
from eval_jobs.host.bounded.files import lines_of, read_bytes
from eval_jobs.host.bounded.json_text import TooLarge, parse_json
from eval_jobs.types import Checkpoint
from tracker.adapters.trainer_files.documents import read_documents
from tracker.domain.checkpoints.listing import TRAINER_STATE, is_training_log
from tracker.domain.checkpoints.names import is_step, unit_of
from tracker.domain.checkpoints.watching import known_time
from tracker.domain.records.tracking import TrainerFacts
from tracker.domain.records.types import CurvePoint
from tracker.domain.tracking.curves import points_of
from tracker.domain.tracking.trainer_facts import Document, trainer_facts

log = logging.getLogger(__name__)

LIGHTNING_LOG = "metrics.csv"
"""In the folder above the checkpoints."""
_STEP_DIGITS = 12
_EVENT_FILES = (
    "*tfevents*",
    *(f"{name}/{deep}*tfevents*" for name in ("runs", "logs", "tensorboard") for deep in ("", "*/")),
)
"""Where trainers write TensorBoard event files; thousands of checkpoint folders are not searched."""


class TrainerCurves:
    """`tracker.ports.CurveReader` over trainer_state.json and JSONL logs."""

    def __init__(self, command: Mapping[str, Document] | None = None) -> None:
        """Read files; `command` has the settings on the trainer's command line, if it is known."""
        self._command = command or {}

    def read(self, checkpoint: Checkpoint) -> tuple[CurvePoint, ...]:
        """Return all finite points known at this checkpoint, ordered by step; () when there are none.

        Curves over steps do not fit the axis of a run that counts epochs.
        """
        if unit_of(checkpoint.source_uri, checkpoint.step) == "epoch":
            return ()
        logged = points_of(_logged_rows(Path(checkpoint.source_uri).parent), up_to_step=checkpoint.step)
        stated = points_of(_stated_rows(Path(checkpoint.uri) / TRAINER_STATE), up_to_step=checkpoint.step)
        # The trainer's state is exact and belongs to this checkpoint; a log repeats it rounded.
        points = {(p.key, p.step): p for p in (*logged, *stated)}
        return tuple(sorted(points.values(), key=lambda p: (p.step, p.key)))

    def facts(self, checkpoint: Checkpoint) -> TrainerFacts:
        """Return name and parameters of the training; see `ports.CurveReader`."""
        pin, source = Path(checkpoint.uri), Path(checkpoint.source_uri)
        # The state is first: it is in every pin, and states how long the training is as the trainer computed it.
        documents = {TRAINER_STATE: _state(pin / TRAINER_STATE), **read_documents([pin, source, source.parent])}
        return trainer_facts({**documents, **self._command})

    def last_step(self, checkpoint: Checkpoint) -> int | None:
        """Return the step at which the training will end; see `ports.CurveReader`."""
        step = _state(Path(checkpoint.uri) / TRAINER_STATE).get("max_steps")
        if is_step(step) and step > 0:
            return step
        return None

    def logged_at(self, checkpoint: Checkpoint) -> datetime | None:
        """Return when the trainer last wrote a log next to the checkpoint; see `ports.CurveReader`."""
        folder = Path(checkpoint.source_uri).parent
        try:
            times = [known_time(log.stat().st_mtime_ns, datetime.now(UTC)) for log in _logs(folder)]
        except OSError:
            return None  # only a heartbeat, which is optional
        return max((time for time in times if time is not None), default=None)


def _stated_rows(path: Path) -> list[object]:
    rows = _state(path).get("log_history")
    if isinstance(rows, list):
        return rows
    return []


def _state(path: Path) -> dict[str, object]:
    try:
        document = parse_json(read_bytes(path, limits.DOCUMENT))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        log.warning("cannot read training curves from %s: %s", path, error)
        return {}
    if isinstance(document, dict):
        return document
    return {}


def _logged_rows(folder: Path) -> Iterator[object]:
    left = limits.LOG_VALUES.most
    try:
        for row in _rows_beside(folder):
            left -= len(row) if isinstance(row, dict) else 1
            if left < 0:
                raise TooLarge(limits.LOG_VALUES)
            yield row
    except TooLarge as error:
        log.warning("cannot read all training curves from the logs in %s: a part %s", folder, error)
    except (OSError, csv.Error) as error:
        log.warning("cannot read training curves from the logs in %s: %s", folder, error)


def _rows_beside(folder: Path) -> Iterator[object]:
    for path in sorted(folder.glob("*.jsonl")):
        if is_training_log(path.name) and path.stat().st_size <= limits.LOG.most:
            yield from _rows(path)
    for path in (folder / LIGHTNING_LOG, folder.parent / LIGHTNING_LOG):
        if path.is_file() and path.stat().st_size <= limits.LOG.most:
            yield from _lightning_rows(path)


def _lightning_rows(path: Path) -> Iterator[object]:
    """Yield the rows of Lightning's CSVLogger, which counts steps from 0 and leaves cells empty."""
    lines = (line.decode(errors="replace") for line in lines_of(path, limits.LOG_LINE))
    reader = csv.reader(lines)
    names = next(reader, [])
    for cells in reader:
        row = dict(zip(names, cells, strict=False))
        step = row.pop("step", "")
        if step.isdecimal() and len(step) <= _STEP_DIGITS:
            yield {"step": int(step) + 1, **{name: cell for name, cell in row.items() if cell}}


def _logs(folder: Path) -> Iterator[Path]:
    """Yield the files that trainers write every few steps: JSON lines, and the event files of TensorBoard."""
    yield from (path for path in folder.glob("*.jsonl") if is_training_log(path.name))
    for place in _EVENT_FILES:
        yield from folder.glob(place)


def _rows(path: Path) -> Iterator[object]:
    for line in lines_of(path, limits.LOG_LINE):
        try:
            yield parse_json(line)
        except ValueError:
            continue  # text between the rows, or the last line while it is being written
