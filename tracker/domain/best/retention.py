"""What of our own is kept: pins, which hold weights, and the texts of answers. Pure.

choices = decide_retention(checkpoints, keep=3, reasons=reasons_to_keep(scores, policy, ...))
[c for c in choices if not c.reasons]       # what may go

The trainer's files are not ours and never a subject of this. Scores are kept for ever: verdicts rest on them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from eval_jobs.types import Checkpoint
from tracker.domain.best.choice import best_by_benchmark, best_of
from tracker.domain.scores.run_scores import RunScores

LAST = "one of the last {count}"
FIRST = "first of the run"
BEST = "best on {names}"
BEST_OF_SUITE = "best of the run"
REFERENCE = "latency reference"
BASELINE = "policy.baseline"
UNFINISHED = "not evaluated yet"


@dataclass(frozen=True, kw_only=True)
class KeepPolicy:
    """How many checkpoints of every run keep what, beside those that have a reason of their own. None: all."""

    pins: int | None = None
    samples: int | None = None


@dataclass(frozen=True, kw_only=True)
class Identity:
    """One checkpoint by its content: a step that was written again is another one."""

    run_id: str
    step: int
    digest: str
    files_digest: str = ""
    """As `Checkpoint.files_digest`: the same weights beside another tokenizer are another checkpoint."""


@dataclass(frozen=True, kw_only=True)
class RetentionDecision:
    """Whether something of one checkpoint is kept."""

    checkpoint: Identity
    reasons: tuple[str, ...]
    """Why it is kept; empty: it may go."""


def identity_of(checkpoint: Checkpoint) -> Identity:
    """Return what a checkpoint is known by."""
    return Identity(
        run_id=checkpoint.run_id,
        step=checkpoint.step,
        digest=checkpoint.digest,
        files_digest=checkpoint.files_digest,
    )


def decide_retention(
    checkpoints: Iterable[Identity], *, keep: int | None, reasons: Mapping[Identity, Sequence[str]]
) -> tuple[RetentionDecision, ...]:
    """Return for every checkpoint whether it is kept: the last `keep` of its run by step, and all with a reason.

    Args:
        checkpoints: in any order, of any runs.
        keep: None: all are kept, and the reason says so.
        reasons: why single ones are kept, whatever their step.
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


def best_checkpoints(scores: RunScores) -> Mapping[Identity, tuple[str, ...]]:
    """Return the best checkpoint of each benchmark and that of the suite (`best`), with the reason to keep it.

    `scores` are of one branch of a run (`rewind.scores_of_newest`).
    """
    names: dict[Identity, list[str]] = {}
    for benchmark, best in best_by_benchmark(scores).items():
        names.setdefault(identity_of(best.checkpoint), []).append(benchmark)
    of_suite = best_of(scores)
    reasons = {key: (BEST.format(names=", ".join(found)),) for key, found in names.items()}
    if of_suite is None:
        return reasons
    return merged({identity_of(of_suite.checkpoint): (BEST_OF_SUITE,)}, reasons)


def merged(*parts: Mapping[Identity, Sequence[str]]) -> Mapping[Identity, tuple[str, ...]]:
    """Return all reasons of all parts, in their order, each once."""
    found: dict[Identity, dict[str, None]] = {}
    for part in parts:
        for key, reasons in part.items():
            found.setdefault(key, {}).update(dict.fromkeys(reasons))
    return {key: tuple(reasons) for key, reasons in found.items()}


# --- private


def _last(ordered: Sequence[Identity], keep: int | None) -> Sequence[Identity]:
    """Return those of the last `keep` steps; two contents of one step count as one."""
    steps = sorted({c.step for c in ordered})
    kept = set(steps if keep is None else steps[max(0, len(steps) - keep) :])
    return [c for c in ordered if c.step in kept]
