"""Passes over the processes of a training: when it looks, what it reports, and how a training ended."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest

from tests.fakes.clock import FakeClock
from tests.fakes.processes import FakeProcesses
from tracker.app.health.job_watch import CHECK_S, END_S, FIRST_SCANS_S, SCAN_S, JobWatch, Surroundings
from tracker.config.health import load_line_rules
from tracker.domain.health.failures import failures_of
from tracker.domain.health.logs.streams import Stream
from tracker.domain.health.logs.text import RawLine
from tracker.domain.health.processes.jobs import Places
from tracker.domain.health.processes.pace import HangLimits, JobPhase
from tracker.domain.health.processes.seen import ProcessId, ProcessState, Sample, SeenProcess, StackFrame
from tracker.domain.health.processes.signs import ProcessSign
from tracker.domain.health.run_log import RunLog
from tracker.domain.health.run_state import RunState, StreamState
from tracker.domain.health.stored import progress_of
from tracker.domain.records.training import IncidentEnd, TrainingIncident

WAITS = Sample(
    state=ProcessState.SLEEPING,
    moved_bytes=0,
    stack=(StackFrame(function="all_reduce", file="torch/distributed/distributed_c10d.py"),),
)
SLEEPS = Sample(
    state=ProcessState.SLEEPING, moved_bytes=0, stack=(StackFrame(function="load", file="/app/data.py", line=5),)
)


@dataclass
class World:
    """A training of two ranks, its watch, and a clock that both use."""

    clock: FakeClock = field(default_factory=FakeClock)
    processes: FakeProcesses = field(default_factory=FakeProcesses)
    log: RunLog = field(default_factory=lambda: RunLog(rules=load_line_rules(), state=RunState(run_id="sft")))
    exit_code: int | None = None
    world_size: int = 2
    stream: StreamState = field(default_factory=StreamState)
    lines: int = 0
    saved: int = 0
    signs: list[ProcessSign] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.watch = self.watching()
        self.ranks = [self.start(11, 0), self.start(12, 1)]

    def watching(self) -> JobWatch:
        places = Places(run="sft", folder="/data/sft", machine="node3")
        return JobWatch(
            processes=self.processes,
            places=places,
            limits=HangLimits(),
            clock=self.clock,
            around=Surroundings(exit_code=lambda _began_s, _seen_s: self.exit_code, gpu_table=lambda: "GPU 0 busy"),
        )

    def start(self, pid: int, rank: int) -> ProcessId:
        return self.processes.start(
            SeenProcess(
                id=ProcessId(pid=pid, created_s=float(pid)),
                parent=1,
                name="python",
                arguments=("python", "train.py", "/data/sft"),
                variables={"RANK": str(rank), "WORLD_SIZE": str(self.world_size)},
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
    def state(self) -> str:
        return progress_of("sft", self.log.state, self.clock.now(), 0).state

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
    assert found.cause.text == (
        "rank 1 is not in the collective: sleeping in load (app/data.py:5); rank 0 waits in all_reduce; "
        "no progress for 45.0 s (it usually logs steps every 8.0 s)"
    )
    assert "rank 0:\n  all_reduce (distributed/distributed_c10d.py:0)" in found.capture
    assert found.capture.endswith("\n\nGPU 0 busy")
    assert found.context[-1] == "step 10/1000 | loss 2.5"
    assert world.state == "hung"
    assert world.run(1000) == []  # once for each limit at most, and the same is not reported again
    world.processes.doing = {}
    world.train(3, first=11)
    assert (world.incident.is_over, world.state) == (True, "training")


def test_a_hang_of_a_training_on_several_machines_names_this_one_and_its_share_of_the_ranks() -> None:
    world = World(world_size=64)
    world.train(10)
    world.hang()
    (sign,) = world.run(70)
    assert sign.text.startswith("on node3 (2 of 64 ranks): rank 1 is not in the collective: sleeping in load")


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
    assert world.log.state.pace.phase is JobPhase.SAVING
    assert world.run(880) == []  # a rank that saves alone is no culprit before the limit of saves
    assert len(world.run(1000)) == 1


def test_a_training_that_logs_nowhere_is_judged_only_by_what_is_proven(world: World) -> None:
    world.hang()
    assert world.run(8000) == []
    stopped = Sample(state=ProcessState.STOPPED, moved_bytes=0)
    world.processes.doing = {world.ranks[0]: WAITS, world.ranks[1]: stopped}
    world.log.state.pace.progress_s = world.clock.now().timestamp()
    (sign,) = world.run(2000)
    assert sign.trouble.name == "stopped"


def test_a_training_that_never_begins_is_reported_after_half_an_hour(world: World) -> None:
    world.run(1)
    world.print("loading the model")
    world.hang()
    assert world.run(1795) == []
    (sign,) = world.run(60)
    assert "no progress for 30" in sign.text


def test_another_watch_knows_the_pace_but_not_what_happened_before(world: World) -> None:
    world.train(10)
    world.clock.advance(5000)
    world.watch = world.watching()
    assert world.run(20) == []
    world.train(1, first=11)
    world.hang()
    assert len(world.run(70)) == 1


@pytest.mark.parametrize(
    ("exit_code", "kills", "last", "printed", "expected"),
    [
        (None, 0, 10, "", ("gone", "gone")),
        (None, 0, 1000, "", (None, "finished")),
        (None, 0, 10, "{'train_runtime': 100.0, 'train_loss': 2.5}", (None, "finished")),
        (None, 0, 10, "KeyboardInterrupt", ("cancelled", "cancelled")),
        (0, 0, 10, "", (None, "finished")),
        (143, 0, 10, "", (None, "cancelled")),
        (3, 0, 10, "", ("failed", "failed")),
        (-9, 0, 10, "", ("failed", "failed")),
        (-9, 1, 10, "", ("killed_for_memory", "killed for memory")),
        (0, 1, 10, "", (None, "finished")),
        (1, 0, 10, "ValueError: bad batch", ("python_error", "failed")),
        (1, 0, 10, "RuntimeError: this is caused by a remote worker crashing", ("rank_died", "rank died")),
        (1, 0, 10, "failed (exitcode: -9) local_rank: 0 (pid: 11) of binary: python", ("rank_died", "rank died")),
    ],
)
def test_the_ends_of_a_training_are_distinguished(
    world: World, exit_code: int | None, kills: int, last: int, printed: str, expected: tuple[str | None, str]
) -> None:
    name, word = expected
    world.train(10, first=last - 9)
    world.end(1, 0)
    world.exit_code, world.processes.kills = exit_code, kills
    if printed:
        world.print(printed)
    world.run(END_S + 10)
    found = world.log.incidents()
    assert [one.name for one in found] == ([] if name is None else [name])
    assert world.state == word
    if name == "rank_died":
        how = "was killed (SIGKILL)" if "-9" in printed else "ended before the others"
        assert found[0].cause.text == f"rank 0 {how}, and no log says why"
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
    assert world.log.state.pace.phase is JobPhase.STARTING
    world.train(3, first=11)
    assert world.incident.is_over
    empty = World()
    empty.end(0, 1)
    assert empty.run(4000) == []
    assert empty.processes.stacks_taken == 0


def test_what_fails_after_the_restart_of_a_stopped_training_is_another_incident(world: World) -> None:
    world.train(10)
    world.print("KeyboardInterrupt")
    world.end(0, 1)
    world.run(END_S + 10)
    world.ranks = [world.start(21, 0), world.start(22, 1)]
    world.run(10)
    world.print("ValueError: bad batch")
    assert [one.name for one in world.log.incidents()] == ["cancelled", "python_error"]


def test_a_hang_remains_the_cause_when_a_user_ends_it_and_counts_as_a_failure(world: World) -> None:
    world.train(10)
    world.hang()
    world.run(70)
    world.print("torch.distributed.elastic.multiprocessing.api.SignalException: Process 11 got signal: 15")
    world.end(0, 1)
    world.run(END_S + 10)
    assert (world.incident.name, world.state) == ("waiting_for_rank", "cancelled")
    assert (world.incident.is_over, failures_of([world.incident], [4]).lost_steps) == (True, 6)


def test_another_process_knows_the_job_by_any_of_its_ranks_and_reports_an_end_it_missed(world: World) -> None:
    world.end(1)  # when the first watch begins, only rank 0 was started
    world.train(10)
    world.ranks[1] = world.start(12, 1)
    world.watch = world.watching()
    world.run(5)
    assert world.log.state.pace.phase is JobPhase.TRAINING
    world.end(0, 1)
    world.watch = world.watching()
    world.run(END_S + 10)
    assert (world.incident.name, world.state) == ("gone", "gone")
    world.watch = world.watching()
    assert world.run(60) == []


def test_a_machine_that_slept_and_logs_that_cannot_be_read_are_no_hang(world: World) -> None:
    world.train(10)
    world.hang()
    world.run(5)
    world.clock.advance(3600)
    assert world.run(15) == []
    assert len(world.run(60)) == 1  # it hangs indeed
    blind = World()
    blind.train(10)
    blind.hang()
    blind.watch._is_blind = True
    assert blind.run(2000) == []


def test_after_its_last_step_a_training_may_take_its_time_and_a_hang_is_over_when_all_ended(world: World) -> None:
    world.train(10, first=991)
    world.hang()
    assert world.run(4000) == []
    world = World()
    world.train(10)
    world.hang()
    assert len(world.run(70)) == 1
    world.exit_code = 143
    world.end(0, 1)
    world.run(END_S + 10)
    assert (world.incident.ended_by, world.state) == (IncidentEnd.ENDED, "cancelled")


def test_ranks_that_a_launcher_starts_again_have_not_ended(world: World) -> None:
    launcher = SeenProcess(
        id=ProcessId(pid=9, created_s=9.0), parent=1, name="torchrun", arguments=("torchrun", "train.py", "/data/sft")
    )
    world.processes.start(launcher)
    world.train(10)
    world.run(SCAN_S)
    world.end(0, 1)
    assert world.run(25) == []
    world.ranks = [world.start(21, 0), world.start(22, 1)]
    assert world.run(60) == []
    assert world.log.incidents() == ()


def test_a_program_that_only_started_the_ranks_is_no_training_when_it_remains_alone(world: World) -> None:
    world.processes.start(
        SeenProcess(
            id=ProcessId(pid=9, created_s=9.0), parent=1, name="python", arguments=("python", "run.py", "/data/sft")
        )
    )
    world.train(10)
    world.end(0, 1)
    (sign,) = world.run(60)
    assert sign.trouble.name == "gone"
    assert world.run(4000) == []


def test_a_training_that_computes_and_logs_rarely_has_twice_the_time(world: World) -> None:
    world.train(10)

    def computes(second: int) -> None:
        frame = StackFrame(function=f"layer_{second % 7}", file="/app/model.py")
        busy = Sample(state=ProcessState.RUNNING, cpu_s=second * 0.9, moved_bytes=0, stack=(frame,))
        world.processes.doing = dict.fromkeys(world.ranks, busy)

    assert world.run(590, meanwhile=computes) == []
    (sign,) = world.run(60, meanwhile=lambda second: computes(second + 590))
    assert sign.text.startswith("no cause was found; rank 0 is in layer_")


def test_what_was_in_a_log_before_does_not_hide_what_happens_now(world: World) -> None:
    old = Stream(name="old.log", read_at=world.clock.now(), is_history=True)
    world.log.take(RawLine(number=1, text="torch.OutOfMemoryError: CUDA out of memory"), old, StreamState())
    world.train(10)
    world.hang()
    assert len(world.run(70)) == 1
    assert [(one.name, one.is_alert, one.is_over) for one in world.log.incidents()] == [
        ("oom", False, True),
        ("waiting_for_rank", True, False),
    ]
