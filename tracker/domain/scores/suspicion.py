"""All rules for the verdict `suspect`, which is shown without a notification. Pure.

verdict of a run, or of two checkpoints    looks_worse
screen of a benchmark                      part_looks_worse
latency                                    looks_worse, of a log ratio
evidence too weak for an alarm             at_most_suspect
neither a change nor its absence shown     without_proof
"""

from tracker.domain.records.types import VerdictWord

SUSPECT_P = 0.01
"""About 1 healthy checkpoint in 100 is suspect."""

SCREEN_P = 0.02
"""Level of each test, not shared: a screen must be suspect for any loss that the whole benchmark would show."""


def looks_worse(p_worse: float, loss: float, smallest: float, *, tests: int = 1) -> bool:
    """Return whether one of `tests` would show a loss that matters if this checkpoint were the only one of the run.

    `p_worse` is one-sided, `smallest` the smallest loss that matters; the tests of a checkpoint share the level.
    """
    return p_worse < SUSPECT_P / tests and loss >= smallest


def part_looks_worse(p_worse: float) -> bool:
    """Return whether a test of a part of the benchmark is reason to evaluate all of it.

    The size of the loss does not matter: a part of the samples shows it only with a wide margin.
    """
    return p_worse < SCREEN_P


def without_proof(*, is_suspect: bool) -> VerdictWord:
    """Return the verdict if neither a change nor its absence is shown."""
    if is_suspect:
        return VerdictWord.SUSPECT
    return VerdictWord.INCONCLUSIVE


def at_most_suspect(word: VerdictWord) -> VerdictWord:
    """Return `word`, or SUSPECT for a loss on evidence that is too weak for an alarm.

    This applies to means without samples: the item variance is no bound if the correlation of checkpoints decreases
    with their distance, a reported standard error may treat similar questions as independent, and nothing shows that
    all checkpoints answered the same questions. It applies to latency while the noise between starts of the engine is
    unknown.
    """
    if word in {VerdictWord.FORGOTTEN, VerdictWord.REGRESSED}:
        return VerdictWord.SUSPECT
    return word
