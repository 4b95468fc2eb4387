"""Reads what a trainer saved with a checkpoint about the training: `tracker.ports.CurveReader`."""

import logging
from collections.abc import Mapping
from pathlib import Path

from eval_jobs import limits
from eval_jobs.host.bounded.files import read_bytes
from eval_jobs.host.bounded.json_text import parse_json
from eval_jobs.types import Checkpoint
from tracker.adapters.trainer_files.documents import read_documents
from tracker.domain.checkpoints.listing import TRAINER_STATE
from tracker.domain.checkpoints.names import is_step, unit_of
from tracker.domain.health.logs.curves import points_of
from tracker.domain.records.display import ONCE
from tracker.domain.records.tracking import TrainerFacts
from tracker.domain.records.types import CurvePoint
from tracker.domain.tracking.trainer_facts import Document, trainer_facts

log = logging.getLogger(__name__)


class TrainerCurves:
    """`tracker.ports.CurveReader` over trainer_state.json and the settings beside it."""

    def __init__(self, command: Mapping[str, Document] | None = None) -> None:
        """Read files; `command` has the settings on the trainer's command line, if it is known."""
        self._command = command or {}

    def read(self, checkpoint: Checkpoint) -> tuple[CurvePoint, ...]:
        """Return the points in the trainer's state; see `ports.CurveReader`."""
        if unit_of(checkpoint.source_uri, checkpoint.step) == "epoch":
            return ()
        return points_of(_stated_rows(Path(checkpoint.uri) / TRAINER_STATE), up_to_step=checkpoint.step)

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
        log.warning("cannot read training curves from %s: %s", path, error, extra=ONCE)
        return {}
    if isinstance(document, dict):
        return document
    return {}
