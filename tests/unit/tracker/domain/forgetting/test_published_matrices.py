"""Matrices R[i][j] as papers on continual learning publish them: score of task j at the end of phase i.

Backward transfer is the mean of R[T][j] - R[j][j] (Lopez-Paz and Ranzato 2017), retention R[T][j] / R[j][j] above
guessing, forgetting the maximum of R[l][j] over l < T, minus R[T][j] (Chaudhry et al. 2018).
"""

from collections.abc import Mapping, Sequence

import pytest

from tests.unit.tracker.domain.judging import right, scores_of
from tests.unit.tracker.domain.making import record_of
from tracker.domain.forgetting.ledger import run_ledger
from tracker.domain.forgetting.transfer import ReferenceKind
from tracker.domain.forgetting.types import BenchmarkLedger, RunLedger
from tracker.domain.records.policy import Phase, Policy

Column = Sequence[float | None]
"""Score at every checkpoint, of 200 samples; None: not measured."""
FIRST, END = ReferenceKind.FIRST, ReferenceKind.PHASE_END


def ledger_of(matrix: Mapping[str, Column], *, a_phase: int = 1, chance: float | None = None) -> RunLedger:
    """Return the ledger of a run with a checkpoint every 100 steps, `a_phase` of them in each phase."""
    count = len(next(iter(matrix.values())))
    records = []
    for at in range(count):
        measured = {task: right(round(200 * r)) for task, column in matrix.items() if (r := column[at]) is not None}
        records.append(record_of(100 * (at + 1), measured))
    phases = [Phase(name=f"phase {at + 1}", from_step=100 * a_phase * at) for at in range(count // a_phase)]
    chances = {} if chance is None else dict.fromkeys(matrix, chance)
    return run_ledger(scores_of(records), Policy(phases=tuple(phases), chance=chances), details=0)


def of(ledger: RunLedger, task: str) -> BenchmarkLedger:
    return next(one for one in ledger.benchmarks if one.benchmark == task)


@pytest.mark.parametrize(
    ("matrix", "transfer", "references"),
    [
        pytest.param(
            {"a": (0.8, 0.5, 0.6), "b": (None, 0.7, 0.6), "c": (None, None, 0.9)},
            ((0.6 - 0.8) + (0.6 - 0.7)) / 2,
            {"a": (FIRST, None, 0.8), "b": (FIRST, None, 0.7)},
            id="first measured at the end of its own phase",
        ),
        pytest.param(
            {"a": (None, 0.7, 0.4), "b": (0.1, 0.8, 0.6), "c": (0.1, 0.1, 0.9)},
            ((0.4 - 0.7) + (0.6 - 0.8)) / 2,
            {"a": (FIRST, None, 0.7), "b": (END, "phase 2", 0.8), "c": (END, "phase 3", 0.9)},
            id="first measured after its own phase",
        ),
        pytest.param(
            {"a": (0.8, 0.6, 0.7), "b": (0.1, 0.8, 0.5), "c": (0.1, 0.1, 0.9)},
            ((0.7 - 0.8) + (0.5 - 0.8)) / 2,
            {"a": (FIRST, None, 0.8), "b": (END, "phase 2", 0.8)},
            id="measured at the end of every phase",
        ),
        pytest.param(
            {"a": (0.8, 0.9, 0.9), "b": (None, 0.6, 0.7), "c": (None, None, 0.9)},
            ((0.9 - 0.8) + (0.7 - 0.6)) / 2,
            {"a": (FIRST, None, 0.8), "b": (FIRST, None, 0.6)},
            id="improved by later phases",
        ),
        pytest.param(
            {"a": (0.9, 0.2, 0.8, 0.3, 0.6), "b": (None, 0.6, 0.2, 0.5, 0.4), "c": (None, None, 0.8, 0.1, 0.2)},
            ((0.6 - 0.9) + (0.4 - 0.6) + (0.2 - 0.8)) / 3,
            {"a": (FIRST, None, 0.9), "b": (FIRST, None, 0.6), "c": (FIRST, None, 0.8)},
            id="partly recovered in later phases",
        ),
        pytest.param(
            {"a": (0.5, 0.95, 0.8), "b": (None, 0.5, 0.5)},
            ((0.8 - 0.95) + 0) / 2,
            {"a": (END, "phase 2", 0.95)},
            id="two answers to choose from",
        ),
    ],
)
def test_backward_transfer_is_that_of_the_matrix(
    matrix: Mapping[str, Column],
    transfer: float,
    references: Mapping[str, tuple[ReferenceKind, str | None, float]],
) -> None:
    ledger = ledger_of(matrix)
    assert ledger.backward_transfer is not None
    assert ledger.backward_transfer.mean == pytest.approx(transfer)
    for task, expected in references.items():
        since = of(ledger, task).since
        assert since is not None
        assert (since.reference_is, since.learned_in, since.reference.mean) == pytest.approx(expected)


def test_retention_is_that_of_the_matrix_where_guessing_is_known() -> None:
    matrix = {"a": (0.8, 0.5, 0.6), "b": (None, 0.7, 0.6), "c": (0.2, 0.2, 0.9)}
    ledger = ledger_of(matrix, chance=0.2)
    found = [since.retention for task in "ab" if (since := of(ledger, task).since)]
    assert found == pytest.approx([(0.6 - 0.2) / (0.8 - 0.2), (0.6 - 0.2) / (0.7 - 0.2)])
    assert ledger.backward_transfer is not None
    assert ledger.backward_transfer.retention == pytest.approx((2 / 3 + 0.8) / 2)
    unknown = ledger_of(matrix).backward_transfer
    assert unknown is not None
    assert unknown.retention is None


def test_retention_needs_no_chance_where_the_level_before_was_measured() -> None:
    since = of(ledger_of({"a": (0.1, 0.8, 0.45)}), "a").since
    assert since is not None
    assert since.retention == pytest.approx((0.45 - 0.1) / (0.8 - 0.1))


def test_guessing_is_known_for_usual_benchmarks_that_the_settings_do_not_name() -> None:
    ledger = ledger_of({"mmlu": (0.75, 0.5), "mine": (0.75, 0.5)})
    assert (of(ledger, "mmlu").chance, of(ledger, "mine").chance) == (0.25, None)
    since = of(ledger, "mmlu").since
    assert since is not None
    assert since.retention == pytest.approx(0.5)


def test_forgetting_is_that_of_the_matrix_and_mixes_no_phases() -> None:
    found = of(ledger_of({"a": (0.9, 0.2, 0.8, 0.3, 0.6, 0.5), "b": (0.1,) * 6}, chance=0.1), "a").whole.forgetting
    assert found is not None
    assert (found.peak.mean, found.last.mean, found.forgetting) == pytest.approx((0.9, 0.5, 0.4))
    assert found.retention == pytest.approx((0.5 - 0.1) / (0.9 - 0.1))


@pytest.mark.parametrize(
    ("scores", "learned_in", "change"),
    [
        ((*(0.7,) * 6, *(0.3,) * 6, *(0.6,) * 6), None, 0.6 - 0.7),
        ((0.1, 0.3, 0.5, 0.8, 0.8, 0.8, *(0.2,) * 6, *(0.7,) * 6), "phase 1", 0.7 - 0.8),
        ((0.1, 0.8, 0.8, 0.8, 0.3, 0.3, *(0.3,) * 6, *(0.7,) * 6), None, 0.7 - (0.1 + 0.8 + 0.8) / 3),
        ((*(0.5,) * 6, *(0.2,) * 6, *(0.9,) * 6), "phase 3", 0.0),
    ],
    ids=["known at first", "learned, lost, partly back", "lost in its own phase", "lost, then far above all before"],
)
def test_what_comes_back_in_part_was_not_learned_then(scores: Column, learned_in: str | None, change: float) -> None:
    since = of(ledger_of({"a": scores}, a_phase=6), "a").since
    assert since is not None
    assert (since.learned_in, since.change) == pytest.approx((learned_in, change))


def test_the_newest_checkpoint_alone_shows_a_loss_that_the_mean_of_several_hides() -> None:
    row = of(ledger_of({"a": (0.1,) * 5 + (0.81,) * 14 + (0.0,)}, a_phase=20), "a").whole
    assert row.flow is not None
    assert row.newest is not None
    assert (row.flow.lost, row.newest.lost, row.newest.gained, row.newest.samples) == (0, 162, 0, 200)


def test_the_first_checkpoint_of_a_phase_shows_what_it_lost() -> None:
    scores = (0.1, 0.4, 0.8, 0.8, 0.8, 0.8, 0.0)
    row = of(ledger_of({"a": (*scores, None, None, None, None, None), "b": (0.5,) * 12}, a_phase=6), "a").whole
    assert (row.flow, row.newest and row.newest.lost) == (None, 160)
