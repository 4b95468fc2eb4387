"""Findings in addition to the score: losses of single subsets, longer answers, truncated answers. Pure."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tracker.domain.records.losses import Closing, Incident, Measure
from tracker.domain.records.reasons import Compared
from tracker.domain.records.types import Verdict, VerdictWord
from tracker.domain.regression.budget import ONE_SIZE
from tracker.domain.regression.detector import Evidence, Track, evidence_on, jitter_of
from tracker.domain.regression.subsets import MIN_SAMPLES, subset_evidence
from tracker.domain.scores.flips import flips
from tracker.domain.scores.matrix import ScoreMatrix, columns_of_matrix, is_varied
from tracker.domain.scores.suspicion import at_most_suspect
from tracker.domain.verdicts.candidates import (
    Candidate,
    alpha_of_scores,
    budget_of,
    candidates_of,
    has_subsets,
    hypothesis_of,
    on_whole_checkpoints,
    thresholds_of,
)
from tracker.domain.verdicts.context import JudgingContext
from tracker.domain.verdicts.decision import Decision, comparable, decide
from tracker.domain.verdicts.evidence import verdict_of
from tracker.domain.verdicts.hypothesis import Hypothesis, losses
from tracker.domain.verdicts.losses.incidents import counting, is_of_series, open_of, subject_of
from tracker.domain.verdicts.losses.stages import explained

_FOUND = (VerdictWord.REGRESSED, VerdictWord.FORGOTTEN, VerdictWord.RECOVERED, VerdictWord.TRANSIENT)

_RIGHT_P, _RIGHT_SHARE = 0.05, 0.5
"""Level at which right answers must be longer, and by which share of the change of all answers."""


@dataclass(frozen=True, kw_only=True)
class Judged:
    """A verdict, and the change of its incident; None: no change."""

    verdict: Verdict
    change: Incident | None = None


def findings_besides(
    context: JudgingContext, candidates: Mapping[str, Candidate], improved: Collection[str]
) -> tuple[tuple[Judged, ...], tuple[Incident, ...]]:
    """Return the findings in addition to the verdicts on the benchmarks, and the other incidents that change.

    The others are explained, or open and not shown again by this checkpoint. Screened candidates have no findings, as
    a subset of a part is too small. `improved` are benchmarks whose score improved: longer answers that score better
    are no loss. Nor are longer right answers (`_right_are_longer`).
    """
    judged: list[Judged] = []
    for candidate in candidates.values():
        if has_subsets(candidate.series) and not candidate.left_out:
            judged += _of_subsets(context, on_whole_checkpoints(candidate))
    changed: list[Incident] = []
    for measure in (Measure.OUTPUT_LENGTH, Measure.COMPLETENESS):
        for candidate, hypothesis, decision in _of_behaviour(context, measure, candidates):
            if candidate.subject.benchmark in improved:
                changed += _explained(candidate, hypothesis, decision)
            else:
                judged.append(judged_of(context, decision, hypothesis, candidate))
    found, others = _parted(judged)
    return tuple(found), (*changed, *others)


def _parted(judged: Iterable[Judged]) -> tuple[list[Judged], list[Incident]]:
    """Return the findings, and the incidents that change without one."""
    found: list[Judged] = []
    changed: list[Incident] = []
    for one in judged:
        if one.verdict.word in _FOUND:
            found.append(one)
        elif one.change is not None:
            changed.append(one.change)
    return found, changed


def _explained(candidate: Candidate, hypothesis: Hypothesis, decision: Decision) -> Iterator[Incident]:
    incident = decision.change or candidate.open_incident
    if incident is not None and candidate.newest:
        yield explained(hypothesis, incident)


def judged_of(context: JudgingContext, decision: Decision, hypothesis: Hypothesis, candidate: Candidate) -> Judged:
    """Return the verdict of a decision; only the newest checkpoint changes an incident, and what it took.

    One that comes late may end a loss, and names none that is not stored. The newest of earlier settings changes
    theirs, and opens none. A new loss where a dip is expected is SUSPECT, and opens none.
    """
    dip, change = context.dips.expected_after, decision.change
    is_new = change is not None and change.opened_step == hypothesis.step
    if is_new and context.dips.explain(decision.shown[0].test.delta):
        decision = replace(decision, word=at_most_suspect(decision.word), change=None, loss=None)
        verdict = verdict_of(decision, hypothesis, candidate)
        if isinstance(verdict.reason, Compared):
            verdict = replace(verdict, reason=replace(verdict.reason, expected_after=dip))
        return Judged(verdict=verdict)
    verdict = verdict_of(decision, hypothesis, candidate)
    change = change or decision.loss
    if change is None:
        return Judged(verdict=verdict)
    if _may_change(context, candidate, change):
        return Judged(verdict=verdict, change=replace(change, drop=verdict.drop))
    return Judged(verdict=_with_known_loss(context, verdict, change))


def _with_known_loss(context: JudgingContext, verdict: Verdict, loss: Incident) -> Verdict:
    if context.is_known(loss):
        return verdict
    return replace(verdict, lost_since=None)


def _may_change(context: JudgingContext, candidate: Candidate, change: Incident) -> bool:
    if context.may_change(change):
        return True
    if candidate.newest or not candidate.is_last_of_series:
        return candidate.newest
    for known in context.run_context.incidents:
        if (subject_of(known), known.opened_step) != (subject_of(change), change.opened_step):
            continue
        if known.closed_by is not Closing.REMEASURED and is_of_series(known, context.series):
            return True
    return False


def _of_behaviour(
    context: JudgingContext, measure: Measure, of_scores: Mapping[str, Candidate]
) -> Iterator[tuple[Candidate, Hypothesis, Decision]]:
    candidates = _varied(candidates_of(context, measure).values())
    jitters = jitter_of([c.track for c in candidates])
    for candidate, jitter in zip(candidates, jitters, strict=True):
        hypothesis = hypothesis_of(context, candidate, jitter)
        evidence = comparable(hypothesis.evidence())
        scored = of_scores.get(candidate.subject.benchmark)
        if measure is Measure.OUTPUT_LENGTH and scored is not None:
            evidence = tuple(e for e in evidence if not _right_are_longer(hypothesis, e, scored.matrix))
        if evidence:
            known = candidate.open_incident
            yield (
                candidate,
                hypothesis,
                decide(hypothesis, evidence, known, run_id=context.scores.run_id, chance=None),
            )


def _varied(candidates: Iterable[Candidate]) -> tuple[Candidate, ...]:
    """Return those with something to test: if no answer was ever truncated, there is nothing."""
    return tuple(c for c in candidates if is_varied(c.matrix) and not c.left_out)


def _right_are_longer(hypothesis: Hypothesis, evidence: Evidence, scores: ScoreMatrix) -> bool:
    """Return whether answers got longer because right ones did, which is no loss.

    The test of `evidence` is repeated on the samples alone that are right on both sides. They must be longer at
    p < .05, and by at least half of the change of all samples: loops and missing stop tokens lengthen wrong answers
    only. Too few right answers show nothing (`comparable`). `scores` has the rows of `hypothesis.matrix`.
    """
    if not evidence.is_loss(hypothesis.thresholds.min_effect):
        return False
    right = np.flatnonzero(flips(scores, evidence.blocks.new, evidence.blocks.base).is_kept)
    if not right.size:
        return False
    track = replace(hypothesis.track, scores=columns_of_matrix(hypothesis.matrix, right))
    (alone,) = evidence_on(track, (evidence.blocks,), evidence.jitter, hypothesis.level)
    is_longer = alone.p_worse < _RIGHT_P and alone.test.delta <= _RIGHT_SHARE * evidence.test.delta
    return is_longer and bool(comparable((alone,)))


def _of_subsets(context: JudgingContext, candidate: Candidate) -> Iterator[Judged]:
    grouping = candidate.series.samples.grouping
    level = budget_of(context, alpha_of_scores(context, candidate.series), ONE_SIZE)
    thresholds = replace(thresholds_of(context.policy), min_effect=context.policy.subset_min_effect)
    scores = candidate.series.matrices[Measure.SCORE]
    followed = {e.subset for e in context.own_incidents if e.benchmark == candidate.subject.benchmark}
    for name, tests in subset_evidence(scores, candidate.track, grouping, level, followed).items():
        subject = replace(candidate.subject, subset=name)
        known = context.incidents_of(subject)
        if not known and not losses(comparable(tests, MIN_SAMPLES), thresholds):
            continue
        own = _own_track(candidate, known)
        matrix = columns_of_matrix(scores, np.flatnonzero(grouping.index == grouping.names.index(name)))
        hypothesis = Hypothesis(
            subject=subject,
            matrix=matrix,
            track=replace(own, scores=matrix),
            steps=candidate.steps,
            jitter=tests[0].jitter,
            level=replace(level, benchmarks=level.benchmarks * len(grouping.names)),
            thresholds=thresholds,
            digest=context.digest,
        )
        own_tests = subset_evidence(scores, own, grouping, level, {name}).get(name, ()) if known else tests
        evidence = comparable(own_tests, MIN_SAMPLES)
        if evidence:
            is_open = open_of(known, candidate.series.steps)
            decision = decide(hypothesis, evidence, is_open, run_id=context.scores.run_id, chance=None)
            yield judged_of(context, decision, hypothesis, candidate)


def _own_track(candidate: Candidate, known: Sequence[Incident]) -> Track:
    """Return the track of one subset, without checkpoints of its own recovered losses."""
    track, steps = candidate.track, candidate.steps
    counts = counting([steps[row] for row in track.rows], known, ())
    kept = track.rows[np.array(counts, dtype=bool)]
    return replace(track, rows=kept, pinned_row=None, dropped=track.dropped + track.rows.size - kept.size)
