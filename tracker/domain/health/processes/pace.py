"""How long a training may be quiet: when to look at its processes, and when to report it. Pure.

Two limits. A look is early and cheap, and reports only what its evidence proves. The second limit reports without
proof: a healthy training pauses for many times its usual interval, as for saves and evaluations.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from statistics import median

from tracker.domain.health.processes.seen import ProcessId

KEPT = 20
"""Newest intervals between logged steps that show the usual one."""
KEPT_PAUSES = 50
KEPT_PHASES = 10
KEPT_RANKS = 64
PAUSE = 3.0
"""A pause is longer than this many usual intervals."""
LEAST_TIMES = 10
LEAST_INTERVALS = 5
"""Least number of intervals that show the usual one."""
HABIT = 1.1
"""A look begins after this many times the second longest pause, because shorter pauses recur in healthy runs."""


class JobPhase(StrEnum):
    """What a training does between two signs of progress."""

    STARTING = "starting"
    """It has logged no step since it was started."""
    TRAINING = "training"
    SAVING = "saving"
    EVALUATING = "evaluating"


class PauseState(StrEnum):
    """What the watch has done about the present pause."""

    NONE = "none"
    """It is as short as usual."""
    LOOKED_AT = "looked at"
    """A look has begun, and has shown nothing yet."""
    REPORTED = "reported"
    """A pause that was reported becomes no habit."""


_SAYS = (
    (
        JobPhase.EVALUATING,
        re.compile(r"(?:running|begin\w*|start\w*) (?:eval|valid|predict)|^\W*(?:evaluating|validat)", re.I),
    ),
    (JobPhase.SAVING, re.compile(r"saving (?:model|checkpoint|state|weights)|(?:writing|save) checkpoint", re.I)),
)


_QUICK = ("alu", "alid", "redic", "aving", "ave c", "riting")
"""Any line that announces a phase has one of these."""


def phase_of_line(line: str) -> JobPhase | None:
    """Return the phase that a line without numbers announces; None: none."""
    for text in _QUICK:  # a generator takes three times as long
        if text in line:
            return _announced(line)
    return None


def _announced(line: str) -> JobPhase | None:
    for phase, pattern in _SAYS:
        if pattern.search(line):
            return phase
    return None


@dataclass(frozen=True, kw_only=True)
class HangLimits:
    """Settings: times without progress, in seconds, and multiples of what a run has shown."""

    look_s: float = 15.0
    look_over_s: float = 20.0
    """Time from the first to the last sample of a look."""
    look_factor: float = 3.0
    """Multiple of the usual interval between logged steps."""
    report_s: float = 300.0
    report_factor: float = 10.0
    pause_factor: float = 1.5
    """Multiple of the longest pause of this run."""
    start_s: float = 1800.0
    phase_s: float = 900.0
    """While it saves or evaluates."""
    phase_factor: float = 2.5
    """Multiple of the longest save or evaluation."""
    restart_s: float = 30.0
    """After the end of all ranks, while their launcher lives and may start others."""


@dataclass(kw_only=True)
class JobPace:
    """When one training made progress. It is stored as JSON, and knows the run after a restart."""

    job: tuple[ProcessId, ...] = ()
    """Ranks that it is about, at most `KEPT_RANKS`; empty: none was seen."""
    host: str = ""
    """Boot and container within which their IDs are valid."""
    phase: JobPhase = JobPhase.STARTING
    ended: str = ""
    """How its processes ended; empty: they did not, or none was seen."""
    progress_s: float | None = None
    """Unix seconds of the newest sign of progress, of any kind; None: there was none since it was watched."""
    began_s: float | None = None
    """When its processes were seen first; None: their first step was logged."""
    step_s: float | None = None
    """The same of the newest logged step."""
    is_heard: bool = False
    """Whether these processes have logged anything; a healthy training may print to a terminal only."""
    pause: PauseState = PauseState.NONE
    intervals_s: tuple[float, ...] = ()
    """Newest times between two logged steps."""
    pauses_s: tuple[float, ...] = ()
    """Newest times without progress while it trained that were longer than three usual intervals."""
    phases_s: dict[JobPhase, tuple[float, ...]] = field(default_factory=dict)
    """Newest times that starts, saves and evaluations took without other progress, at most `KEPT_PHASES` each."""

    @property
    def state(self) -> str:
        """What the training does, or how it ended; empty: its processes were not seen."""
        if self.ended or not self.job:
            return self.ended
        return "stale" if self.pause is PauseState.LOOKED_AT else str(self.phase)

    @property
    def usual_s(self) -> float:
        """Usual time between two logged steps; 0: unknown."""
        return median(self.intervals_s) if self.intervals_s else 0.0

    def watch(self, job: Iterable[ProcessId], now_s: float, host: str = "") -> bool:
        """Note that the ranks of a job are watched from now on: what was before is unknown, and counts nowhere.

        Return whether another job of the run was watched before.
        """
        ranks = tuple(sorted(job))
        is_other = bool(self.job) and (self.host != host or set(ranks).isdisjoint(self.job))
        if is_other or not self.job:
            self.phase, self.began_s, self.ended, self.is_heard = JobPhase.STARTING, now_s, "", False
        self.job, self.host = ranks[:KEPT_RANKS], host
        self.progress_s, self.step_s, self.pause = now_s, None, PauseState.NONE
        return is_other

    def leave(self, job: Iterable[ProcessId], *, has_steps: bool) -> None:
        """Note that the ranks of a job log another run. `has_steps`: whether this one has logged any."""
        if has_steps and set(job).isdisjoint(self.job):
            self.ended = self.ended or "ended"  # it was another job, and it is not known how that ended
        else:
            self.job = ()

    def skip(self, seconds: float) -> None:
        """Exclude a time that was not watched: the machine slept, or the clock was set."""
        self.progress_s = _later(self.progress_s, seconds)
        self.began_s = _later(self.began_s, seconds)
        self.step_s = _later(self.step_s, seconds)

    def take_step(self, now_s: float) -> None:
        """Note a logged step; several that are read at once count as one."""
        if self.step_s is not None and now_s > self.step_s:
            interval_s = now_s - self.step_s
            if self.phase is JobPhase.TRAINING or interval_s <= PAUSE * self.usual_s:
                self.intervals_s = (*self.intervals_s, interval_s)[-KEPT:]
            self._end_pause(now_s)
        elif self.began_s is not None:
            self._remember(JobPhase.STARTING, now_s - self.began_s)
            self.began_s = None
        self.phase, self.progress_s, self.step_s = JobPhase.TRAINING, now_s, now_s
        self.is_heard, self.pause = True, PauseState.NONE

    def take_line(self, now_s: float, phase: JobPhase | None) -> None:
        """Note a line; `phase`: that it announces."""
        self.is_heard = True
        self.take_sign(now_s, phase)

    def take_sign(self, now_s: float, phase: JobPhase | None = None) -> None:
        """Note another sign of progress: a line, or bytes of a checkpoint. `phase`: that it shows; None: it shows none.

        Only a step ends the start: a trainer prints much before it.
        """
        if self.phase is not JobPhase.STARTING:
            self._end_pause(now_s)
            self.phase = phase or self.phase
            if self.pause is PauseState.LOOKED_AT:
                self.pause = PauseState.NONE
        self.progress_s = now_s

    def quiet_s(self, now_s: float) -> float:
        """Return the time without any progress."""
        return 0.0 if self.progress_s is None else now_s - self.progress_s

    def look_limit_s(self, limits: HangLimits) -> float:
        """Return after which time without progress the processes are looked at."""
        if self.phase is JobPhase.STARTING or len(self.intervals_s) < LEAST_INTERVALS:
            return self.report_limit_s(limits)
        habit_s = HABIT * _second(self.pauses_s)
        if self.phase is not JobPhase.TRAINING:
            habit_s = max(habit_s, HABIT * self._longest_s(self.phase))
        return max(limits.look_factor * self.usual_s, limits.look_s, habit_s)

    def report_limit_s(self, limits: HangLimits) -> float:
        """Return after which time without progress it is reported, whatever a look shows."""
        longest_s = self._longest_s(self.phase)
        if self.phase is JobPhase.STARTING:
            return max(limits.start_s, limits.pause_factor * longest_s)
        if self.phase is not JobPhase.TRAINING:
            return max(limits.phase_s, limits.phase_factor * longest_s)
        longest_s = max(self.pauses_s, default=0.0)
        if len(self.intervals_s) < KEPT:  # the first steps compile, and may take as long as the start
            longest_s = max(longest_s, min(self._longest_s(JobPhase.STARTING), limits.start_s))
        return max(limits.report_factor * self.usual_s, limits.pause_factor * longest_s, limits.report_s)

    def _end_pause(self, now_s: float) -> None:
        pause_s = self.quiet_s(now_s)
        if self.pause is PauseState.REPORTED:
            return
        if self.phase is not JobPhase.TRAINING:
            self._remember(self.phase, pause_s)
        elif self.intervals_s and pause_s > PAUSE * self.usual_s:
            self.pauses_s = (*self.pauses_s, pause_s)[-KEPT_PAUSES:]

    def _remember(self, phase: JobPhase, seconds: float) -> None:
        self.phases_s[phase] = (*self.phases_s.get(phase, ()), seconds)[-KEPT_PHASES:]

    def _longest_s(self, phase: JobPhase) -> float:
        return max(self.phases_s.get(phase, ()), default=0.0)


@dataclass(frozen=True, kw_only=True)
class Replay:
    """What the limits would have done with a training that was healthy."""

    hours: float
    looks: int
    reports: int
    longest_pause_s: float
    usual_s: float


def replay(times_s: Sequence[float], limits: HangLimits) -> Replay | None:
    """Return how often a training with steps at these times would have been looked at and reported.

    None: there are too few times.
    """
    if len(times_s) < LEAST_TIMES:
        return None
    pace = JobPace()
    looks = reports = 0
    longest_s = 0.0
    for number, at_s in enumerate(times_s):
        if number == 0:
            pace.watch((), at_s)
        else:
            quiet_s = pace.quiet_s(at_s)
            looks += quiet_s > pace.look_limit_s(limits)
            reports += quiet_s > pace.report_limit_s(limits)
            longest_s = max(longest_s, quiet_s)
        pace.take_step(at_s)
    hours = (times_s[-1] - times_s[0]) / 3600
    return Replay(hours=hours, looks=looks, reports=reports, longest_pause_s=longest_s, usual_s=pace.usual_s)


def _later(at_s: float | None, seconds: float) -> float | None:
    return None if at_s is None else at_s + seconds


def _second(values: Sequence[float]) -> float:
    return sorted(values)[-2] if len(values) > 1 else 0.0
