"""What a person may do about losses, as commands to copy. Pure.

steps = advice_text("sft", found, best)       # the questions, the checkpoint to go back to, how a level is accepted
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tracker.domain.best.champions import CHAMPION
from tracker.domain.overview.run import WORSE, Standing
from tracker.domain.records.tracking import Champion


@dataclass(frozen=True, kw_only=True)
class Advice:
    """One thing to do."""

    says: str
    command: str


def advice_text(run_id: str, found: Sequence[Standing], champions: Iterable[Champion]) -> tuple[Advice, ...]:
    """Return what to do about the most urgent benchmark that is worse; nothing where none is.

    Args:
        run_id: of the run.
        found: where each benchmark stands, most urgent first.
        champions: the best checkpoints of the run.
    """
    worst = next((standing for standing in found if standing.word in WORSE), None)
    if worst is None:
        return ()
    best = next((c.checkpoint.step for c in champions if c.alias == CHAMPION), None)
    return tuple(_advice(run_id, worst, best))


# --- private


def _advice(run_id: str, worst: Standing, best: int | None) -> Iterator[Advice]:
    def at(step: int) -> str:
        return shlex.quote(f"{run_id}@{step}")

    if worst.best_steps:
        before, now = at(worst.best_steps[-1]), at(worst.step)
        yield Advice(says="The questions that changed, with both answers:", command=f"tracker compare {before} {now}")
    if best is not None and best < worst.step:
        yield Advice(says="The best checkpoint, to go back to:", command=f"tracker report {at(best)}")
    accepted = f"tracker accept {at(worst.step)} {shlex.quote(worst.benchmark)} --reason WHY"
    yield Advice(says="If this level is meant:", command=accepted)
