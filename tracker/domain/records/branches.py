"""Branches of a run whose training went back: checkpoints left behind are not on the path to the newest. Pure.

Training went back if a trainer's folder was written again with other weights: checkpoint-300 of Monday and
checkpoint-300 of Tuesday. Everything from that step on that is older than the rewritten folder was left behind. File
times alone are no evidence: copied folders have them in any order.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from eval_jobs.types import Checkpoint
from tracker.domain.records.types import Report


@dataclass(frozen=True, kw_only=True)
class Branches:
    """The branches of one run."""

    rewrites: tuple[Checkpoint, ...] = ()
    """The first checkpoint after each time that training went back, in the order in which they were written."""

    def left_by(self, checkpoint: Checkpoint) -> Checkpoint | None:
        """Return the first rewritten checkpoint that left this one behind; None if it is on the newest branch."""
        return next((again for again in self.rewrites if _leaves(again, checkpoint)), None)

    def sees(self, candidate: Checkpoint, other: Checkpoint) -> bool:
        """Return whether `other` is on the branch of `candidate`, before it or after it."""
        if any(again.ready_at <= candidate.ready_at and _leaves(again, other) for again in self.rewrites):
            return False  # left behind before the candidate was written
        end = self.left_by(candidate)
        return end is None or other.ready_at < end.ready_at


def branches_of(checkpoints: Iterable[Checkpoint]) -> Branches:
    """Return the branches of a run from all its checkpoints, in any order; duplicates are allowed."""
    known: dict[tuple[str, str], Checkpoint] = {}
    digests: dict[str, str] = {}
    several: set[str] = set()
    for checkpoint in checkpoints:
        place, digest = checkpoint.source_uri, checkpoint.digest
        earlier = known.setdefault((place, digest), checkpoint)
        if checkpoint.ready_at < earlier.ready_at:
            known[place, digest] = checkpoint
        if digests.setdefault(place, digest) != digest and _is_trainers(checkpoint):
            several.add(place)
    if several:
        return Branches(rewrites=tuple(_rewrites(known.values(), several)))
    return Branches()


def _rewrites(checkpoints: Iterable[Checkpoint], several: Collection[str]) -> Iterator[Checkpoint]:
    """Yield checkpoints written over other weights while a checkpoint of that step or above was the newest."""
    # The later steps of the new branch are also written over others, but leave nothing more behind.
    newest: dict[str, int] = {}
    written: set[str] = set()
    for checkpoint in sorted(checkpoints, key=lambda c: (c.ready_at, c.step)):
        place, folder = checkpoint.source_uri, _parent(checkpoint)
        if place in written and newest[folder] >= checkpoint.step:
            newest[folder] = checkpoint.step
            yield checkpoint
        newest[folder] = max(newest.get(folder, checkpoint.step), checkpoint.step)
        if place in several:
            written.add(place)


def _leaves(again: Checkpoint, other: Checkpoint) -> bool:
    """Return whether training went back to before `other` when it wrote `again`."""
    if other.step < again.step or other.ready_at >= again.ready_at or other.digest == again.digest:
        return False
    if other.step == again.step:
        return other.source_uri == again.source_uri
    return _parent(other) == _parent(again)


def _parent(checkpoint: Checkpoint) -> str:
    return checkpoint.source_uri.rpartition("/")[0]


def _is_trainers(checkpoint: Checkpoint) -> bool:
    """Return whether the folder is named after its step: other folders are overwritten for any reason."""
    name = checkpoint.source_uri.rpartition("/")[2]
    digits = name[len(name.rstrip("0123456789")) :]
    return digits != "" and int(digits) == checkpoint.step


def newest_of_benchmarks(reports: Iterable[Report]) -> frozenset[str]:
    """Return the plan ids of the reports that are the newest on any of their benchmarks; `reports` ordered by step.

    Reports of checkpoints that training left behind are excluded.
    """
    known = tuple(reports)
    branches = branches_of(r.checkpoint for r in known)
    newest = (r for r in known if branches.left_by(r.checkpoint) is None)
    return frozenset({v.benchmark: r.plan_id for r in newest for v in r.verdicts}.values())
