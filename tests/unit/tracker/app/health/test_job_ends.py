"""How a training ended, and which job of a run its processes are."""

import pytest

from tests.fakes.health import FakeHealth
from tests.fakes.training_log import FakeTrainingLog
from tests.job_world import World
from tracker.app.health.follow import LogFollower, Reading
from tracker.app.health.job_search import FIRST_SCANS, FIRST_SCANS_S, OUTLIVED_S, SCAN_S
from tracker.app.health.job_watch import CHECK_S, END_S, REPORTED_S
from tracker.domain.health.failures import failures_of
from tracker.domain.health.logs.streams import Stream
from tracker.domain.health.logs.text import RawLine
from tracker.domain.health.processes.pace import JobPhase
from tracker.domain.health.processes.seen import ProcessId, SeenProcess
from tracker.domain.health.run_state import StreamState
from tracker.domain.records.training import IncidentEnd
from tracker.wiring.agent import SAVE_S


@pytest.fixture
def world() -> World:
    return World()


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
        (143, 1, 10, "", ("killed_for_memory", "killed for memory")),  # systemd ends the others of its scope
        (130, 1, 10, "KeyboardInterrupt", ("cancelled", "cancelled")),
        (1, 1, 10, "ValueError: bad batch", ("python_error", "failed")),
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


@pytest.mark.parametrize("offset_s", range(int(CHECK_S)))
def test_a_watcher_that_waits_for_the_end_learns_how_the_training_ended(world: World, offset_s: int) -> None:
    world.train(10)
    world.run(offset_s)
    world.end(1, 0)
    world.run(REPORTED_S - SAVE_S)
    assert world.state == "gone"


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


def test_a_process_that_was_killed_for_memory_beside_a_training_that_lives_on_did_not_end_it(world: World) -> None:
    world.train(10)
    world.processes.kills = 1  # an engine in the same container
    world.train(10, first=11)
    assert OUTLIVED_S < 80
    world.exit_code = 3
    world.end(0, 1)
    world.run(END_S + 10)
    assert (world.incident.name, world.state) == ("failed", "failed")


def test_a_watch_on_another_machine_does_not_report_processes_that_it_cannot_see(world: World) -> None:
    world.train(10)
    world.processes.alive.clear()
    world.watch = world.watching(host="another boot")
    for step in (11, 12):
        assert world.run(60) == []
        world.print(f"step {step}/1000 | loss 2.5")
    assert (world.log.incidents(), world.state) == ((), "training")


def test_processes_are_of_the_run_that_logs_and_the_one_before_is_no_longer_trained(world: World) -> None:
    health, log = FakeHealth(), FakeTrainingLog({}, world.clock, {}, run="sft", is_first=True)
    agent = LogFollower(log=log, store=health, reading=Reading(rules=()), clock=world.clock, known=health.read_so_far())

    def watched(run_id: str) -> dict[str, str]:
        stream = Stream(name="train.log", read_at=world.clock.now())
        run = agent.run_of(run_id)
        for step in (1, 2):
            run.take(RawLine(number=step, text=f"step {step} | loss 2.5"), stream, StreamState())
        world.clock.advance(FIRST_SCANS_S)
        world.watch.look(agent)
        return {name: one.state.pace.state for name, one in agent.runs.items()}

    world.watch.look(agent)
    assert agent.run_of("sft").state.pace.state == "starting"
    assert watched("v0") == {"sft": "", "v0": "starting"}
    world.end(0, 1)
    world.start(21, 0)
    world.clock.advance(SCAN_S)
    assert watched("v1") == {"sft": "", "v0": "ended", "v1": "starting"}


def test_a_machine_without_a_training_is_searched_less_often_after_some_minutes(world: World) -> None:
    ranks = [world.processes.alive.pop(one) for one in world.ranks]
    world.run(3600)
    assert world.processes.searches < 3600 / SCAN_S + 2 * FIRST_SCANS
    for one in ranks:
        world.processes.start(one)
    world.run(SCAN_S + 1)
    assert world.state == "starting"
    world.end(0, 1)
    world.run(END_S + CHECK_S + 1)
    before = world.processes.searches
    world.run(60)
    assert world.processes.searches - before >= 60 / FIRST_SCANS_S - 1  # it may be started again


def test_a_training_whose_log_ends_with_a_crash_has_failed_before_its_processes_end(world: World) -> None:
    world.train(6)
    assert world.state == "training"
    world.print("ValueError: caught, perhaps")
    assert world.state == "training"
    world.print("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB")
    assert world.state == "failed"
    for step in (7, 8, 9):
        world.print(f"step {step}/1000 | loss 2.5")
    assert world.state == "training"
