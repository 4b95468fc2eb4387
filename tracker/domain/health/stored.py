"""What is stored of a training's logs. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from tracker.domain.health.logs.cursor import Cursor
from tracker.domain.health.run_state import RunState, StreamState
from tracker.domain.records.training import Severity, TrainingIncident, TroubleSource
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
    host: str = ""
    """Machine of that process; empty: that of the watcher."""


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
    """Share of the followed time in which steps advanced; None: unknown."""
    state: str = ""
    """What its processes do, such as `evaluating`, or how they ended; empty: none was seen on this machine."""
    usual_s: float | None = None
    """Usual time between two logged steps; None: unknown."""
    summary: Mapping[str, float] = field(default_factory=dict)
    """Numbers of the whole training, by the names that the trainer printed."""


def merged_progress(machines: Sequence[RunProgress]) -> RunProgress:
    """Return how a run stands according to the logs of all machines; `machines` is not empty.

    Its state is that of the machine with trouble, else of the one that has reached the newest step.
    """
    ahead, state = machines[0], ""
    summary: dict[str, float] = {}
    for one in sorted(machines, key=_reached):
        ahead, state = one, one.state or state
        summary |= one.summary
    known = {one.state for one in machines}
    for trouble in (_HUNG, *_HANGS.values(), FAILED):
        if trouble in known:
            state = trouble
    return replace(ahead, read_at=max(one.read_at for one in machines), state=state, summary=summary)


def _reached(progress: RunProgress) -> tuple[int, datetime]:
    if progress.last_step is None:
        return -1, progress.read_at
    return progress.last_step, progress.read_at


FAILED = "failed"
_HUNG = "hung"
_HANGS = {"stopped": "stopped", "dead_rank": "dead rank"}
"""States that are more precise than `_HUNG`, by class of trouble."""


def progress_of(run_id: str, state: RunState, read_at: datetime) -> RunProgress:
    """Return how a run stands by what is stored of it."""
    return RunProgress(
        run_id=run_id,
        read_at=read_at,
        last_step=state.steps.reached,
        productive_share=state.tempo.productive_share(),
        state=_trouble_of(state) or state.pace.state,
        usual_s=state.pace.usual_s or None,
        summary=state.steps.summary,
    )


def _trouble_of(state: RunState) -> str:
    """Return how a training makes no progress; empty: it does, or it is known how its processes ended."""
    if state.episode is None or state.pace.ended:
        return ""
    trouble = state.episode.cause.trouble
    if trouble.is_terminal:
        is_certain = trouble.severity is Severity.ALERT and not trouble.wait_s
        return FAILED if is_certain and state.pace.job else ""
    return _HANGS.get(trouble.name, _HUNG) if trouble.source is TroubleSource.PROCESS else ""
