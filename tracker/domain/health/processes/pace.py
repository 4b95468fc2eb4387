"""How long a training may be quiet: when to look at its processes, and when to report it. Pure.

Two limits. A look is early and cheap, and reports only what its evidence proves. The second limit reports without
proof: a healthy training pauses for many times its usual interval, as for saves and evaluations.
"""

import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from statistics import median

KEPT = 20
"""Newest intervals between logged steps that show the usual one."""
KEPT_PAUSES = 50
LEAST_TIMES = 10
LEAST_INTERVALS = 5
"""With fewer, nothing is usual yet."""
HABIT = 1.1
"""Times the second longest pause: a shorter one recurs, and a look at it would find nothing."""


class Phase(StrEnum):
    """What a training does between two signs of progress."""

    STARTING = "starting"
    """It has logged no step since it was started."""
    TRAINING = "training"
    SAVING = "saving"
    EVALUATING = "evaluating"


_SAYS = (
    (
        Phase.EVALUATING,
        re.compile(r"(?:running|begin\w*|start\w*) (?:eval|valid|predict)|^\W*(?:evaluating|validat)", re.I),
    ),
    (Phase.SAVING, re.compile(r"saving (?:model|checkpoint|state|weights)|(?:writing|save) checkpoint", re.I)),
)


_QUICK = ("alu", "alid", "redic", "aving", "ave c", "riting")
"""Any line that announces a phase has one of these."""


def phase_of_line(line: str) -> Phase | None:
    """Return the phase that a line without numbers announces; None: none."""
    if not any(text in line for text in _QUICK):
        return None
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
    """Times the usual interval between logged steps."""
    report_s: float = 300.0
    report_factor: float = 10.0
    pause_factor: float = 1.5
    """Times the longest pause of this run."""
    start_s: float = 1800.0
    phase_s: float = 900.0
    """While it saves or evaluates."""
    phase_factor: float = 2.5
    """Times the longest save or evaluation."""


@dataclass(kw_only=True)
class Pace:
    """When one training made progress. It is stored as JSON, and knows the run after a restart."""

    job: str = ""
    """Of the processes that it is about; empty: none was seen."""
    phase: Phase = Phase.STARTING
    ended: str = ""
    """How its processes ended; empty: they did not, or none was seen."""
    progress_s: float | None = None
    """Unix seconds of the newest sign of progress, of any kind; None: there was none since it was watched."""
    began_s: float | None = None
    """When its processes were seen first; None: their first step was logged."""
    step_s: float | None = None
    """The same of the newest logged step."""
    intervals_s: deque[float] = field(default_factory=lambda: deque(maxlen=KEPT))
    """Newest times between two logged steps."""
    pauses_s: deque[float] = field(default_factory=lambda: deque(maxlen=KEPT_PAUSES))
    """Times without progress while it trained that were longer than three usual intervals and ended by themselves."""
    longest_s: dict[Phase, float] = field(default_factory=dict)
    """Longest time in each phase."""

    def __post_init__(self) -> None:
        """Bound the lists again: JSON keeps no bound."""
        self.intervals_s = deque(self.intervals_s, maxlen=KEPT)
        self.pauses_s = deque(self.pauses_s, maxlen=KEPT_PAUSES)

    @property
    def state(self) -> str:
        """What the training does, or how it ended; empty: its processes were not seen."""
        return self.ended or (str(self.phase) if self.job else "")

    @property
    def usual_s(self) -> float:
        """Usual time between two logged steps; 0: unknown."""
        return median(self.intervals_s) if self.intervals_s else 0.0

    def watch(self, job: str, now_s: float) -> None:
        """Note that the processes of a job are watched from now on: what was before is unknown, and counts nowhere."""
        if job != self.job:
            self.job, self.phase, self.began_s, self.ended = job, Phase.STARTING, now_s, ""
        self.progress_s, self.step_s = now_s, None

    def take_step(self, now_s: float) -> None:
        """Note a logged step; several that are read at once count as one."""
        if self.step_s is not None and now_s > self.step_s:
            if self.phase is Phase.TRAINING:
                self.intervals_s.append(now_s - self.step_s)
            self._end_pause(now_s)
        elif self.began_s is not None:
            self._remember(Phase.STARTING, now_s - self.began_s)
            self.began_s = None
        self.phase, self.progress_s, self.step_s = Phase.TRAINING, now_s, now_s

    def take_sign(self, now_s: float, phase: Phase | None = None) -> None:
        """Note another sign of progress: a line, or bytes of a checkpoint. `phase`: that it shows; None: it shows none.

        Only a step ends the start: a trainer prints much before it.
        """
        if self.phase is not Phase.STARTING:
            self._end_pause(now_s)
            self.phase = phase or self.phase
        self.progress_s = now_s

    def quiet_s(self, now_s: float) -> float:
        """Return the time without any progress."""
        return 0.0 if self.progress_s is None else now_s - self.progress_s

    def look_limit_s(self, limits: HangLimits) -> float:
        """Return after which time without progress the processes are looked at."""
        if self.phase is Phase.STARTING or len(self.intervals_s) < LEAST_INTERVALS:
            return self.report_limit_s(limits)
        habit_s = HABIT * _second(self.pauses_s)
        if self.phase is not Phase.TRAINING:
            habit_s = max(habit_s, HABIT * self.longest_s.get(self.phase, 0.0))
        return max(limits.look_factor * self.usual_s, limits.look_s, habit_s)

    def report_limit_s(self, limits: HangLimits) -> float:
        """Return after which time without progress it is reported, whatever a look shows."""
        longest_s = self.longest_s.get(self.phase, 0.0)
        if self.phase is Phase.STARTING:
            return max(limits.start_s, limits.pause_factor * longest_s)
        if self.phase is not Phase.TRAINING:
            return max(limits.phase_s, limits.phase_factor * longest_s)
        first_s = self.longest_s.get(Phase.STARTING, 0.0)
        pause_s = max(longest_s, min(first_s, limits.start_s))
        return max(limits.report_factor * self.usual_s, limits.pause_factor * pause_s, limits.report_s)

    def _end_pause(self, now_s: float) -> None:
        pause_s = self.quiet_s(now_s)
        self._remember(self.phase, pause_s)
        if self.phase is Phase.TRAINING and self.intervals_s and pause_s > 3 * self.usual_s:
            self.pauses_s.append(pause_s)

    def _remember(self, phase: Phase, seconds: float) -> None:
        self.longest_s[phase] = max(seconds, self.longest_s.get(phase, 0.0))


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
    pace = Pace()
    looks = reports = 0
    longest_s = 0.0
    for number, at_s in enumerate(times_s):
        if number == 0:
            pace.watch("replayed", at_s)
        else:
            quiet_s = pace.quiet_s(at_s)
            looks += quiet_s > pace.look_limit_s(limits)
            reports += quiet_s > pace.report_limit_s(limits)
            longest_s = max(longest_s, quiet_s)
        pace.take_step(at_s)
    hours = (times_s[-1] - times_s[0]) / 3600
    return Replay(hours=hours, looks=looks, reports=reports, longest_pause_s=longest_s, usual_s=pace.usual_s)


def _second(values: Sequence[float]) -> float:
    """Return the second largest value; 0 for fewer than two."""
    return sorted(values)[-2] if len(values) > 1 else 0.0
