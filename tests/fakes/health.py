"""What was read of trainers' logs, in memory."""

from collections.abc import Sequence

from eval_jobs.errors import ConfigError
from eval_jobs.identity import content_hash
from eval_jobs.records.changes import Change, ChangeKind
from tracker.domain.health.logs.cursor import Cursor
from tracker.domain.health.run_state import RunState, StreamState
from tracker.domain.health.stored import ReadNow, ReadSoFar, RunProgress, merged_progress, progress_of
from tracker.domain.records.training import Dismissal, TrainingIncident, as_dismissed, dismissal_of
from tracker.domain.records.types import CurvePoint


class FakeChanges:
    """`tracker.ports.Changes`; a position is the number of the newest change."""

    def __init__(self) -> None:
        self._noted: dict[tuple[ChangeKind, str], tuple[int, str]] = {}
        self._number = 0

    def note(self, kind: ChangeKind, run_id: str, key: str = "") -> None:
        self._number += 1
        self._noted[kind, key or content_hash([run_id])] = (self._number, run_id)

    def position(self) -> str:
        return str(self._number)

    def changes(self, position: str) -> tuple[str, tuple[Change, ...]]:
        new = sorted((number, kind, key, run) for (kind, key), (number, run) in self._noted.items())
        found = [Change(kind=kind, key=key, run_id=run) for number, kind, key, run in new if number > int(position)]
        return (str(self._number) if found else position), tuple(found)


class FakeMachine:
    """`tracker.ports.HealthStore` of one machine."""

    def __init__(self, health: "FakeHealth", host: str) -> None:
        self._health, self._host = health, host
        self._reader = 0
        self._states: dict[str, RunState] = {}
        self._streams: dict[str, tuple[Cursor, StreamState]] = {}

    def read_so_far(self) -> ReadSoFar:
        self._reader += 1
        runs, streams = dict(self._states), dict(self._streams)
        return ReadSoFar(runs=runs, streams=streams, reader=self._reader, host=self._host)

    def save(self, now: ReadNow) -> bool:
        if now.reader != self._reader:
            return False
        self._states.update(now.runs)
        self._streams.update(now.streams)
        self._health.take(now, self._host)
        return True


class FakeHealth(FakeChanges):
    """`tracker.ports.HealthStore` and `tracker.ports.TrainingHistory` without a database."""

    def __init__(self) -> None:
        super().__init__()
        self._machines: dict[str, FakeMachine] = {}
        self._progress: dict[tuple[str, str], RunProgress] = {}
        self._curves: dict[tuple[str, str], str] = {}
        self._training: dict[str, TrainingIncident] = {}
        self._dismissals: dict[str, Dismissal] = {}
        self._points: list[tuple[str, CurvePoint]] = []
        self._stated: dict[str, tuple[CurvePoint, ...]] = {}

    def on(self, host: str) -> "FakeMachine":
        return self._machines.setdefault(host, FakeMachine(self, host))

    def read_so_far(self) -> ReadSoFar:
        return self.on("").read_so_far()

    def save(self, now: ReadNow) -> bool:
        return self.on("").save(now)

    def take(self, now: ReadNow, host: str) -> None:
        for run_id, state in now.runs.items():
            self._progress[run_id, host] = progress_of(run_id, state, now.read_at)
            self.note(ChangeKind.PROGRESS, run_id)
        for incident in now.incidents:
            self._training[incident.id] = incident
            self.note(ChangeKind.TRAINING, incident.run_id)
        for run_id in now.points:
            self.note(ChangeKind.CURVES, run_id)
        for run_id, points in now.points.items():
            own = [point for point in points if self._curves.setdefault((run_id, point.key), host) == host]
            self._points += [(run_id, point) for point in own]

    def followed_runs(self) -> tuple[str, ...]:
        return tuple(sorted({run_id for run_id, _ in self._progress}))

    def progress(self, run: str) -> tuple[RunProgress, ...]:
        runs = [one for one in self.followed_runs() if one == run or one.startswith(f"{run}/")]
        known = sorted(self._progress.items())
        return tuple(merged_progress([one for (run_id, _), one in known if run_id == asked]) for asked in runs)

    def training_incidents(self, run_id: str) -> tuple[TrainingIncident, ...]:
        runs = {run_id, run_id.partition("/")[0]}
        every = [as_dismissed(one, self._dismissals.get(key)) for key, one in self._training.items()]
        found = [incident for incident in every if incident.run_id in runs]
        return tuple(sorted(found, key=lambda incident: (incident.seen_at, incident.id)))

    def dismiss(self, incident_id: str, reason: str) -> TrainingIncident:
        known = self._training.get(incident_id)
        if known is None:
            raise ConfigError(f"no incident {incident_id!r}", hint="see `tracker incidents` for the ids")
        self._dismissals[incident_id] = dismissal_of(known, reason)
        self.note(ChangeKind.TRAINING, known.run_id)
        return as_dismissed(known, self._dismissals[incident_id])

    def logged_points(self, run_id: str, after: int = 0) -> tuple[int, tuple[CurvePoint, ...]]:
        new = [(number, point) for number, (run, point) in enumerate(self._points, start=1) if run == run_id]
        new = [(number, point) for number, point in new if number > after]
        return (new[-1][0] if new else after), tuple(point for _, point in new)

    def stated_points(self, run_id: str) -> tuple[CurvePoint, ...]:
        return self._stated.get(run_id, ())

    def append_stated_points(self, run_id: str, points: Sequence[CurvePoint]) -> None:
        self._stated[run_id] = (*self.stated_points(run_id), *points)
        self.note(ChangeKind.CURVES, run_id)
