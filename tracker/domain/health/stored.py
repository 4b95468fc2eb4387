"""What is stored of a training's logs. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from tracker.domain.health.logs.cursor import Cursor
from tracker.domain.health.run_state import RunState, StreamState
from tracker.domain.records.training import TrainingIncident, TroubleSource
from tracker.domain.records.types import CurvePoint


@dataclass(kw_only=True)
class ReadSoFar:
    """What was read of a training by earlier processes."""

    runs: Mapping[str, RunState] = field(default_factory=dict)
    """By run id; empty if the training was never followed."""
    streams: Mapping[str, tuple[Cursor, StreamState]] = field(default_factory=dict)
    """By the path of the log."""
    reader: int = 0
    """Number of the process that reads from now on."""


@dataclass(frozen=True, kw_only=True)
class ReadNow:
    """What one pass over the logs of a training adds."""

    reader: int = 0
    """As in `ReadSoFar`."""
    read_at: datetime
    runs: Mapping[str, RunState]
    """Those that have changed, by run id."""
    streams: Mapping[str, tuple[Cursor, StreamState]]
    """Those that were read, by the path of the log."""
    incidents: Sequence[TrainingIncident]
    """Those that are new or have changed."""
    points: Mapping[str, Sequence[CurvePoint]]
    """New points of curves, by run id."""


@dataclass(frozen=True, kw_only=True)
class RunProgress:
    """How a run stands according to its logs."""

    run_id: str
    read_at: datetime
    """When its logs had anything new."""
    last_step: int | None
    productive_share: float | None
    """Share of the time in which steps advanced, since its logs are followed; None: unknown."""
    changes: int
    """Raised whenever one of its incidents changes."""
    state: str = ""
    """What its processes do, such as `evaluating`, or how they ended; empty: none was seen on this machine."""
    usual_s: float | None = None
    """Usual time between two logged steps; None: unknown."""


_HUNG = "hung"


def progress_of(run_id: str, state: RunState, read_at: datetime, changes: int) -> RunProgress:
    """Return how a run stands by what is stored of it."""
    return RunProgress(
        run_id=run_id,
        read_at=read_at,
        last_step=state.steps.last,
        productive_share=state.tempo.productive_share(),
        changes=changes,
        state=_HUNG if _hangs(state) else state.pace.state,
        usual_s=state.pace.usual_s or None,
    )


def _hangs(state: RunState) -> bool:
    if state.episode is None or state.pace.ended:
        return False
    trouble = state.episode.cause.trouble
    return trouble.source is TroubleSource.PROCESS and not trouble.is_terminal
