"""One pass over the processes of a training: which they are, whether they make progress, and why not.

    watch = JobWatch(processes=processes, places=places, limits=limits, clock=clock)
    watch.look(follower)      # about once a second; most passes do nothing

It reads no file of the training: a file server that hangs stops the training, and not its watch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from eval_jobs.identity import content_hash
from eval_jobs.ports import Clock
from tracker.domain.health.processes.ended import Ending, sign_of_end
from tracker.domain.health.processes.hangs import Moment, likely, proven
from tracker.domain.health.processes.jobs import Job, Places, job_of
from tracker.domain.health.processes.pace import HangLimits, Pace, Phase
from tracker.domain.health.processes.seen import ProcessId, ProcessState, Sample
from tracker.domain.health.processes.signs import ProcessSign, sign_of_hang

if TYPE_CHECKING:  # the ports of the whole program import the statistics, and an agent stays small
    from tracker.app.health.follow import LogFollower
    from tracker.domain.health.run_log import RunLog
    from tracker.ports.health import Processes

SCAN_S = 30.0
"""Between two searches for processes that are not known yet."""
FIRST_SCANS_S = 5.0
"""The same while no process of the run is known, and until its first step: its ranks start one after the other."""
CHECK_S = 5.0
SAMPLES = 3
END_S = 10.0
"""After the end of all processes: their last lines are read first."""
_DEAD = (ProcessState.GONE, ProcessState.ZOMBIE)


@dataclass(kw_only=True)
class _Search:
    """Finds the processes of the run."""

    processes: Processes
    places: Places
    job: Job = field(default_factory=Job)
    key: str = ""
    """Identifies the job."""
    kills: int = 0
    """Processes that the kernel had killed for memory before."""
    searched_s: float | None = None

    def refresh(self, now_s: float, phase: Phase) -> None:
        """Search, unless the last search is recent."""
        interval_s = SCAN_S if self.job.ranks and phase is not Phase.STARTING else FIRST_SCANS_S
        if self.searched_s is not None and 0 <= now_s - self.searched_s < interval_s:
            return
        self.searched_s = now_s
        found = job_of(self.processes.all(), self.places)
        if not found.ranks:
            return  # what is known of those before them decides how they ended
        known = {one.id for one in self.job.ranks.values()}
        if known & {one.id for one in found.ranks.values()}:
            ranks = {**found.ranks, **self.job.ranks}  # one that is gone still belongs to the job
            self.job = replace(found, ranks=ranks)
            return
        self.job = found
        self.kills = self.processes.memory_kills(found.members)
        first = found.ranks[min(found.ranks)].id  # the others may follow
        self.key = content_hash(f"{first.pid} {first.created_s}")


@dataclass(kw_only=True)
class _Look:
    """Samples that are being taken, and what was looked at since the newest progress."""

    progress_s: float | None = None
    moments: list[Moment] = field(default_factory=list)
    limits_s: list[float] = field(default_factory=list)
    """At which a look was taken; infinite: what it showed is reported."""

    def follow(self, pace: Pace) -> None:
        """Begin again if there was progress."""
        if pace.progress_s != self.progress_s:
            self.progress_s, self.moments, self.limits_s = pace.progress_s, [], []

    def is_due(self, limit_s: float, quiet_s: float) -> bool:
        """Return whether a limit is passed, and nobody has looked since."""
        return quiet_s > limit_s > max(self.limits_s, default=0.0)


@dataclass(kw_only=True)
class JobWatch:
    """Follows the processes of one run on this machine."""

    processes: Processes
    places: Places
    limits: HangLimits
    clock: Clock
    exit_code: Callable[[Collection[ProcessId]], int | None] = lambda _: None
    """Returns how the command ended that began these processes; negative: the signal. None: unknown."""
    _watched: tuple[str, str] = ("", "")
    """The run, and its job, of which this process knows the progress."""
    _look: _Look = field(default_factory=_Look)
    _checked_s: float | None = None
    _ended_s: float | None = None
    """When all processes were found to have ended."""
    _saved_bytes: int | None = None

    def __post_init__(self) -> None:
        """Know no process yet."""
        self._search = _Search(processes=self.processes, places=self.places)

    @property
    def job(self) -> Job:
        """The processes of the run, or those that it had last; without ranks after its end was reported."""
        return self._search.job

    def look(self, follower: LogFollower) -> None:
        """Do one pass; what it shows joins what the logs show, and is stored with it."""
        run = _newest(follower, self.places.run)
        for sign in self.signs(run, follower.log.saved_bytes()):
            run.take_sign(sign, self.clock.now())
            follower.touch(run.state.run_id)

    def signs(self, run: RunLog, saved_bytes: int) -> tuple[ProcessSign, ...]:
        """Do one pass, and return what is new; `saved_bytes`: size of the newest checkpoints."""
        now_s = self.clock.now().timestamp()
        pace = run.state.pace
        self._search.refresh(now_s, pace.phase)
        if not self.job.ranks:
            return ()
        if self._watched != (run.state.run_id, self._search.key):
            self._watched = (run.state.run_id, self._search.key)
            self._ended_s = self._checked_s = None
            pace.watch(self._search.key, now_s)
        self._note_saved(pace, saved_bytes, now_s)
        self._look.follow(pace)
        if self._look.moments:
            return self._continue(pace, now_s)
        if self._checked_s is not None and 0 <= now_s - self._checked_s < CHECK_S:
            return ()
        self._checked_s = now_s
        self.processes.exits(one.id for one in self.job.ranks.values())  # each is waited for from now on
        states = self.processes.samples((one.id for one in self.job.ranks.values()), with_stacks=False)
        if all(sample.state in _DEAD for sample in states.values()):
            return self._end(run, now_s)
        self._ended_s = None
        return self._judge(pace, now_s)

    def _note_saved(self, pace: Pace, saved_bytes: int, now_s: float) -> None:
        if self._saved_bytes is not None and saved_bytes != self._saved_bytes:
            pace.take_sign(now_s, Phase.SAVING)
        self._saved_bytes = saved_bytes

    def _judge(self, pace: Pace, now_s: float) -> tuple[ProcessSign, ...]:
        """Begin a look if the training is quiet for long, once for each of the two limits."""
        quiet_s = pace.quiet_s(now_s)
        for limit_s in (pace.report_limit_s(self.limits), pace.look_limit_s(self.limits)):
            if self._look.is_due(limit_s, quiet_s):
                self._look.limits_s.append(limit_s)
                self._search.searched_s = None  # workers of data loaders may be new
                self._search.refresh(now_s, pace.phase)
                self._look.moments = [self._moment(now_s)]
        return ()

    def _continue(self, pace: Pace, now_s: float) -> tuple[ProcessSign, ...]:
        """Take the next sample of a look; after the last one, return what they show."""
        look = self._look
        if now_s - look.moments[-1].at_s < self.limits.look_over_s / (SAMPLES - 1):
            return ()
        look.moments.append(self._moment(now_s))
        if len(look.moments) < SAMPLES:
            return ()
        moments, look.moments = look.moments, []
        hang = proven(moments, pace.phase)
        if hang is None and max(look.limits_s) >= pace.report_limit_s(self.limits):
            hang = likely(moments, self.job.world_size)
        if hang is None:
            return ()
        look.limits_s.append(math.inf)
        return (sign_of_hang(hang, pace, now_s, moments),)

    def _moment(self, now_s: float) -> Moment:
        """Sample all processes with their stacks."""
        ranks = {rank: one.id for rank, one in self.job.ranks.items()}
        found = self.processes.samples((*ranks.values(), *self.job.loaders), with_stacks=True)
        loaders: dict[int, tuple[Sample, ...]] = {}
        for one, rank in self.job.loaders.items():
            loaders[rank] = (*loaders.get(rank, ()), found[one])
        return Moment(at_s=now_s, ranks=_by_rank(ranks, found), loaders=loaders)

    def _end(self, run: RunLog, now_s: float) -> tuple[ProcessSign, ...]:
        """All processes have ended: wait for what they wrote last, then say how they ended."""
        if self._ended_s is None:
            self._ended_s = now_s
        if now_s - self._ended_s < END_S:
            return ()
        kills = self.processes.memory_kills(self.job.members) - self._search.kills
        exit_code = self.exit_code(self.job.members)
        first_rank = _first(self.job, self.processes.exits(one.id for one in self.job.ranks.values()))
        self._search, self._ended_s = _Search(processes=self.processes, places=self.places), None
        trouble = None if run.state.episode is None else run.state.episode.cause.trouble
        ending = Ending(
            last_step=run.steps.last,
            total_steps=run.steps.total,
            is_complete=run.steps.is_complete,
            trouble=trouble,
            memory_kills=kills,
            exit_code=exit_code,
            first_rank=first_rank,
        )
        sign = sign_of_end(ending)
        return () if sign is None else (sign,)


def _newest(follower: LogFollower, run_id: str) -> RunLog:
    """Return the run, or sub-folder of it, that logged a step last: the processes are of that one."""
    runs = [run for run in follower.runs.values() if run.state.pace.step_s is not None]
    return max(runs, key=lambda run: run.state.pace.step_s or 0.0, default=follower.run_of(run_id))


def _first(job: Job, ended_s: Mapping[ProcessId, float]) -> int | None:
    """Return the rank that ended before the others; None: there is no other, or not all are known."""
    if len(job.ranks) < 2 or len(ended_s) < len(job.ranks):
        return None
    return min(job.ranks, key=lambda rank: ended_s[job.ranks[rank].id])


def _by_rank(ranks: Mapping[int, ProcessId], found: Mapping[ProcessId, Sample]) -> dict[int, Sample]:
    return {rank: found[one] for rank, one in ranks.items()}
