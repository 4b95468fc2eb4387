"""From three samples of all processes of a training to the rank that holds up the others. Pure.

`proven` returns what is certain, and may be reported at once. `likely` returns the best explanation of a training that
has been quiet for too long.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from tracker.domain.health.processes.collectives import (
    is_idle_worker,
    stack_key,
    stack_place,
    waits_for_data,
    waits_for_others,
)
from tracker.domain.health.processes.pace import JobPhase
from tracker.domain.health.processes.ranks import Moment, SampledRank, has_moved, ranks_of
from tracker.domain.health.processes.seen import ProcessState, Sample

IDLE_SHARE = 0.01
"""Share of one core below which a process is idle."""
BUSY_SHARE = 0.1
"""Share of one core above which a process computes, low enough for a busy machine."""
MAX_NAMED = 3
_NOT_COMMON = frozenset(("", "backward", "send", "recv"))
"""Operations that ranks do not have to call together."""


class HangName(StrEnum):
    """Classes of trouble that processes show."""

    WAITING = "waiting_for_rank"
    STOPPED = "stopped"
    DEAD = "dead_rank"
    BLOCKED = "blocked_on_disk"
    SPINNING = "spinning"
    LOADER = "data_loader"
    MISMATCH = "mismatched_collectives"
    UNKNOWN = "hang"


@dataclass(frozen=True, kw_only=True)
class Hang:
    """Why a training makes no progress."""

    name: HangName
    ranks: tuple[int, ...] = ()
    """Ranks that hold up the others; (): unknown."""
    text: str
    """`rank 1 is not in the collective: sleeping in train.py:step; 63 ranks wait in all_reduce`."""
    hint: str
    is_proven: bool = True
    """Whether the samples prove it; otherwise it is the best explanation."""


def proven(moments: Sequence[Moment], phase: JobPhase, world_size: int) -> Hang | None:
    """Return what the samples of one look prove; None: nothing, and the training may be healthy.

    `world_size`: number of ranks on all machines.
    """
    ranks = ranks_of(moments)
    found = _dead(ranks) or _stopped(ranks) or _blocked(ranks)
    if found is None and phase is JobPhase.TRAINING:
        found = _mismatch(ranks) if len(ranks) == world_size else None
        found = found or _outside(ranks)
    return found


def likely(moments: Sequence[Moment], world_size: int) -> Hang:
    """Return what explains best that a training is quiet for too long."""
    ranks = ranks_of(moments)
    certain = proven(moments, JobPhase.TRAINING, world_size)
    if certain is not None:
        return certain
    found = _all_stopped(ranks) or _unread_block(ranks)
    # Where ranks are elsewhere, the one that holds up all may be, too.
    is_whole = len(ranks) == world_size
    for test in (_spinning, _loading, _elsewhere, _unread, _odd_one) if is_whole else (_loading,):
        found = found or test(ranks)
    if found is None:
        return _unexplained(ranks, world_size)
    return replace(found, is_proven=found.name is HangName.UNKNOWN)


def _unexplained(ranks: Sequence[SampledRank], world_size: int) -> Hang:
    if all(one.newest.stack is None for one in ranks):
        text = ": ".join(("no stack could be read", *_reasons(ranks)[:1]))
        hint = "install checkpoint-tracker[stacks] and allow py-spy to trace processes: see `tracker doctor`"
        return Hang(name=HangName.UNKNOWN, text=text, hint=hint)
    waiting = [one for one in ranks if one.collective]
    if len(waiting) == len(ranks) < world_size:
        text = f"all ranks of this machine wait in {waiting[0].collective}"
        return Hang(name=HangName.UNKNOWN, text=text, hint="look at the ranks of the other machines")
    places = "; ".join(f"rank {one.rank} is in {stack_place(one.stack)}" for one in ranks[:MAX_NAMED] if one.stack)
    text = f"no cause was found; {places}"
    return Hang(name=HangName.UNKNOWN, text=text, hint="check whether the training still does what it should")


def is_working(moments: Sequence[Moment]) -> bool:
    """Return whether all ranks compute at changing places: a training that logs rarely, and no hang."""
    return all(one.cpu_share >= BUSY_SHARE and not one.is_still for one in ranks_of(moments))


def _dead(ranks: Sequence[SampledRank]) -> Hang | None:
    dead = [one for one in ranks if one.newest.state in (ProcessState.GONE, ProcessState.ZOMBIE)]
    if not dead or not any(one.collective for one in ranks):
        return None  # ranks end one after the other, and the first one may save for long
    how = (
        "its process is gone"
        if dead[0].newest.state is ProcessState.GONE
        else "it ended, and its parent did not notice"
    )
    text = f"{_named(dead)} dead: {how}; {_others(ranks, dead)}"
    return Hang(
        name=HangName.DEAD, ranks=_numbers(dead), text=text, hint="see the log of that rank, and restart the job"
    )


def _stopped(ranks: Sequence[SampledRank]) -> Hang | None:
    stopped = [one for one in ranks if one.always(ProcessState.STOPPED)]
    if len(stopped) == len(ranks) > 1:
        return None  # a scheduler suspends whole jobs
    if stopped:
        hint = "continue it with `kill -CONT`, or detach the debugger"
        text = f"{_named(stopped)} stopped by a signal; {_others(ranks, stopped)}"
        return Hang(name=HangName.STOPPED, ranks=_numbers(stopped), text=text, hint=hint)
    for one in ranks:
        if any(all(sample.state is ProcessState.STOPPED for sample in worker) for worker in one.loaders):
            text = f"a data loader worker of rank {one.rank} is stopped by a signal; {_others(ranks, [one])}"
            return Hang(name=HangName.LOADER, ranks=(one.rank,), text=text, hint="continue it with `kill -CONT`")
    return None


def _all_stopped(ranks: Sequence[SampledRank]) -> Hang | None:
    if not all(one.always(ProcessState.STOPPED) for one in ranks):
        return None
    hint = "a scheduler may have suspended the job: ask it, before you continue the processes with `kill -CONT`"
    return Hang(name=HangName.STOPPED, text="all ranks are stopped by a signal", hint=hint)


def _blocked(ranks: Sequence[SampledRank]) -> Hang | None:
    blocked = []
    for one in ranks:
        is_worker = any(_is_blocked(worker) for worker in one.loaders) and waits_for_data(one.stack)
        if is_worker or _is_blocked(one.samples):
            blocked.append(one)
    return _block_of(blocked, ranks) if blocked else None


def _unread_block(ranks: Sequence[SampledRank]) -> Hang | None:
    """Return the ranks that seem blocked: whether they read and wrote is not known."""
    blocked = [one for one in ranks if one.always(ProcessState.BLOCKED) and one.newest.moved_bytes is None]
    return _block_of(blocked, ranks) if 0 < len(blocked) <= max(len(ranks) / 2, 1) else None


def _block_of(blocked: Sequence[SampledRank], ranks: Sequence[SampledRank]) -> Hang:
    text = f"{_named(blocked)} blocked on a file system or device{_place_of_block(blocked[0])}"
    hint = "look at the file server, the mounts and the kernel's messages"
    return Hang(name=HangName.BLOCKED, ranks=_numbers(blocked), text=f"{text}; {_others(ranks, blocked)}", hint=hint)


def _unread(ranks: Sequence[SampledRank]) -> Hang | None:
    """Return the ranks without a stack for which all others wait."""
    unread = [one for one in ranks if one.newest.stack is None]
    others = [one for one in ranks if one not in unread]
    if not unread or len(unread) > len(others) or not all(one.collective for one in others):
        return None
    newest = unread[0].newest
    state = " in ".join(filter(None, (newest.state, newest.waits_in)))
    what = f"{_named(unread, verb='')} could not be examined ({state})"
    text = f"{': '.join((what, *_reasons(unread)[:1]))}; {_others(ranks, unread)}"
    hint = "allow py-spy to trace processes: see `tracker doctor`"
    return Hang(name=HangName.UNKNOWN, ranks=_numbers(unread), text=text, hint=hint)


def _reasons(ranks: Sequence[SampledRank]) -> list[str]:
    """Return why stacks could not be read."""
    reasons = []
    for one in ranks:
        if one.newest.no_stack:
            reasons.append(one.newest.no_stack)
    return reasons


def _place_of_block(one: SampledRank) -> str:
    """Return ` (nfs_wait_bit_killable) in torch/serialization.py:save (train.py:9)`, as far as it is known."""
    kernel, place = one.newest.waits_in, stack_place(one.stack)
    return (f" ({kernel})" if kernel else "") + (f" in {place}" if place else "")


def _is_blocked(samples: Sequence[Sample]) -> bool:
    is_blocked = all(sample.state is ProcessState.BLOCKED for sample in samples)
    return is_blocked and not has_moved(samples) and len(samples) > 1


def _mismatch(ranks: Sequence[SampledRank]) -> Hang | None:
    """Return that all ranks wait, in different operations: none of them can end."""
    for one in ranks:
        if not one.is_still or one.collective in _NOT_COMMON:
            return None
    names = {one.collective for one in ranks}
    if len(names) < 2:
        return None
    groups = []
    for name in sorted(names):
        groups.append(f"{_named([one for one in ranks if one.collective == name], verb='')} in {name}")
    text = f"ranks wait in different operations: {'; '.join(groups)}"
    first = next(one for one in ranks if one.collective == sorted(names)[0])
    hint = f"all ranks must call the same operations in the same order: see {stack_place(first.stack)}"
    return Hang(name=HangName.MISMATCH, ranks=(), text=text, hint=hint)


def _outside(ranks: Sequence[SampledRank]) -> Hang | None:
    """Return the ranks that sleep outside of the operation in which the others wait."""
    outside = []
    for one in ranks:
        is_asleep = one.is_still and not one.has_moved and one.cpu_share < IDLE_SHARE
        is_waiting = waits_for_data(one.stack) or waits_for_others(one.stack)
        if is_asleep and not one.collective and not is_waiting:
            outside.append(one)
    return _held_up(ranks, outside, HangName.WAITING, "sleeping")


def _spinning(ranks: Sequence[SampledRank]) -> Hang | None:
    busy = [one for one in ranks if not one.collective and one.cpu_share >= BUSY_SHARE and one.newest.stack is not None]
    return _held_up(ranks, busy, HangName.SPINNING, "computing")


def _loading(ranks: Sequence[SampledRank]) -> Hang | None:
    for one in ranks:
        if not waits_for_data(one.stack):
            continue
        text = f"rank {one.rank} waits for its data loader"
        for worker in one.loaders:
            stack = worker[-1].stack or ()
            if stack and not is_idle_worker(stack):
                text += f", a worker of which is in {stack_place(stack)}"
                break
        text = f"{text}; {_others(ranks, [one])}"
        return Hang(name=HangName.LOADER, ranks=(one.rank,), text=text, hint="look at the data of this batch")
    return None


def _elsewhere(ranks: Sequence[SampledRank]) -> Hang | None:
    outside = [one for one in ranks if not one.collective and one.newest.stack]
    return _held_up(ranks, outside, HangName.UNKNOWN, "it is")


def _odd_one(ranks: Sequence[SampledRank]) -> Hang | None:
    """Return the one rank that is elsewhere, if all others are at one place."""
    by_place: dict[tuple[tuple[str, str], ...], list[SampledRank]] = {}
    for one in ranks:
        by_place.setdefault(stack_key(one.stack), []).append(one)
    if len(ranks) < 3 or len(by_place) != 2:
        return None
    odd = min(by_place.values(), key=len)
    if len(odd) > 1 or not odd[0].stack:
        return None
    text = f"rank {odd[0].rank} is in {stack_place(odd[0].stack)}, and all others are at another place"
    return Hang(
        name=HangName.UNKNOWN, ranks=_numbers(odd), text=text, hint="compare its stack with those of the others"
    )


def _held_up(ranks: Sequence[SampledRank], culprits: Sequence[SampledRank], name: HangName, doing: str) -> Hang | None:
    waiting = [one for one in ranks if one.collective]
    if not culprits or not waiting or len(culprits) > len(ranks) / 2:
        return None
    place = stack_place(culprits[0].stack)
    text = f"{_named(culprits)} not in the collective: {doing} in {place}; {_others(ranks, culprits)}"
    hint = f"look at {place}: the others wait for it"
    return Hang(name=name, ranks=_numbers(culprits), text=text, hint=hint)


def _others(ranks: Sequence[SampledRank], culprits: Sequence[SampledRank]) -> str:
    """Return `63 ranks wait in all_reduce`."""
    others = [one for one in ranks if one not in culprits]
    waiting = [one for one in others if one.collective]
    if not others:
        return "no other rank is on this machine"
    if not waiting:
        return f"{_count(others)} on this machine"
    return f"{_count(waiting)} wait{'s' if len(waiting) == 1 else ''} in {waiting[0].collective}"


def _count(ranks: Sequence[SampledRank]) -> str:
    return f"rank {ranks[0].rank}" if len(ranks) == 1 else f"{len(ranks)} ranks"


def _named(ranks: Sequence[SampledRank], verb: str = "is") -> str:
    numbers = ", ".join(str(one.rank) for one in ranks[:MAX_NAMED])
    more = f" and {len(ranks) - MAX_NAMED} more" if len(ranks) > MAX_NAMED else ""
    if len(ranks) == 1:
        return f"rank {numbers} {verb}".rstrip()
    return f"ranks {numbers}{more} {'are' if verb else ''}".rstrip()


def _numbers(ranks: Iterable[SampledRank]) -> tuple[int, ...]:
    return tuple(one.rank for one in ranks)
