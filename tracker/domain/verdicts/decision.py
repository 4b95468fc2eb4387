"""The word for one subject at one checkpoint, and what it means for the losses that are known. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tracker.domain.records.types import Baseline, Incident, Measure, VerdictWord
from tracker.domain.regression.blocks import peak_blocks, peak_width
from tracker.domain.regression.detector import Evidence
from tracker.domain.regression.pooled_test import PooledTest, pooled_test
from tracker.domain.scores.suspicion import without_proof
from tracker.domain.verdicts.hypothesis import (
    Hypothesis,
    gains,
    is_equivalent,
    is_suspicious,
    losses,
    strongest_of,
    suspects,
    word_of,
)
from tracker.domain.verdicts.incidents import is_forgotten, is_recovered, opened, recovered

MIN_COMMON = 0.95
"""With fewer common samples the two sides may differ because other samples were asked, not because of the model."""

MIN_SAMPLES = 10
"""Of 2 samples both turn wrong in a healthy run, and nothing then shows how much they scatter: 9 of 10 runs would raise
a false alarm with 2 samples, 1 of 10 with 5."""

LEARNED_P = 0.01
LEARNED_EFFECT = 0.02


@dataclass(frozen=True, kw_only=True)
class Decision:
    """A word, the tests it rests on, and what becomes of the loss."""

    word: VerdictWord
    tests: tuple[Evidence, ...]
    """All that were made."""
    shown: tuple[Evidence, ...]
    """The deciding one first, then the candidate alone against each baseline."""
    change: Incident | None = None
    """The incident that opens, changes or ends here; None: nothing new."""
    lost_since: int | None = None


def comparable(evidence: Sequence[Evidence], at_least: int = MIN_SAMPLES) -> tuple[Evidence, ...]:
    """Return the tests whose two sides share enough samples: `at_least` so many, and a large part of all."""
    return tuple(e for e in evidence if e.test.common_fraction >= MIN_COMMON and e.test.n >= at_least)


def decide(
    hypothesis: Hypothesis, evidence: Sequence[Evidence], known: Incident | None, *, run_id: str, chance: float | None
) -> Decision:
    """Return what the tests of a subject say.

    Args:
        hypothesis: the subject at its candidate.
        evidence: its tests; at least one, all comparable.
        known: its loss that is open, or None.
        run_id: of the run.
        chance: score of guessing; None: unknown.
    """
    if known is not None and is_recovered(hypothesis, known):
        # A subset is tested by four checkpoints together, which hold some of the loss still: the newest alone shows it.
        alone = comparable(hypothesis.evidence()) or tuple(evidence)
        return _decision(VerdictWord.RECOVERED, hypothesis, alone, recovered(hypothesis, known), known)
    word = word_of(evidence, hypothesis.thresholds)
    if word is not VerdictWord.REGRESSED:
        return _decision(word, hypothesis, evidence, None, known)
    incident = known or opened(hypothesis, run_id, losses(evidence, hypothesis.thresholds))
    if not _has_forgotten(hypothesis, chance):
        return _decision(word, hypothesis, evidence, incident if known is None else None, incident)
    change = _newly_forgotten(hypothesis, incident, known)
    return _decision(VerdictWord.FORGOTTEN, hypothesis, evidence, change, incident)


def decide_screened(hypothesis: Hypothesis, evidence: Sequence[Evidence], known: Incident | None) -> Decision:
    """Return what the tests of a checkpoint say that asked a part of the samples: at most that all are to be asked.

    It opens and ends no loss and spends no alpha, so that the whole benchmark of the same checkpoint is still the
    first and only look at it that decides.
    """
    is_suspect, word = is_suspicious(evidence), VerdictWord.EQUIVALENT
    if is_suspect or not is_equivalent(evidence, hypothesis.thresholds):
        word = without_proof(is_suspect=is_suspect)
    shown = _beside_alone(strongest_of(evidence) if is_suspect else evidence[0], evidence)
    return Decision(word=word, tests=tuple(evidence), shown=shown, lost_since=_onset(known))


def was_learned(hypothesis: Hypothesis, chance: float | None) -> bool:
    """Return whether the peak lies above the first block of the run, or above chance, by p < .01 and 2 points.

    Above both where the run begins untrained, at step 0: such a model may be above chance by a habit of its answers.
    """
    track, width = hypothesis.track, peak_width(hypothesis.level.planned, hypothesis.track.rows.size)
    means = track.scores.means
    peak = peak_blocks(track.rows, means, 1, width)
    if peak is None:
        return False
    weights = np.zeros((2, means.size))
    weights[:, peak.base] = 1 / peak.base.size
    weights[0, track.rows[:width]] -= 1 / width
    risen, level = track.scores.contrasts(weights)
    is_first = bool(peak.base[0] == track.rows[0])
    above = [
        not is_first and _is_above(pooled_test(risen, hypothesis.jitter, peak.base.size, width), peak.selected_from)
    ]
    if chance is not None:
        over = replace(level, delta=level.delta - chance)
        above.append(_is_above(pooled_test(over, hypothesis.jitter, peak.base.size, math.inf), peak.selected_from))
    if hypothesis.steps[int(track.rows[0])] == 0:
        return all(above)
    return any(above)


# --- private


def _has_forgotten(hypothesis: Hypothesis, chance: float | None) -> bool:
    is_score = hypothesis.subject.measure is Measure.SCORE
    return is_score and is_forgotten(hypothesis) and was_learned(hypothesis, chance)


def _newly_forgotten(hypothesis: Hypothesis, incident: Incident, known: Incident | None) -> Incident | None:
    forgotten = replace(incident, forgotten=True)
    # Judged again after a crash, the incident knows already what is new here: the checkpoint before tells.
    if forgotten != known or not is_forgotten(hypothesis, 1):
        return forgotten
    return None


def _is_above(test: PooledTest, selected_from: int) -> bool:
    return test.p_better(selected_from) < LEARNED_P and test.delta >= LEARNED_EFFECT


def _decision(
    word: VerdictWord,
    hypothesis: Hypothesis,
    evidence: Sequence[Evidence],
    change: Incident | None,
    lasting: Incident | None,
) -> Decision:
    shown = _beside_alone(_deciding(word, evidence, hypothesis), evidence)
    return Decision(word=word, tests=tuple(evidence), shown=shown, change=change, lost_since=_onset(lasting))


def _onset(incident: Incident | None) -> int | None:
    if incident is None:
        return None
    return incident.onset_step


def _beside_alone(deciding: Evidence, evidence: Sequence[Evidence]) -> tuple[Evidence, ...]:
    """Return the deciding test, and then the candidate alone against each baseline."""
    return (deciding, *(e for e in evidence if e.m == evidence[0].m and e is not deciding))


def _deciding(word: VerdictWord, evidence: Sequence[Evidence], hypothesis: Hypothesis) -> Evidence:
    if word is VerdictWord.IMPROVED:
        return max(gains(evidence, hypothesis.thresholds), key=lambda e: e.test.delta / e.test.stderr)
    if word is VerdictWord.SUSPECT:
        return strongest_of(suspects(evidence, hypothesis.thresholds))
    if word is VerdictWord.RECOVERED:
        return (_against_peak(evidence) or evidence)[0]
    found = losses(evidence, hypothesis.thresholds)
    if word is VerdictWord.FORGOTTEN:
        return strongest_of(_against_peak(found) or found)
    if word is VerdictWord.REGRESSED:
        return strongest_of(found)
    return evidence[0]


def _against_peak(evidence: Sequence[Evidence]) -> tuple[Evidence, ...]:
    return tuple(e for e in evidence if e.blocks.baseline is Baseline.PEAK)
