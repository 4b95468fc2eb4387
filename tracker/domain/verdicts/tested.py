"""The tests of one checkpoint: of each benchmark, and what all of them together are tested on. Pure."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tracker.domain.records.losses import Closing, Incident, Measure
from tracker.domain.regression.detector import Evidence, jitter_of
from tracker.domain.verdicts.aggregate_judge import JudgedAggregates, judge_aggregates
from tracker.domain.verdicts.candidates import Candidate, candidates_of, chance_of, hypothesis_of
from tracker.domain.verdicts.context import JudgingContext
from tracker.domain.verdicts.decision import ChanceLevel, chance_level_of, comparable
from tracker.domain.verdicts.hypothesis import Hypothesis
from tracker.domain.verdicts.losses.incidents import is_of_series
from tracker.domain.verdicts.suite import Part, endings_of, is_over, open_loss


@dataclass(frozen=True, kw_only=True, eq=False)
class Tested:
    """A benchmark with samples, and its tests."""

    candidate: Candidate
    hypothesis: Hypothesis
    tests: tuple[Evidence, ...]
    evidence: tuple[Evidence, ...]
    """The comparable ones of `tests`."""
    never_learned: bool
    """Whether it was never better than guessing, so that there is nothing to lose."""


@dataclass(frozen=True, kw_only=True, eq=False)
class TestedSuite:
    """All benchmarks of the candidate's suite, and their open loss."""

    parts: tuple[Part, ...]
    aggregates: JudgedAggregates
    known: Incident | None
    """Its open loss, which ends at the candidate if it is in `JudgingContext.ended`."""


def tested_at(context: JudgingContext) -> tuple[JudgingContext, dict[str, Tested], TestedSuite]:
    """Return the tests of all benchmarks; if an open loss of the suite is over, without its checkpoints."""
    known = open_loss(context)
    if known is not None:
        trial = replace(context, ended=endings_of(context, known, _steps_so_far(context)))
        if trial.ended:
            tested, suite = _tested_on(trial, known)
            if is_over(trial, known, suite.parts):
                return trial, tested, suite
    tested, suite = _tested_on(context, known)
    return context, tested, suite


def leaving(
    context: JudgingContext, suite: TestedSuite, lasting: Collection[Incident]
) -> tuple[JudgingContext, dict[str, Tested], TestedSuite]:
    """Return the tests if the suite's loss is over, and `lasting`, which would end with it, are not."""
    context = replace(context, ended=tuple(one for one in context.ended if one not in lasting))
    tested, suite = _tested_on(context, suite.known)
    return context, tested, suite


def remeasured(context: JudgingContext, tested: Mapping[str, Tested]) -> Iterator[Incident]:
    """Yield the open losses of other settings, ended: those of the candidate show themselves whether they last."""
    for incident in context.run_context.incidents:
        if _is_shown(context, tested, incident):
            end = replace(incident, closed_step=context.step, closed_by=Closing.REMEASURED)
            yield replace(end, closed_digest=context.digest)


def _is_shown(context: JudgingContext, tested: Mapping[str, Tested], incident: Incident) -> bool:
    """Return whether the newest checkpoint, with other settings, is compared with one from before an open loss."""
    if incident.closed_step is not None or incident.suite != context.suite.suite:
        return False
    if is_of_series(incident, context.series):
        return False
    known = False
    for name in incident.benchmarks or (incident.benchmark,):
        if name in tested:
            known = True
            if not _covers(context, tested[name], incident.onset_step):
                return False
    return known


def _covers(context: JudgingContext, one: Tested, onset_step: int) -> bool:
    candidate = one.candidate
    if not one.evidence or candidate.left_out:
        return False
    if not candidate.newest:
        return False
    for series in context.scores.of(candidate.subject.benchmark, candidate.subject.suite):
        if series.steps[-1] > context.step:
            return False
    accepted = context.accepted_step(candidate.subject.benchmark)
    if (accepted or 0) >= onset_step:
        return True  # a user has accepted the level of the loss, so nothing before it counts any more
    return candidate.steps[int(candidate.track.rows[0])] < onset_step


def _tested_on(context: JudgingContext, known: Incident | None) -> tuple[dict[str, Tested], TestedSuite]:
    candidates = candidates_of(context, Measure.SCORE)
    jitters = jitter_of([c.track for c in candidates.values()])
    tested: dict[str, Tested] = {}
    for (name, candidate), jitter in zip(candidates.items(), jitters, strict=True):
        hypothesis = hypothesis_of(context, candidate, jitter)
        tests = hypothesis.evidence()
        evidence, chance = comparable(tests), chance_of(context, candidate)
        tested[name] = Tested(
            candidate=candidate,
            hypothesis=hypothesis,
            tests=tests,
            evidence=evidence,
            never_learned=candidate.open_incident is None and _is_guessing(hypothesis, evidence, chance),
        )
    aggregates = judge_aggregates(context)
    learned = {name: one for name, one in tested.items() if one.evidence and not one.never_learned}
    parts = (*(_part(name, one) for name, one in learned.items()), *aggregates.parts)
    return tested, TestedSuite(parts=parts, aggregates=aggregates, known=known)


def _is_guessing(hypothesis: Hypothesis, evidence: Sequence[Evidence], chance: float | None) -> bool:
    return chance_level_of(hypothesis, evidence, chance) is ChanceLevel.GUESSING


def _part(name: str, one: Tested) -> Part:
    series, means = one.candidate.series, one.candidate.matrix.means
    newest = one.hypothesis.step
    incident = one.candidate.open_incident
    return Part(
        name=name,
        means={step: float(means[row]) for row, step in enumerate(series.steps) if step <= newest},
        counted=tuple(one.hypothesis.steps[row] for row in one.candidate.track.rows),
        evidence=one.evidence,
        is_whole=not one.candidate.left_out,
        is_newest=one.candidate.newest,
        lost_since=None if incident is None else incident.onset_step,
    )


def _steps_so_far(context: JudgingContext) -> set[int]:
    """Return the steps of the suite's checkpoints up to the candidate."""
    suite, known = context.suite.suite, {context.step}
    for record in context.run_context.records:
        if record.plan.suite.name == suite:
            known.add(record.plan.checkpoint.step)
    for key, series in context.scores.series.items():
        if key.suite == suite:
            known.update(series.steps)
    return {step for step in known if step <= context.step}
