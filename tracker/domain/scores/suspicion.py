"""All rules for the verdicts `suspect` and `rising`, which are shown without a notification. Pure.

verdict of a run, or of two checkpoints    looks_changed
screen of a benchmark                      part_looks_worse
latency                                    looks_changed, of a log ratio
evidence too weak for an alarm             at_most_suspect, also for a dip that is expected
all benchmarks together                    loss_of_all
neither a change nor its absence shown     without_proof
"""

from tracker.domain.records.losses import Closing, Incident
from tracker.domain.records.types import WORSE, VerdictWord

SUSPECT_P = 0.01
"""About 1 healthy checkpoint in 100 is suspect."""

SCREEN_P = 0.02
"""Level of each test, not shared: a screen must be suspect for any loss that the whole benchmark would show."""


def looks_changed(p: float, change: float, smallest: float, *, tests: int = 1) -> bool:
    """Return whether one of `tests` would show a change that matters if this checkpoint were the only one of the run.

    `p` is one-sided, of a loss or of a gain; `change` is its size, and `smallest` the smallest that matters. The tests
    of a checkpoint share the level.
    """
    return p < SUSPECT_P / tests and change >= smallest


def part_looks_worse(p_worse: float) -> bool:
    """Return whether a test of a part of the benchmark is reason to evaluate all of it.

    The size of the loss does not matter: a part of the samples shows it only with a wide margin.
    """
    return p_worse < SCREEN_P


def without_proof(*, is_suspect: bool, is_rising: bool = False) -> VerdictWord:
    """Return the verdict if neither a change nor its absence is shown; a possible loss outweighs a possible gain."""
    if is_suspect:
        return VerdictWord.SUSPECT
    if is_rising:
        return VerdictWord.RISING
    return VerdictWord.INCONCLUSIVE


def loss_of_all(*, is_provisional: bool) -> VerdictWord:
    """Return the verdict on a loss of all benchmarks together; provisional: only one checkpoint shows it yet."""
    if is_provisional:
        return VerdictWord.SUSPECT
    return VerdictWord.REGRESSED


def word_of_loss(incident: Incident) -> VerdictWord:
    """Return the verdict on a loss at the checkpoints that show it, whatever became of it."""
    if incident.closed_by is Closing.TRANSIENT:
        return VerdictWord.TRANSIENT
    if incident.forgotten:
        return VerdictWord.FORGOTTEN
    return loss_of_all(is_provisional=incident.provisional)


def at_most_suspect(word: VerdictWord) -> VerdictWord:
    """Return `word`, or SUSPECT for a loss on evidence that is too weak for an alarm.

    This applies to means without samples: the item variance is no bound if the correlation of checkpoints decreases
    with their distance, a reported standard error may treat similar questions as independent, and nothing shows that
    all checkpoints answered the same questions. It applies to latency while the noise between starts of the engine is
    unknown.
    """
    if word in WORSE:
        return VerdictWord.SUSPECT
    return word
