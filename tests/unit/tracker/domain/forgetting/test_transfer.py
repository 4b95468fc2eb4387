import csv
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from tests.requires import shared_data
from tests.unit.tracker.domain.forgetting.building import JITTER, levels, steps_of, unit_of
from tracker.domain.forgetting.levels import LedgerSubject
from tracker.domain.forgetting.transfer import Origin, backward_transfer, origin_of, phase_spans
from tracker.domain.records.policy import Phase
from tracker.domain.regression.detector import Track
from tracker.domain.scores.matrix import Contrast, FloatArray

PHASES = (Phase(name="a", from_step=0), Phase(name="b", from_step=600), Phase(name="c", from_step=1200))
ROWS = np.arange(18)


def learned(shares: Sequence[float], n: int = 200) -> Origin:
    found = origin_of(unit_of(levels(n, shares)), phase_spans(PHASES, steps_of(18), ROWS))
    assert found is not None
    return found


def name_of(origin: Origin) -> str | None:
    return None if origin.span is None else origin.span.phase.name


def test_the_checkpoint_at_a_border_belongs_to_the_phase_before_it() -> None:
    spans = phase_spans(PHASES, steps_of(18), ROWS)
    assert [(s.phase.name, s.rows[0], s.rows[-1]) for s in spans] == [("a", 0, 5), ("b", 6, 11), ("c", 12, 17)]


def test_phases_without_checkpoints_are_left_out_and_one_phase_is_none() -> None:
    assert [s.phase.name for s in phase_spans(PHASES, steps_of(18), ROWS[:9])] == ["a", "b"]
    assert phase_spans(PHASES, steps_of(18), ROWS[:5]) == ()
    assert phase_spans((), steps_of(18), ROWS) == ()


def test_the_order_in_which_phases_are_marked_does_not_matter() -> None:
    spans = phase_spans(PHASES[::-1], steps_of(18), ROWS)
    assert [s.phase.name for s in spans] == ["a", "b", "c"]


def test_a_benchmark_was_learned_in_the_phase_in_which_it_rose_most() -> None:
    first = learned((0.1, 0.3, 0.5, 0.8, 0.8, 0.8, *(0.5,) * 6, *(0.2,) * 6))
    second = learned((*(0.1,) * 6, 0.2, 0.5, 0.7, 0.7, 0.7, 0.7, *(0.6,) * 6))
    last = learned((*(0.1,) * 12, 0.3, 0.6, 0.8, 0.8, 0.8, 0.8))
    assert [name_of(t) for t in (first, second, last)] == ["a", "b", "c"]
    assert (first.reference.first_step, first.reference.last_step) == (400, 600)
    assert first.test.delta == pytest.approx(0.2 - 0.8)
    assert second.test.delta == pytest.approx(0.6 - 0.7)


def test_what_was_learned_in_no_phase_is_followed_from_its_first_measurement() -> None:
    known = learned((*(0.7,) * 6, *(0.6,) * 6, *(0.4,) * 6))
    assert name_of(known) is None
    assert (known.reference.first_step, known.reference.last_step) == (100, 300)
    assert known.test.delta == pytest.approx(0.4 - 0.7)


def test_a_rise_that_may_be_chance_is_no_learning() -> None:
    assert name_of(learned((*(0.5,) * 6, *(0.51,) * 6, *(0.5,) * 6))) is None


def test_backward_transfer_is_the_mean_over_what_was_measured_after_it_was_learned() -> None:
    fell = learned((0.1, 0.3, 0.5, 0.8, 0.8, 0.8, *(0.5,) * 6, *(0.2,) * 6))
    kept = learned((*(0.1,) * 6, 0.2, 0.5, 0.7, 0.7, 0.7, 0.7, *(0.7,) * 6))
    new = learned((*(0.1,) * 12, 0.3, 0.6, 0.8, 0.8, 0.8, 0.8))
    found = backward_transfer([("fell", fell), ("kept", kept), ("new", new)])
    assert found is not None
    assert found.benchmarks == ("fell", "kept")
    assert found.mean == pytest.approx((-0.6 + 0.0) / 2)
    assert found.stderr == pytest.approx(np.hypot(fell.test.stderr, kept.test.stderr) / 2)
    assert found.ci_low < found.mean < found.ci_high
    assert backward_transfer([("new", new)]) is None
    assert backward_transfer([]) is None


def test_the_interval_of_one_benchmark_is_that_of_its_test() -> None:
    fell = learned((0.1, 0.3, 0.5, 0.8, 0.8, 0.8, *(0.5,) * 6, *(0.2,) * 6))
    found = backward_transfer([("fell", fell)])
    assert found is not None
    assert (found.ci_low, found.ci_high) == pytest.approx(fell.test.interval(), rel=1e-9)


@dataclass(frozen=True)
class Reported:
    """Accuracies that others reported, each of 1000 samples."""

    means: FloatArray

    def contrasts(self, weights: FloatArray) -> tuple[Contrast, ...]:
        means = np.nan_to_num(self.means)  # a task is not measured before its phase
        variance = means * (1 - means) / 1000
        return tuple(
            Contrast(delta=float(w @ means), item_variance=float(w**2 @ variance), n=1000, common_fraction=1.0)
            for w in weights
        )


@pytest.mark.shared_data
@pytest.mark.parametrize("run", ["order1_seqft", "order1_olora", "long_seqlora"])
def test_sequential_fine_tuning_of_t5_forgets_what_its_matrix_of_results_says(run: str) -> None:
    rows = list(csv.DictReader(shared_data("forgetting/olora/forgetting.csv").read_text().splitlines()))
    own = [r for r in rows if r["run"] == run and r["metric"] == "exact_match"]
    score = {(int(r["stage"]), r["eval_task"]): float(r["value"]) / 100 for r in own}
    tasks = {r["trained_on"]: int(r["stage"]) for r in own}
    newest = max(tasks.values())
    phases = [Phase(name=task, from_step=100 * (stage - 1)) for task, stage in tasks.items()]
    found = []
    for task, stage in tasks.items():
        means = np.array([score.get((s, task), np.nan) for s in range(1, newest + 1)])
        track = Track(scores=Reported(means), rows=np.arange(stage - 1, newest))
        unit = LedgerSubject(
            track=track, counted=track.rows, jitter=JITTER, steps=steps_of(newest), higher_is_better=True, chance=0.0
        )
        spans = phase_spans(phases, unit.steps, track.rows)
        origin = origin_of(unit, spans, is_late=stage > 1) if spans else None
        found += [(task, origin)] if origin is not None else []
    earlier = {task: stage for task, stage in tasks.items() if stage < newest}
    transfer = backward_transfer(found)
    assert transfer is not None
    assert transfer.benchmarks == tuple(earlier)
    changes = [score[newest, task] - score[stage, task] for task, stage in earlier.items()]
    assert transfer.mean == pytest.approx(np.mean(changes))
    shares = [score[newest, task] / score[stage, task] for task, stage in earlier.items()]
    assert transfer.retention == pytest.approx(np.mean(shares))
    if run != "order1_olora":
        assert transfer.ci_high < -0.05
