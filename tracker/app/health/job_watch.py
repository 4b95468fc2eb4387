"""One pass over the processes of a training: which they are, whether they make progress, and why not.

    watch = JobWatch(processes=processes, places=places, limits=limits, clock=clock)
    watch.look(follower)      # about every two seconds; most passes do nothing

It reads no file of the training: a file server that hangs stops the training, and not its watch.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from eval_jobs.ports import Clock
from tracker.app.health.job_search import JobSearch
from tracker.domain.health.processes.ended import JobEnd, sign_of_end, word_of_end
from tracker.domain.health.processes.hangs import Hang, is_working, likely, proven
from tracker.domain.health.processes.jobs import Job, Places, labels_of
from tracker.domain.health.processes.pace import HangLimits, JobPace, JobPhase, PauseState
from tracker.domain.health.processes.ranks import Moment
from tracker.domain.health.processes.seen import ProcessId, Sample
from tracker.domain.health.processes.signs import ProcessSign, sign_of_hang

if TYPE_CHECKING:  # the ports of the whole program import the statistics, and an agent stays small
    from tracker.app.health.follow import LogFollower
    from tracker.domain.health.run_log import RunLog
    from tracker.ports.health import Processes


log = logging.getLogger(__name__)

CHECK_S = 5.0
SAMPLES = 3
LONGEST_PASS_S = 30.0
"""Longest time between two passes; a longer gap was not watched."""
FIRST_S = 0.1
"""Least time between the end of the first rank and that of the others, which fail because of it."""
END_S = 10.0
"""Wait after the end of all processes, in which their last lines are read."""
REPORTED_S = 20.0
"""Time after the end of all processes within which the end is reported, unless a launcher starts others."""


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What others know of the processes."""

    exit_code: Callable[[float, float], int | None] = lambda _began_s, _seen_s: None
    """Returns how the command ended whose processes began at a time, in seconds since boot, and were seen first at
    another, in Unix seconds; negative: the signal. None: unknown."""
    gpu_table: Callable[[], str] = lambda: ""
    """Returns the GPUs of the training, as text."""


@dataclass(kw_only=True)
class _Look:
    """Samples that are being taken, and what was looked at since the newest progress."""

    progress_s: float | None = None
    moments: list[Moment] = field(default_factory=list)
    limits_s: list[float] = field(default_factory=list)
    """Limits for which looks were taken; infinite: what they showed is reported."""

    def follow(self, pace: JobPace) -> None:
        """Begin again if there was progress."""
        if pace.progress_s != self.progress_s:
            self.progress_s, self.moments, self.limits_s = pace.progress_s, [], []

    def is_due(self, limit_s: float, quiet_s: float) -> bool:
        """Return whether a limit has passed for which no look was taken."""
        return quiet_s > limit_s > max(self.limits_s, default=0.0)


