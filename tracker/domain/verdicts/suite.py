"""The verdict on a checkpoint as a whole, by all benchmarks of its suite together. Pure.

A loss that one checkpoint shows is SUSPECT until the next: if that is back, the checkpoint was broken (TRANSIENT), and
counts in no later test. A loss of more than one checkpoint is REGRESSED until two in a row are back (RECOVERED).
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tracker.domain.records.losses import Closing, Incident
from tracker.domain.records.reasons import Fall, Together
from tracker.domain.records.types import Verdict, VerdictWord
from tracker.domain.regression.blocks import BLOCK
from tracker.domain.regression.budget import SUITE
from tracker.domain.regression.detector import ErrorBudget, Evidence
from tracker.domain.regression.suite import SuiteTest, is_back, shared_variance, suite_tests
from tracker.domain.scores.matrix import FloatArray
from tracker.domain.scores.suspicion import loss_of_all
from tracker.domain.verdicts.context import JudgingContext
from tracker.domain.verdicts.findings import Judged
from tracker.domain.verdicts.losses.incidents import has_ended, subject_of
from tracker.domain.verdicts.losses.stages import RECOVERED_AFTER


@dataclass(frozen=True, kw_only=True, eq=False)
class Part:
    """One benchmark of the suite at the candidate."""

    name: str
    means: Mapping[int, float]
    """By step, of every checkpoint up to the candidate, ascending; up is better."""
    counted: tuple[int, ...]
    """Steps of the checkpoints that count in tests, ascending."""
    evidence: tuple[Evidence, ...]
    is_whole: bool
    """Whether it was evaluated in full."""
    is_newest: bool = True
    """Whether no later checkpoint is known: else a verdict changes no incident."""
    has_samples: bool = True
    lost_since: int | None = None
    """Onset of the open loss of this benchmark alone."""


def open_loss(context: JudgingContext) -> Incident | None:
    """Return the open loss of the suite as of just before the candidate."""
    return next((e for e in reversed(context.incidents_of(context.suite)) if e.closed_step is None), None)


def endings_of(context: JudgingContext, known: Incident, steps: Iterable[int]) -> tuple[Incident, ...]:
    """Return the loss as it would end at the candidate, with what ends with it; () if it is too early.

    `steps` are those of the checkpoints so far. With a broken checkpoint end the losses that it alone shows.
    """
    since = sorted(step for step in steps if known.onset_step <= step)
    needed = _needed(known, since)
    lost = since[:-needed]
    if not lost:
        return ()
    ending, by = [known], Closing.RECOVERED
    if needed == 1:
        ending, by = [known, *_shown_by(context, known)], Closing.TRANSIENT
    return tuple(
        replace(e, closed_step=context.step, closed_by=by, last_step=lost[-1], closed_digest=context.digest)
        for e in ending
    )


def _shown_by(context: JudgingContext, broken: Incident) -> Iterator[Incident]:
    """Yield the open losses of single benchmarks that began at a broken checkpoint."""
    subjects = {subject_of(e) for e in context.run_context.incidents if e.suite == broken.suite}
    for subject in sorted(subjects - {context.suite}, key=repr):
        for incident in context.incidents_of(subject):
            if incident.closed_step is None and incident.onset_step >= broken.onset_step:
                yield incident


def is_over(context: JudgingContext, known: Incident, parts: Sequence[Part]) -> bool:
    """Return whether the newest checkpoints are back; the evidence of `parts` is without those of the loss."""
    if not all(part.is_whole for part in parts):
        return False
    since = {step for part in parts for step in part.means if known.onset_step <= step}
    return is_back([test for test in _tests(context, parts, known) if test.m <= _needed(known, since)])


def are_newest(parts: Iterable[Part]) -> bool:
    """Return whether a verdict on the suite may change incidents."""
    return all(part.is_newest for part in parts)


def judge_end(ended: Incident, parts: Sequence[Part], worse: Collection[str], *, changes: bool) -> Judged:
    """Return the verdict on a loss of the suite that ends at the candidate; `changes`: that changes the incident.

    `worse` are the benchmarks whose own losses last.
    """
    falls = tuple(fall for fall in _falls(parts, ended) if fall.benchmark not in worse)
    reason = Together(falls=falls, compared=len(parts), steps=_lost_steps(parts, ended))
    return Judged(verdict=_verdict(word_of_ended_loss(ended), reason, ended), change=ended if changes else None)


@dataclass(frozen=True, kw_only=True)
class Alone:
    """What the own tests of the benchmarks show at the candidate."""

    lost: frozenset[str]
    """Benchmarks with a new loss."""
    better: frozenset[str]
    """Benchmarks that are back, or better than before."""


def word_of_ended_loss(ended: Incident) -> VerdictWord:
    """Return the verdict on the checkpoint that ends a loss."""
    return VerdictWord.TRANSIENT if ended.closed_by is Closing.TRANSIENT else VerdictWord.RECOVERED


def judge_suite(context: JudgingContext, parts: Sequence[Part], known: Incident | None, alone: Alone) -> Judged | None:
    """Return the verdict on the checkpoint as a whole if the suite lost something, else None.

    `known` is its open loss.
    """
    losses = [test for test in _tests(context, parts, known) if test.is_loss]
    if not losses:
        return None if known is None else _still_lost(parts, known, alone)
    return _judge_loss(context, parts, known, min(losses, key=lambda test: test.p_worse), alone)


def _judge_loss(
    context: JudgingContext,
    parts: Sequence[Part],
    known: Incident | None,
    deciding: SuiteTest,
    alone: Alone,
) -> Judged:
    fell = _fell(parts, deciding)
    reason = _reason(deciding, fell[0].counted[-deciding.m :])
    if known is None and context.dips.explain(reason.falls[0].change):
        reason = replace(reason, expected_after=context.dips.expected_after)
    if reason.expected_after is not None or not all(part.is_whole for part in fell):
        return Judged(verdict=_verdict(loss_of_all(is_provisional=True), reason, known, deciding.alpha_test))
    incident = known or _opened(context, deciding.fallen, reason.steps[0])
    if deciding.m > 1 or not alone.lost.isdisjoint(deciding.fallen):
        incident = _confirmed(incident, fell)
    word = loss_of_all(is_provisional=incident.provisional)
    if _may_store(context, fell, known, incident):
        return Judged(verdict=_verdict(word, reason, incident, deciding.alpha_test), change=incident)
    shown = incident if context.is_known(incident) else None
    return Judged(verdict=_verdict(word, reason, shown, deciding.alpha_test))


def _may_store(context: JudgingContext, fell: Iterable[Part], known: Incident | None, incident: Incident) -> bool:
    """Return whether a loss is stored, or changes: not one that later checkpoints have shown to be over."""
    if known is None and has_ended(incident, context.run_context.incidents):
        return False
    return are_newest(fell) or context.may_change(incident)


def _fell(parts: Iterable[Part], deciding: SuiteTest) -> list[Part]:
    return [part for part in parts if part.name in deciding.fallen]


def _confirmed(incident: Incident, fell: Sequence[Part]) -> Incident:
    """Return the incident as one of more than a checkpoint; means without samples confirm none."""
    if all(part.has_samples for part in fell):
        return replace(incident, provisional=False)
    return incident


def _still_lost(parts: Sequence[Part], known: Incident, alone: Alone) -> Judged:
    word = loss_of_all(is_provisional=known.provisional)
    lower: list[Fall] = []
    back: list[str] = []
    for fall in _falls(parts, known):
        if fall.benchmark in alone.better:
            back.append(fall.benchmark)
        else:
            lower.append(fall)
    steps = _lost_steps(parts, known)
    reason = Together(falls=tuple(lower), compared=len(parts), steps=steps, back=tuple(back))
    # Stored again: before a late checkpoint came, this one may have shown that it is over.
    change = known if are_newest(parts) and all(part.is_whole for part in parts) else None
    return Judged(verdict=_verdict(word, reason, known), change=change)


def _needed(known: Incident, since: Collection[int]) -> int:
    """Return how many checkpoints in a row must be back; `since` are the steps since the onset, with the candidate."""
    lost = len(since) - 1
    if known.provisional or lost == 1:
        return 1
    return RECOVERED_AFTER


def _tests(context: JudgingContext, parts: Sequence[Part], known: Incident | None) -> tuple[SuiteTest, ...]:
    if not parts or not context.alpha_of_suite:
        return ()
    position = max(len(part.means) for part in parts) - 1
    planned = context.policy.planned_checkpoints
    level = ErrorBudget(alpha=context.alpha_of_suite, planned=planned, benchmarks=1, design=SUITE)
    end = context.step if known is None else known.onset_step
    shared = shared_variance(_common([part.means for part in parts], end))
    return suite_tests({part.name: part.evidence for part in parts if not _was_lost(part)}, shared, level, position)


def _was_lost(part: Part) -> bool:
    """Return whether the benchmark lost something before the newest checkpoints: that is its own loss."""
    newest = sorted(part.means)[-max(SUITE.by_pooled) :]
    return part.lost_since is not None and part.lost_since < newest[0]


def _common(series: Sequence[Mapping[int, float]], end: int) -> FloatArray:
    """Return the means at the steps before `end` that all series have, shape (K, T)."""
    steps = sorted(step for step in set(series[0]).intersection(*series[1:]) if step < end)
    return np.array([[means[step] for step in steps] for means in series])


def _opened(context: JudgingContext, fallen: tuple[str, ...], onset: int) -> Incident:
    return Incident(
        run_id=context.scores.run_id,
        suite=context.suite.suite,
        benchmark="",
        opened_step=context.step,
        onset_step=onset,
        opened_digest=context.digest,
        benchmarks=fallen,
        provisional=True,
    )


def _reason(deciding: SuiteTest, steps: tuple[int, ...]) -> Together:
    falls = (Fall(benchmark=name, change=deciding.parts[name].test.delta) for name in deciding.fallen)
    return Together(falls=tuple(falls), compared=len(deciding.parts), steps=steps, p=deciding.p_worse)


def _falls(parts: Iterable[Part], loss: Incident) -> tuple[Fall, ...]:
    """Return the falls of the benchmarks of a loss, from the checkpoints before it to those of it."""
    falls: list[Fall] = []
    for part in parts:
        before = [mean for step, mean in part.means.items() if step < loss.onset_step][-BLOCK:]
        lost = [part.means[step] for step in _lost_steps([part], loss)]
        if part.name in loss.benchmarks and before and lost:
            falls.append(Fall(benchmark=part.name, change=float(np.mean(lost) - np.mean(before))))
    return tuple(sorted(falls, key=lambda fall: fall.change))


def _lost_steps(parts: Iterable[Part], loss: Incident) -> tuple[int, ...]:
    known = {step for part in parts for step in part.means}
    return tuple(sorted(s for s in known if loss.onset_step <= s and (loss.last_step is None or s <= loss.last_step)))


def _verdict(word: VerdictWord, reason: Together, loss: Incident | None, alpha_test: float = 0.0) -> Verdict:
    return Verdict(
        benchmark="",
        word=word,
        reason=reason,
        score=None,
        stderr=None,
        coverage=1.0,
        alpha_test=alpha_test,
        lost_since=None if loss is None else loss.onset_step,
    )
