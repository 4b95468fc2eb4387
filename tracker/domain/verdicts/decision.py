"""The verdict on one subject at one checkpoint, and the change of its incident. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto

import numpy as np

from tracker.domain.records.losses import Closing, Incident, Measure
from tracker.domain.records.types import IS_BACK, VerdictWord
from tracker.domain.regression.blocks import peak_blocks, peak_width
from tracker.domain.regression.detector import Evidence, blocks_test, level_test
from tracker.domain.regression.pooled_test import PooledTest
from tracker.domain.scores.suspicion import without_proof
from tracker.domain.verdicts.hypothesis import (
    Hypothesis,
    against_peak,
    gains,
    is_equivalent,
    is_suspicious,
    losses,
    rises,
    strongest_of,
    suspects,
    word_of,
)
from tracker.domain.verdicts.losses.stages import checkpoints_back, is_forgotten, lasting, opened, recovered

MIN_COMMON = 0.95
"""With a smaller share of common samples the sides may differ because of the samples, not because of the model."""

MIN_SAMPLES = 10
"""Minimum number of common samples. In a healthy run both of 2 samples turn wrong at some point, and nothing then shows
their scatter: 9 of 10 runs would raise a false alarm with 2 samples, 1 of 10 with 5."""

LEARNED_P = 0.01
LEARNED_EFFECT = 0.02


@dataclass(frozen=True, kw_only=True)
class Decision:
    """A verdict, the tests behind it, and the change of the incident."""

    word: VerdictWord
    tests: tuple[Evidence, ...]
    """All tests of the subject."""
    shown: tuple[Evidence, ...]
    """The deciding test first, then those of the candidate alone against each baseline."""
    change: Incident | None = None
    """The incident that opens, changes or ends here; None: no change."""
    loss: Incident | None = None
    """The loss that is open here, or that ends here; None: there is none."""


def comparable(evidence: Sequence[Evidence], at_least: int = MIN_SAMPLES) -> tuple[Evidence, ...]:
    """Return the tests with enough common samples: `at_least` this number, and a share of `MIN_COMMON`."""
    return tuple(e for e in evidence if e.test.common_fraction >= MIN_COMMON and e.test.n >= at_least)


def decide(
    hypothesis: Hypothesis, evidence: Sequence[Evidence], known: Incident | None, *, run_id: str, chance: float | None
) -> Decision:
    """Return the decision on a subject from its tests: at least one, all comparable.

    `known` is its open incident, `chance` the score of guessing; None: unknown.
    """
    if known is not None:
        back = checkpoints_back(hypothesis, known)
        if back:
            return _over(hypothesis, evidence, known, back)
    still = lasting(hypothesis, evidence)
    word = VerdictWord.INCONCLUSIVE
    if still:
        evidence, word = still, word_of(still, hypothesis.thresholds)
    if word is not VerdictWord.REGRESSED:
        return _decision(word, hypothesis, evidence, None, known)
    incident = known or opened(hypothesis, run_id, losses(evidence, hypothesis.thresholds))
    if _is_forgotten(hypothesis, incident, chance):
        change = _newly_forgotten(hypothesis, incident, known)
        return _decision(VerdictWord.FORGOTTEN, hypothesis, evidence, change, incident)
    if chance_level_of(hypothesis, evidence, chance) is ChanceLevel.BELOW_GUESSING:
        word = VerdictWord.BELOW_GUESSING
    return _decision(word, hypothesis, evidence, None if known is not None else incident, incident)


def decide_screened(hypothesis: Hypothesis, evidence: Sequence[Evidence], known: Incident | None) -> Decision:
    """Return the decision on a screened checkpoint: at most SUSPECT, after which all samples are evaluated.

    It opens and ends no incident and spends no alpha, so a test on the whole benchmark at the same checkpoint is still
    the first and only one that decides.
    """
    is_suspect, word = is_suspicious(evidence), VerdictWord.EQUIVALENT
    if is_suspect or not is_equivalent(evidence, hypothesis.thresholds):
        word = without_proof(is_suspect=is_suspect)
    shown = _beside_alone(strongest_of(evidence) if is_suspect else evidence[0], evidence)
    return Decision(word=word, tests=tuple(evidence), shown=shown, loss=known)


class ChanceLevel(Enum):
    """Where the scores of a benchmark are, compared with guessing."""

    LEARNED = auto()
    """Above it at some time; or unknown."""
    GUESSING = auto()
    """Never clearly above it, nor below: there is nothing to lose."""
    BELOW_GUESSING = auto()
    """Never clearly above it, and now below."""


def chance_level_of(hypothesis: Hypothesis, evidence: Sequence[Evidence], chance: float | None) -> ChanceLevel:
    """Return whether the candidate or any block before it is above chance, or is below it, by p < .01 and 2 points."""
    if chance is None:
        return ChanceLevel.LEARNED
    blocks = [e.blocks for e in evidence]
    sides = {tuple(rows.tolist()): one.selected_from for one in blocks for rows in (one.new, one.base)}
    track, found = hypothesis.track, ChanceLevel.GUESSING
    for rows, selected_from in sides.items():
        test = level_test(track.scores, np.array(rows), chance, hypothesis.jitter)
        if is_learned(test, selected_from * len(sides)):
            return ChanceLevel.LEARNED
        if test.p_worse(len(sides)) < LEARNED_P:
            found = ChanceLevel.BELOW_GUESSING
    return found


def was_learned(hypothesis: Hypothesis, chance: float | None) -> bool:
    """Return whether the peak is above the first block of the run, or above chance, by p < .01 and 2 points.

    Above both if the run starts untrained, at step 0: a bias in its answers may put such a model above chance.
    """
    track, width = hypothesis.track, peak_width(hypothesis.level.planned, hypothesis.track.rows.size)
    peak = peak_blocks(track.rows, track.scores.means, 1, width)
    if peak is None:
        return False
    risen = blocks_test(track.scores, peak.base, track.rows[:width], hypothesis.jitter)
    above = [bool(peak.base[0] != track.rows[0]) and is_learned(risen, peak.selected_from)]
    if chance is not None:
        over = level_test(track.scores, peak.base, chance, hypothesis.jitter)
        above.append(is_learned(over, peak.selected_from))
    if hypothesis.steps[int(track.rows[0])] == 0:
        return all(above)
    return any(above)


def is_learned(rise: PooledTest, selected_from: int) -> bool:
    """Return whether a rise, the best of `selected_from`, is large enough and significant."""
    return rise.p_better(selected_from) < LEARNED_P and rise.delta >= LEARNED_EFFECT


def _over(hypothesis: Hypothesis, evidence: Sequence[Evidence], known: Incident, back: int) -> Decision:
    # Tests of a subset pool four checkpoints, some of them with the loss: only the newest shows the recovery.
    alone = comparable(hypothesis.evidence()) or tuple(evidence)
    ended = recovered(hypothesis, known, back)
    word = VerdictWord.RECOVERED
    if ended.closed_by is Closing.TRANSIENT:
        word = VerdictWord.TRANSIENT
    return _decision(word, hypothesis, alone, ended, known)


def _is_forgotten(hypothesis: Hypothesis, incident: Incident, chance: float | None) -> bool:
    is_score = hypothesis.subject.measure is Measure.SCORE
    return is_score and is_forgotten(hypothesis, incident.onset_step) and was_learned(hypothesis, chance)


def _newly_forgotten(hypothesis: Hypothesis, incident: Incident, known: Incident | None) -> Incident | None:
    forgotten = replace(incident, forgotten=True)
    # After a crash, the stored incident may already be forgotten: the checkpoint before shows if that is new.
    if forgotten != known or not is_forgotten(hypothesis, incident.onset_step, 1):
        return forgotten
    return None


def _decision(
    word: VerdictWord,
    hypothesis: Hypothesis,
    evidence: Sequence[Evidence],
    change: Incident | None,
    loss: Incident | None,
) -> Decision:
    shown = _beside_alone(_deciding(word, evidence, hypothesis), evidence)
    return Decision(word=word, tests=tuple(evidence), shown=shown, change=change, loss=loss)


def _beside_alone(deciding: Evidence, evidence: Sequence[Evidence]) -> tuple[Evidence, ...]:
    return (deciding, *(e for e in evidence if e.m == evidence[0].m and e is not deciding))


def _deciding(word: VerdictWord, evidence: Sequence[Evidence], hypothesis: Hypothesis) -> Evidence:
    limits = hypothesis.thresholds
    if word in {VerdictWord.IMPROVED, VerdictWord.RISING}:
        found = gains(evidence, limits) or rises(evidence, limits)
        return max(found, key=lambda e: e.test.delta / e.test.stderr)
    if word is VerdictWord.SUSPECT:
        return strongest_of(suspects(evidence, limits))
    if word in IS_BACK:
        return (against_peak(evidence) or evidence)[0]
    found = losses(evidence, limits)
    if word is VerdictWord.FORGOTTEN:
        return strongest_of(against_peak(found) or found)
    if word in {VerdictWord.REGRESSED, VerdictWord.BELOW_GUESSING}:
        return strongest_of(found)
    return evidence[0]
