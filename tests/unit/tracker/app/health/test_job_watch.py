"""Passes over the processes of a training: when it looks, what it reports, and how a training ended."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest

from tests.fakes.clock import FakeClock
from tests.fakes.processes import FakeProcesses
from tracker.app.health.job_watch import CHECK_S, END_S, FIRST_SCANS_S, SCAN_S, JobWatch
from tracker.config.health import load_line_rules
from tracker.domain.health.logs.streams import Stream
from tracker.domain.health.logs.text import RawLine
from tracker.domain.health.processes.jobs import Places
from tracker.domain.health.processes.pace import HangLimits, Phase
from tracker.domain.health.processes.seen import Frame, ProcessId, ProcessState, Sample, SeenProcess
from tracker.domain.health.processes.signs import ProcessSign
from tracker.domain.health.run_log import RunLog
from tracker.domain.health.run_state import RunState, StreamState
from tracker.domain.records.training import TrainingIncident

WAITS = Sample(
    state=ProcessState.SLEEPING,
    moved_bytes=0,
    stack=(Frame(function="all_reduce", file="torch/distributed/distributed_c10d.py"),),
)
SLEEPS = Sample(
    state=ProcessState.SLEEPING, moved_bytes=0, stack=(Frame(function="load", file="/app/data.py", line=5),)
)


@dataclass
class World:
    """A training of two ranks, its watch, and a clock that both use."""

    clock: FakeClock = field(default_factory=FakeClock)
    processes: FakeProcesses = field(default_factory=FakeProcesses)
    log: RunLog = field(default_factory=lambda: RunLog(rules=load_line_rules(), state=RunState(run_id="sft")))
    exit_code: int | None = None
    stream: StreamState = field(default_factory=StreamState)
    lines: int = 0
    saved: int = 0
    signs: list[ProcessSign] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.watch = self.watching()
        self.ranks = [self.start(11, 0), self.start(12, 1)]

    def watching(self) -> JobWatch:
        places = Places(run="sft", folder="/data/sft")
        return JobWatch(
            processes=self.processes,
            places=places,
            limits=HangLimits(),
            clock=self.clock,
            exit_code=lambda _: self.exit_code,
        )

    def start(self, pid: int, rank: int) -> ProcessId:
        return self.processes.start(
            SeenProcess(
                id=ProcessId(pid=pid, created_s=float(pid)),
                parent=1,
                name="python",
                arguments=("python", "train.py", "/data/sft"),
                variables={"RANK": str(rank), "WORLD_SIZE": "2"},
            )
        )

    def print(self, text: str) -> None:
        self.lines += 1
        stream = Stream(name="train.log", read_at=self.clock.now())
        self.log.take(RawLine(number=self.lines, text=text), stream, self.stream)
        self.log.note_lines(stream)

    def run(self, seconds: float, *, meanwhile: Callable[[int], None] = lambda _: None) -> list[ProcessSign]:
        """Let time pass, one pass a second; return what was reported."""
        reported: list[ProcessSign] = []
        for second in range(int(seconds)):
            meanwhile(second)
            for sign in self.watch.signs(self.log, self.saved):
                self.log.take_sign(sign, self.clock.now())
                reported.append(sign)
            self.clock.advance(1.0)
        return reported

    def train(self, steps: int, *, first: int = 1, every_s: int = 8) -> None:
        for step in range(first, first + steps):
            assert self.run(every_s) == []
            self.print(f"step {step}/1000 | loss 2.5")

    def hang(self) -> None:
        self.processes.doing = {self.ranks[0]: WAITS, self.ranks[1]: SLEEPS}

    def end(self, *ranks: int) -> None:
        for rank in ranks:
            self.processes.end(self.ranks[rank], self.clock.now().timestamp() + rank)

    @property
    def incident(self) -> TrainingIncident:
        (found,) = self.log.incidents()
        return found


@pytest.fixture
def world() -> World:
    return World()


def test_a_hang_is_one_incident_with_the_culprit_the_pause_and_the_stacks_and_ends_with_later_steps(
    world: World,
) -> None:
    world.train(10)
    world.hang()
    (sign,) = world.run(70)
    assert sign.ranks == (1,)
    found = world.incident
    assert (found.name, found.ranks, found.cause.step) == ("waiting_for_rank", (1,), 10)
    assert "(usually a step every 8.0 s): rank 1 is not in the collective: sleeping in load (app/data.py:5)" in (
        found.cause.text
    )
    assert "rank 0:\n  all_reduce (distributed/distributed_c10d.py:0)" in found.capture
    assert world.run(1000) == []  # once for each limit at most, and the same is not reported again
    world.processes.doing = {}
    world.train(3, first=11)
    assert world.incident.is_over


def test_a_pause_without_proof_is_looked_at_twice_and_reported_after_the_second_limit(world: World) -> None:
    world.train(10)
    world.processes.doing = {world.ranks[0]: WAITS, world.ranks[1]: replace(SLEEPS, moved_bytes=None)}
    assert world.run(250) == []
    assert world.processes.stacks_taken == 3
    (sign,) = world.run(100)
    assert sign.trouble.name == "hang"
    assert "rank 1 is not in the collective" in sign.text


def test_progress_of_any_kind_ends_a_look(world: World) -> None:
    world.train(10)
    world.hang()

    def prints(second: int) -> None:
        if second % 20 == 0:
            world.print("loading shard")

    def saves(second: int) -> None:
        world.saved = second

    assert world.run(400, meanwhile=prints) == []
    assert world.run(400, meanwhile=saves) == []
    assert world.log.state.pace.phase is Phase.SAVING
    assert world.run(880) == []  # a rank that saves alone is no culprit before the limit of saves
    assert len(world.run(1000)) == 1


def test_a_training_that_never_begins_is_reported_after_half_an_hour(world: World) -> None:
    world.hang()
    assert world.run(1795) == []
    (sign,) = world.run(60)
    assert sign.text.startswith("no progress for 30")


def test_another_watch_knows_the_pace_but_not_what_happened_before(world: World) -> None:
    world.train(10)
    world.clock.advance(5000)
    world.watch = world.watching()
    assert world.run(20) == []
    world.train(1, first=11)
    world.hang()
    assert len(world.run(70)) == 1


@pytest.mark.parametrize(
    ("exit_code", "kills", "last", "printed", "name"),
    [
        (None, 0, 10, "", "gone"),
        (None, 0, 1000, "", None),
        (None, 0, 10, "{'train_runtime': 100.0, 'train_loss': 2.5}", None),
        (None, 0, 10, "KeyboardInterrupt", "cancelled"),
        (0, 0, 10, "", None),
        (143, 0, 10, "", None),
        (3, 0, 10, "", "failed"),
        (-9, 0, 10, "", "failed"),
        (-9, 1, 10, "", "killed_for_memory"),
        (1, 0, 10, "ValueError: bad batch", "python_error"),
        (1, 0, 10, "RuntimeError: Connection closed by peer. This is caused by a remote worker crashing", "rank_died"),
    ],
)
def test_how_a_training_ended_is_told_apart(
    world: World, exit_code: int | None, kills: int, last: int, printed: str, name: str | None
) -> None:
    world.train(10, first=last - 9)
    world.end(1, 0)
    world.exit_code, world.processes.kills = exit_code, kills
    if printed:
        world.print(printed)
    world.run(END_S + 10)
    found = world.log.incidents()
    assert [one.name for one in found] == ([] if name is None else [name])
    if name == "rank_died":
        assert found[0].ranks == (0,)
    assert world.run(SCAN_S * 3) == []


def test_a_dead_rank_for_which_the_other_waits_is_named(world: World) -> None:
    world.train(10)
    world.hang()
    world.end(1)
    (sign,) = world.run(70)
    assert (sign.trouble.name, sign.ranks) == ("dead_rank", (1,))


def test_a_rank_that_starts_late_and_dies_before_the_first_step_is_named(world: World) -> None:
    world.processes.alive.clear()
    launcher = SeenProcess(
        id=ProcessId(pid=10, created_s=10.0), parent=1, name="python", arguments=("python", "launch.py", "/data/sft")
    )
    world.processes.start(launcher)
    world.run(3)
    world.ranks = [world.start(11, 0)]
    world.run(FIRST_SCANS_S)
    world.ranks.append(world.start(12, 1))
    world.run(FIRST_SCANS_S + CHECK_S)
    world.end(1)
    world.clock.advance(3.0)
    world.print("RuntimeError: Connection closed by peer. This is caused by a remote worker crashing")
    world.end(0)
    world.processes.alive.clear()
    world.run(END_S + 10)
    assert (world.incident.name, world.incident.ranks) == ("rank_died", (1,))


def test_a_restart_is_another_job_and_a_machine_without_the_training_is_silent(world: World) -> None:
    world.train(10)
    world.end(0, 1)
    world.run(END_S + 10)
    assert world.incident.name == "gone"
    world.ranks = [world.start(21, 0), world.start(22, 1)]
    world.run(60)
    assert world.log.state.pace.phase is Phase.STARTING
    world.train(3, first=11)
    assert world.incident.is_over
    empty = World()
    empty.end(0, 1)
    assert empty.run(4000) == []
    assert empty.processes.stacks_taken == 0
