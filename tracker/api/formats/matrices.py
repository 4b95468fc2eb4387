"""The forgetting of one run as a matrix."""

from collections.abc import Iterable, Sequence
from typing import Literal

from pandas import DataFrame

from eval_jobs.errors import ConfigError
from tracker.domain.forgetting.types import RunLedger
from tracker.domain.tables.matrices import changes_from_best, levels_after_phases


def forgetting_matrix_of(runs: Sequence[str], ledgers: Iterable[RunLedger], by: Literal["step", "phase"]) -> DataFrame:
    """Return the matrix of the only run; see `Project.forgetting_matrix`."""
    if len(runs) != 1:
        what = f"a matrix is of one run, and there are {len(runs)}"
        raise ConfigError(what, hint="choose one: project[RUN].forgetting_matrix()")
    if by not in ("step", "phase"):
        raise ConfigError(f"by={by!r} is unknown", hint='pass "step" or "phase"')
    (ledger,) = ledgers
    if by == "phase":
        names = [phase.name for phase in ledger.phases]
        return DataFrame(levels_after_phases(ledger), index=names, dtype="float64").rename_axis("phase")
    found = DataFrame(changes_from_best(ledger), index=list(ledger.steps), dtype="float64").T
    return found.rename_axis(index="benchmark", columns="step")
