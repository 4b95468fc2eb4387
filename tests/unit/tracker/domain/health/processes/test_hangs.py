"""Which rank holds up a training: on recordings of real jobs, and on made-up ones of sixty-four ranks."""

from dataclasses import replace

import pytest

from tests.recorded_jobs import moments
from tracker.domain.health.processes.hangs import Hang, HangName, likely, proven
from tracker.domain.health.processes.pace import JobPhase
from tracker.domain.health.processes.ranks import Moment
from tracker.domain.health.processes.seen import ProcessState, Sample, StackFrame
from tracker.domain.health.processes.signs import MAX_CHARS, capture_of

WAITING = (
    StackFrame(function="all_reduce", file="torch/distributed/distributed_c10d.py"),
    StackFrame(function="step", file="/app/train.py", line=7),
)
ELSEWHERE = (
    StackFrame(function="sync", file="/venv/lib/python3.11/site-packages/fsspec/asyn.py", line=99),
    StackFrame(function="batch", file="/app/train.py", line=3),
)


def many(culprit: Sample, *, ranks: int = 64, other: Sample | None = None) -> list[Moment]:
    """Three samples: the last rank is the culprit, and all others wait as NCCL does, at full speed."""
    found = []
    for second in (0, 10, 20):
        waits = Sample(state=ProcessState.RUNNING, cpu_s=second * 1.0, moved_bytes=0, stack=WAITING)
        samples = dict.fromkeys(range(ranks - 1), other or waits)
        found.append(Moment(at_s=second, ranks={**samples, ranks - 1: culprit}))
    return found


@pytest.mark.parametrize(
    ("case", "name", "ranks", "says"),
    [
        (
            "sleep",
            HangName.WAITING,
            (1,),
            "rank 1 is not in the collective: sleeping in sleep_for_ever (hung_jobs/job.py:",
        ),
        ("lock", HangName.WAITING, (1,), "sleeping in wait_for_a_lock (hung_jobs/job.py:"),
        ("fifo", HangName.WAITING, (1,), "sleeping in python3.11/pathlib.py:Path.open (hung_jobs/job.py:"),
        ("torchrun_sleep", HangName.WAITING, (1,), "; rank 0 waits in all_reduce"),
        ("stop", HangName.STOPPED, (1,), "rank 1 is stopped by a signal; rank 0 waits in all_reduce"),
        ("loader_stop", HangName.LOADER, (1,), "a data loader worker of rank 1 is stopped by a signal"),
        ("collectives", HangName.MISMATCH, (), "rank 0 in all_reduce; rank 1 in barrier"),
    ],
)
def test_a_look_at_a_real_job_proves_which_rank_it_is(
    case: str, name: HangName, ranks: tuple[int, ...], says: str
) -> None:
    found = proven(moments(case), JobPhase.TRAINING, 2)
    assert found is not None
    assert (found.name, found.ranks) == (name, ranks)
    assert says in found.text
    assert found.hint


@pytest.mark.parametrize("case", ["healthy", "torchrun_healthy", "spin", "loader", "torchrun_loader", "zombie"])
def test_what_a_healthy_training_may_do_as_well_is_not_proven(case: str) -> None:
    assert proven(moments(case), JobPhase.TRAINING, 2) is None


@pytest.mark.parametrize("phase", [JobPhase.SAVING, JobPhase.EVALUATING, JobPhase.STARTING])
def test_one_rank_may_sleep_while_the_others_wait_for_its_save_or_evaluation(phase: JobPhase) -> None:
    assert proven(moments("sleep"), phase, 2) is None
    stopped = proven(moments("stop"), phase, 2)
    assert stopped is not None
    assert stopped.name is HangName.STOPPED


@pytest.mark.parametrize(
    ("case", "name", "says"),
    [
        ("spin", HangName.SPINNING, "rank 1 is not in the collective: computing in spin (hung_jobs/job.py:"),
        ("loader", HangName.LOADER, "rank 1 waits for its data loader, a worker of which is in sleep_for_ever ("),
    ],
)
def test_a_training_that_is_quiet_for_too_long_has_a_likely_cause(case: str, name: HangName, says: str) -> None:
    found = likely(moments(case), world_size=2)
    assert (found.name, found.ranks, found.is_proven) == (name, (1,), False)
    assert says in found.text


def test_a_rank_in_a_dead_file_system_is_found_among_many_that_spin_in_a_collective() -> None:
    """As in a real hang of 64 GPUs, where py-spy could not read the rank in state D."""
    culprit = Sample(state=ProcessState.BLOCKED, moved_bytes=5, waits_in="nfs_wait_bit_killable")
    found = proven(many(culprit), JobPhase.SAVING, 64)
    assert found is not None
    assert (found.name, found.ranks, found.is_proven) == (HangName.BLOCKED, (63,), True)
    assert found.text == (
        "rank 63 is blocked on a file system or device (nfs_wait_bit_killable); 63 ranks wait in all_reduce"
    )