@dataclass(kw_only=True)
class JobWatch:
    """Follows the processes of one run on this machine."""

    processes: Processes
    places: Places
    limits: HangLimits
    clock: Clock
    around: Surroundings = field(default_factory=Surroundings)
    _followed: set[str] = field(default_factory=set)
    """Runs whose pace is of the present job and of this process."""
    _look: _Look = field(default_factory=_Look)
    _passed_s: float | None = None
    """Time of the last pass."""
    _checked_s: float | None = None
    _ended_s: float | None = None
    """When all processes were found to have ended."""
    _saved_bytes: int | None = None
    _is_blind: bool = False
    """Whether the logs cannot be read now."""

    def __post_init__(self) -> None:
        """Start without any known process."""
        self._search = JobSearch(processes=self.processes, places=self.places)

    @property
    def job(self) -> Job:
        """The processes of the run, or those that it had last; without ranks after its end was reported."""
        return self._search.job

    def look(self, follower: LogFollower) -> None:
        """Do one pass; what it shows joins what the logs show, and is stored with it."""
        run = newest_run(follower, self.places.run)
        before, self._is_blind = run.state.pace.state, follower.log.is_waiting()
        signs = self.signs(run, follower.log.saved_bytes())
        follower.log.follow_outputs(self.job.outputs)
        for sign in signs:
            run.trouble.take_sign(sign, self.clock.now())
        if signs or run.state.pace.state != before:
            follower.touch(run.state.run_id)
        if self.job.ranks:
            self._leave_others(follower, run.state.run_id)

    def _leave_others(self, follower: LogFollower, newest: str) -> None:
        """Note that other runs below the folder are no longer trained."""
        ranks = [one.id for one in self.job.ranks.values()]
        states = {**follower.known.runs} | {run_id: run.state for run_id, run in follower.runs.items()}
        for run_id, state in states.items():
            if run_id != newest and state.pace.job and not state.pace.ended:
                state.pace.leave(ranks, has_steps=state.steps.last is not None)
                self._followed.discard(run_id)
                follower.run_of(run_id)
                follower.touch(run_id)

    def signs(self, run: RunLog, saved_bytes: int) -> tuple[ProcessSign, ...]:
        """Do one pass, and return what is new; `saved_bytes`: size of the newest checkpoints."""
        now_s = self.clock.now().timestamp()
        self._skip_sleep(run.state.pace, now_s)
        if self._search.refresh(now_s, run.state.pace.phase):
            self._followed.clear()
        if not self.job.ranks:
            return self._missed_end(run, now_s)
        self._follow(run, saved_bytes, now_s)
        if self._look.moments:
            return self._continue(run.state.pace, now_s)
        if self._checked_s is not None and 0 <= now_s - self._checked_s < CHECK_S:
            return ()
        self._checked_s = now_s
        wait_s = self._end_wait_s(now_s)
        if wait_s is not None:
            return self._end(run, now_s, wait_s)
        self._ended_s = None
        return () if run.steps.is_complete else self._judge(run.state.pace, now_s)

    def _skip_sleep(self, pace: JobPace, now_s: float) -> None:
        """Leave out the time without a pass: the machine slept, the clock was set, or the database was unreachable."""
        before, self._passed_s = self._passed_s, now_s
        if before is not None and not 0 <= now_s - before <= LONGEST_PASS_S:
            pace.skip(now_s - before)
            self._look = _Look()

    def _follow(self, run: RunLog, saved_bytes: int, now_s: float) -> None:
        """Record what is known of the progress."""
        pace = run.state.pace
        if run.state.run_id not in self._followed:
            self._followed.add(run.state.run_id)
            self._ended_s = None
            if pace.watch((one.id for one in self.job.ranks.values()), now_s, self.places.host):
                run.trouble.end_stop()
        if self._saved_bytes is not None and saved_bytes != self._saved_bytes:
            pace.take_sign(now_s, JobPhase.SAVING)
        self._saved_bytes = saved_bytes
        self._look.follow(pace)

    def _end_wait_s(self, now_s: float) -> float | None:
        """Return how long to wait before the end is certain: a launcher may start others. None: a rank is left."""
        ranks = [one.id for one in self.job.ranks.values()]
        self.processes.exits(ranks)  # each is waited for from now on
        ended = self.processes.ended(ranks)
        if not ended:
            self._search.outlive(now_s)
        if len(ended) < len(ranks):
            return None
        launchers = [one.id for one in self.job.launchers]
        return END_S if len(self.processes.ended(launchers)) == len(launchers) else self.limits.restart_s

    def _judge(self, pace: JobPace, now_s: float) -> tuple[ProcessSign, ...]:
        """Begin a look if the training is quiet for long, once for each limit."""
        quiet_s, report_s = pace.quiet_s(now_s), pace.report_limit_s(self.limits)
        for limit_s in (2 * report_s, report_s, pace.look_limit_s(self.limits)):
            if self._look.is_due(limit_s, quiet_s):
                self._look.limits_s.append(limit_s)
                if pace.pause is PauseState.NONE:
                    pace.pause = PauseState.LOOKED_AT
                self._search.refresh(now_s, pace.phase, is_forced=True)  # workers of data loaders may be new
                self._look.moments = [self._moment(now_s)]
        return ()

    def _continue(self, pace: JobPace, now_s: float) -> tuple[ProcessSign, ...]:
        """Take the next sample of a look; after the last one, return what they show."""
        look = self._look
        if now_s - look.moments[-1].at_s < self.limits.look_over_s / (SAMPLES - 1):
            return ()
        look.moments.append(self._moment(now_s))
        if len(look.moments) < SAMPLES:
            return ()
        moments, look.moments = look.moments, []
        hang = self._hang(pace, moments)
        if hang is None:
            log.debug("no progress for %.0f s: a look at the processes found nothing", pace.quiet_s(now_s))
            return ()
        look.limits_s.append(math.inf)
        pace.pause = PauseState.REPORTED
        more = "\n\n".join(filter(None, (self._labels(), self.around.gpu_table())))
        return (sign_of_hang(hang, pace, moments, self._where(), more),)

    def _labels(self) -> str:
        """Return what the user calls the training, as text."""
        labels: dict[str, None] = {}
        for process in (*self.job.launchers, *self.job.ranks.values()):
            labels.update(dict.fromkeys(labels_of(process)))
        return f"labels: {', '.join(labels)}" if labels else ""

    def _hang(self, pace: JobPace, moments: Sequence[Moment]) -> Hang | None:
        """Return what is proven or, after the second limit, likely; a training that works has twice the time."""
        if self._is_blind or not pace.is_heard:  # there may be steps that no log shows: only what they do not refute
            return proven(moments, JobPhase.SAVING, self.job.world_size)
        found, report_s = proven(moments, pace.phase, self.job.world_size), pace.report_limit_s(self.limits)
        looked_s = max(self._look.limits_s)
        if found is not None or looked_s < report_s or (looked_s < 2 * report_s and is_working(moments)):
            return found
        return likely(moments, self.job.world_size)

    def _where(self) -> str:
        """Return the name of this machine and its share of the ranks if the training has others elsewhere."""
        here, all_ranks = len(self.job.ranks), self.job.world_size
        return f"{self.places.machine} ({here} of {all_ranks} ranks)" if all_ranks > here else ""

    def _moment(self, now_s: float) -> Moment:
        """Sample all processes with their stacks."""
        ranks = {rank: one.id for rank, one in self.job.ranks.items()}
        found = self.processes.samples((*ranks.values(), *self.job.loaders))
        loaders: dict[int, tuple[Sample, ...]] = {}
        for one, rank in self.job.loaders.items():
            loaders[rank] = (*loaders.get(rank, ()), found[one])
        return Moment(at_s=now_s, ranks={rank: found[one] for rank, one in ranks.items()}, loaders=loaders)

    def _missed_end(self, run: RunLog, now_s: float) -> tuple[ProcessSign, ...]:
        """Report the end of a job that ended while no agent ran."""
        pace = run.state.pace
        if run.state.tempo.last_at is not None and not pace.job:
            self._search.report_missing()
        if not pace.job or pace.ended or pace.host != self.places.host:
            return ()  # what became of processes of another machine is not known
        return self._end(run, now_s, END_S) if len(self.processes.ended(pace.job)) == len(pace.job) else ()

    def _end(self, run: RunLog, now_s: float, wait_s: float) -> tuple[ProcessSign, ...]:
        """All processes have ended: wait for what they wrote last, then report how they ended."""
        if self._ended_s is None:
            self._ended_s = now_s
        if now_s - self._ended_s < wait_s:
            return ()
        self._ended_s = None
        if self._search.refresh(now_s, run.state.pace.phase, is_forced=True):
            self._followed.clear()
            return ()  # it was started again at once
        ending = self._ending(run)
        self._search.forget()
        sign = sign_of_end(ending)
        run.state.pace.ended = word_of_end(ending, sign)
        if sign is None:
            run.trouble.end_hang()
            return ()
        return (sign,)

    def _ending(self, run: RunLog) -> JobEnd:
        pace, ranks = run.state.pace, [one.id for one in self.job.ranks.values()]
        began_s = min(one.created_s for one in (*pace.job, *ranks))
        return JobEnd(
            last_step=run.steps.reached,
            total_steps=run.steps.total,
            is_complete=run.steps.is_complete,
            trouble=None if run.state.episode is None else run.state.episode.ending,
            memory_kills=self._search.new_kills(),
            exit_code=self.around.exit_code(began_s, self._search.found_s or pace.progress_s or 0.0),
            first_rank=_first(self.job, self.processes.exits(ranks)),
        )


def newest_run(follower: LogFollower, run_id: str) -> RunLog:
    """Return the run, or sub-folder of it, that logged a step last: the processes are of that one."""
    times = {name: run.state.tempo.last_at for name, run in follower.runs.items()}
    for name, state in follower.known.runs.items():
        times.setdefault(name, state.tempo.last_at)
    stepped = {name: at for name, at in times.items() if at is not None}
    return follower.run_of(max(stepped, key=lambda name: stepped[name], default=run_id))


def _first(job: Job, ended_s: Mapping[ProcessId, float]) -> int | None:
    """Return the rank that ended clearly before all others; None: there is none, or not all ranks are known."""
    if job.world_size > len(job.ranks) or len(job.ranks) < 2 or len(ended_s) < len(job.ranks):
        return None
    first, second = sorted(job.ranks, key=lambda rank: ended_s[job.ranks[rank].id])[:2]
    return first if ended_s[job.ranks[second].id] - ended_s[job.ranks[first].id] >= FIRST_S else None
