"""Retention of the tracker's own data: pins, which contain weights, and the texts of answers. Pure.

The trainer's files are never deleted. Scores are kept permanently, because verdicts are based on them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from eval_jobs.types import Checkpoint
from tracker.domain.best.choice import best_by_benchmark, best_of
from tracker.domain.records.losses import Incident
from tracker.domain.scores.run_scores import RunScores

LAST = "among the newest {count}"
FIRST = "first of the run"
BEST = "best on {names}"
BEST_OF_SUITE = "best of the run"
REFERENCE = "latency reference"
BASELINE = "policy.baseline"
UNFINISHED = "not evaluated yet"


@dataclass(frozen=True, kw_only=True)
class KeepPolicy:
    """How many checkpoints of every run keep pins and texts, besides those with another reason. None: all."""

    pins: int | None = None
    samples: int | None = None


@dataclass(frozen=True, kw_only=True)
class Identity:
    """One checkpoint, identified by its content: a step that was saved again with other content is a different one."""

    run_id: str
    step: int
    digest: str
    files_digest: str = ""
    """As `Checkpoint.files_digest`: the same weights with another tokenizer are a different checkpoint."""


@dataclass(frozen=True, kw_only=True)
class RetentionDecision:
    """Whether the pin or the texts of one checkpoint are kept, and why."""

    checkpoint: Identity
    reasons: tuple[str, ...]
    """Why it is kept; empty: it may be deleted."""


def identity_of(checkpoint: Checkpoint) -> Identity:
    """Return the identity of a checkpoint."""
    return Identity(
        run_id=checkpoint.run_id,
        step=checkpoint.step,
        digest=checkpoint.digest,
        files_digest=checkpoint.files_digest,
    )


def decide_retention(
    checkpoints: Iterable[Identity], *, keep: int | None, reasons: Mapping[Identity, Sequence[str]]
) -> tuple[RetentionDecision, ...]:
    """Return for every checkpoint whether it is kept: the last `keep` steps of its run, and all with a reason.

    With `keep` None all are kept, with that as the reason. The checkpoints may be of any runs, in any order.
    """
    ordered = sorted(set(checkpoints), key=lambda c: (c.run_id, c.step, c.digest, c.files_digest))
    text = "all are kept" if keep is None else LAST.format(count=keep)
    decisions: list[RetentionDecision] = []
    for _, of_run in groupby(ordered, key=lambda c: c.run_id):
        own = tuple(of_run)
        last = _last(own, keep)
        for one in own:
            kept = (text,) if one in last else ()
            decisions.append(RetentionDecision(checkpoint=one, reasons=(*kept, *reasons.get(one, ()))))
    return tuple(decisions)


def best_checkpoints(scores: RunScores, incidents: Sequence[Incident] = ()) -> Mapping[Identity, tuple[str, ...]]:
    """Return the best checkpoint of each benchmark and of the suite (`choice`), with the reasons to keep them.

    Also those that would be the best without an open loss of `incidents`: its level may be accepted. `scores` are of
    one branch of a run (`rewind.scores_of_newest`).
    """
    return merged(*(_best_checkpoints(scores, known) for known in ((), incidents)))


def _best_checkpoints(scores: RunScores, incidents: Sequence[Incident]) -> Mapping[Identity, tuple[str, ...]]:
    names: dict[Identity, list[str]] = {}
    for benchmark, best in best_by_benchmark(scores, incidents=incidents).items():
        names.setdefault(identity_of(best.checkpoint), []).append(benchmark)
    of_suite = best_of(scores, incidents=incidents)
    reasons = {key: (BEST.format(names=", ".join(found)),) for key, found in names.items()}
    if of_suite is None:
        return reasons
    return merged({identity_of(of_suite.checkpoint): (BEST_OF_SUITE,)}, reasons)


def merged(*parts: Mapping[Identity, Sequence[str]]) -> Mapping[Identity, tuple[str, ...]]:
    """Return the reasons of all parts, in order, without duplicates."""
    found: dict[Identity, dict[str, None]] = {}
    for part in parts:
        for key, reasons in part.items():
            found.setdefault(key, {}).update(dict.fromkeys(reasons))
    return {key: tuple(reasons) for key, reasons in found.items()}


def _last(ordered: Sequence[Identity], keep: int | None) -> Sequence[Identity]:
    """Return the checkpoints of the last `keep` steps; several contents of a step count as one."""
    steps = sorted({c.step for c in ordered})
    kept = set(steps if keep is None else steps[max(0, len(steps) - keep) :])
    return [c for c in ordered if c.step in kept]