def test_a_process_that_moves_bytes_or_computes_is_not_convicted() -> None:
    asleep = Sample(state=ProcessState.SLEEPING, moved_bytes=0, stack=ELSEWHERE)
    found = proven(many(asleep), JobPhase.TRAINING, 64)
    assert found is not None
    assert found.ranks == (63,)
    samples = many(asleep)
    moving = [replace(m, ranks={**m.ranks, 63: replace(asleep, moved_bytes=int(m.at_s))}) for m in samples]
    busy = [replace(m, ranks={**m.ranks, 63: replace(asleep, cpu_s=m.at_s * 0.02)}) for m in samples]
    unknown = [replace(m, ranks={**m.ranks, 63: replace(asleep, moved_bytes=None)}) for m in samples]
    other = (*ELSEWHERE[1:], *ELSEWHERE[:1])
    on_its_way = [
        replace(m, ranks={**m.ranks, 63: replace(asleep, stack=other if m.at_s else ELSEWHERE)}) for m in samples
    ]
    for case in (moving, busy, unknown, on_its_way):
        assert proven(case, JobPhase.TRAINING, 64) is None


def test_ranks_that_nobody_waits_for_are_not_convicted() -> None:
    asleep = Sample(state=ProcessState.SLEEPING, moved_bytes=0, stack=ELSEWHERE)
    assert proven(many(asleep, ranks=1), JobPhase.TRAINING, 64) is None
    assert proven(many(asleep, other=asleep), JobPhase.TRAINING, 64) is None


def test_a_dead_rank_is_one_for_which_others_still_wait() -> None:
    for state, how in ((ProcessState.GONE, "its process is gone"), (ProcessState.ZOMBIE, "its parent did not notice")):
        found = proven(many(Sample(state=state)), JobPhase.TRAINING, 64)
        assert found is not None
        assert (found.name, found.ranks) == (HangName.DEAD, (63,))
        assert how in found.text
    alone = Sample(state=ProcessState.SLEEPING, moved_bytes=0, stack=ELSEWHERE)
    assert proven(many(Sample(state=ProcessState.GONE), other=alone), JobPhase.TRAINING, 64) is None


def test_different_operations_are_proven_only_of_all_ranks_in_training_and_where_all_must_call_the_same() -> None:
    assert proven(moments("collectives"), JobPhase.SAVING, 2) is None
    assert proven(moments("collectives"), JobPhase.TRAINING, 64) is None
    ends = []
    for name in ("send", "recv"):
        ends.append(Sample(state=ProcessState.SLEEPING, moved_bytes=0, stack=(replace(WAITING[0], function=name),)))
    assert proven(many(ends[0], ranks=2, other=ends[1]), JobPhase.TRAINING, 2) is None


def test_a_rank_that_cannot_be_examined_is_named_after_the_second_limit() -> None:
    """As a rank of another user, or one in state D from which nothing can be read."""
    blocked = many(Sample(state=ProcessState.BLOCKED, waits_in="nfs_wait", no_stack="py-spy took longer than 5 s"))
    assert proven(blocked, JobPhase.TRAINING, 64) is None
    found = likely(blocked, 64)
    assert (found.name, found.ranks) == (HangName.BLOCKED, (63,))
    found = likely(many(Sample(state=ProcessState.SLEEPING, no_stack="Permission denied")), 64)
    assert (found.name, found.ranks) == (HangName.UNKNOWN, (63,))
    assert found.text == ("rank 63 could not be examined (sleeping): Permission denied; 63 ranks wait in all_reduce")
    elsewhere = likely(many(Sample(state=ProcessState.SLEEPING)), 128)
    assert elsewhere.ranks == ()


def unknown(found: Hang) -> str:
    assert found.name is HangName.UNKNOWN
    return f"{found.text}; {found.hint}"


def test_without_proof_it_says_what_is_known() -> None:
    blind = Sample(state=ProcessState.SLEEPING, moved_bytes=0)
    denied = replace(blind, no_stack="py-spy may not trace processes")
    assert "no stack could be read; " in unknown(likely(many(blind, other=blind), 64))
    assert "could be read: py-spy may not trace processes; " in unknown(likely(many(denied, other=denied), 64))
    assert "checkpoint-tracker[stacks]" in unknown(likely(many(blind, other=blind), 64))
    waits = Sample(state=ProcessState.SLEEPING, moved_bytes=0, stack=WAITING)
    assert "ranks of the other machines" in unknown(likely(many(waits), 128))
    item = Sample(state=ProcessState.RUNNING, moved_bytes=0, stack=ELSEWHERE[1:])
    odd = likely(many(replace(item, stack=ELSEWHERE), other=item), 64)
    assert (odd.ranks, unknown(odd)[:48]) == ((63,), "rank 63 is in fsspec/asyn.py:sync (app/train.py:")


def test_the_capture_has_each_stack_once_and_is_bounded() -> None:
    asleep = Sample(state=ProcessState.SLEEPING, moved_bytes=0, stack=ELSEWHERE, waits_in="futex_do_wait")
    text = capture_of(many(asleep))
    assert text.count("all_reduce (distributed/distributed_c10d.py:0)") == 1
    assert "rank 61, rank 62:" in text
    assert "63    sleeping" in text
    assert "futex_do_wait" in text
    deep = replace(asleep, stack=tuple(StackFrame(function="f" * 300, file="g" * 300, line=i) for i in range(500)))
    assert len(capture_of(many(deep, ranks=2_000))) <= MAX_CHARS
    assert "a data loader worker" not in text
    assert "data loader worker 0 of rank 1" in capture_of(moments("loader"))
