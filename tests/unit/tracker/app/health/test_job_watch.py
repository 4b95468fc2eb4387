"""Passes over the processes of a training: when it looks, and what it reports."""

from dataclasses import replace

import pytest

from tests.job_world import SLEEPS, WAITS, World
from tracker.domain.health.logs.streams import Stream
from tracker.domain.health.logs.text import RawLine
from tracker.domain.health.processes.pace import JobPhase
from tracker.domain.health.processes.seen import ProcessState, Sample, StackFrame
from tracker.domain.health.run_state import StreamState


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
    assert (world.processes.stacks_taken, world.state) == (3, "stale")
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
    assert (sign.trouble.name, world.state) == ("stopped", "stopped")


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


def test_a_dead_rank_for_which_the_other_waits_is_named(world: World) -> None:
    world.train(10)
    world.hang()
    world.end(1)
    (sign,) = world.run(70)
    assert (sign.trouble.name, sign.ranks) == ("dead_rank", (1,))


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
