"""When something is called `suspect`: shown, without a notification. Every rule for that is here. Pure.

verdict of a run, or of two checkpoints    looks_worse
part of a benchmark that was asked first   part_looks_worse
latency                                    looks_worse, of a log ratio
evidence that no alarm may rest on         at_most_suspect
neither a change nor its absence shown     without_proof
"""

from tracker.domain.records.types import VerdictWord

SUSPECT_P = 0.01
"""About 1 healthy checkpoint in 100."""

SCREEN_P = 0.05
"""Of one test, and not shared among those of a checkpoint: what the whole benchmark would find must be asked for."""


def looks_worse(p_worse: float, loss: float, smallest: float, *, tests: int = 1) -> bool:
    """Return whether one of `tests` would show a loss that matters if this checkpoint were the only one of the run.

    Args:
        p_worse: one-sided p of "worse".
        loss: by how much it is worse.
        smallest: the smallest loss that matters.
        tests: how many are made of this checkpoint and share the level.
    """
    return p_worse < SUSPECT_P / tests and loss >= smallest


def part_looks_worse(p_worse: float) -> bool:
    """Return whether a test of a part of the benchmark is reason enough to ask all of it.

    However small the loss looks: on a part of the samples it is seen with a wide margin.
    """
    return p_worse < SCREEN_P


def without_proof(*, is_suspect: bool) -> VerdictWord:
    """Return the word where neither a change nor its absence is shown."""
    if is_suspect:
        return VerdictWord.SUSPECT
    return VerdictWord.INCONCLUSIVE


def at_most_suspect(word: VerdictWord) -> VerdictWord:
    """Return what may be said of a loss that no alarm may rest on.

    That is one that is known from means without samples: the item variance is no bound where the correlation of
    checkpoints fades with their distance, a reported standard error may take alike questions for independent ones, and
    nothing shows that all checkpoints answered the same questions. And one in latency as long as the noise between
    starts of the engine is not known.
    """
    if word in {VerdictWord.FORGOTTEN, VerdictWord.REGRESSED}:
        return VerdictWord.SUSPECT
    return word
