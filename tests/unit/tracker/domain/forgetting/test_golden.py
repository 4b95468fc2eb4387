"""The ledger's numbers against values that were computed without it."""

import json
from typing import Any

import numpy as np
import pytest

from tests.requires import PROJECT, shared_data
from tests.unit.tracker.domain.forgetting.building import matrix_from, unit_of
from tracker.domain.forgetting.levels import forgetting_of, raw_forgetting
from tracker.domain.forgetting.sample_lives import event_matrix, flow_between, is_lost, known_share, lives_of
from tracker.domain.regression.jitter import Jitter

GOLDEN = json.loads((PROJECT / "tests" / "golden" / "forgetting.json").read_text(encoding="utf-8"))
TOLERANCE = 1e-9
LETTERS = np.array(list(".LFR"))


def values_of(rows: list[str]) -> np.ndarray:
    return np.array([[float("nan") if c == "-" else float(c) for c in row] for row in rows])


@pytest.mark.parametrize("case", GOLDEN["levels"], ids=lambda case: f"{len(case['rows'])} checkpoints")
def test_the_forgetting_of_a_benchmark(case: dict[str, Any]) -> None:
    unit = unit_of(values_of(case["rows"]), Jitter(tau2=case["tau2"], variance=case["var_tau2"]))
    found, expected = forgetting_of(unit), case["expect"]
    assert found is not None
    assert [found.peak.first_step, found.peak.last_step] == [100 * (row + 1) for row in expected["peak_rows"]]
    assert [found.last.first_step, found.last.last_step] == [100 * (row + 1) for row in expected["last_rows"]]
    assert found.dip.step == 100 * (expected["dip_row"] + 1)
    for name in ("forgetting", "stderr", "ci_low", "ci_high", "p_value", "raw", "raw_by_chance"):
        assert getattr(found, name) == pytest.approx(expected[name], rel=TOLERANCE), name
    kept = expected["retention"]
    kept = None if kept is None else min(max(kept, 0.0), 1.0)
    for name, wanted in (("retention", kept), ("relative", expected["relative"])):
        assert getattr(found, name) == (None if wanted is None else pytest.approx(wanted, rel=TOLERANCE)), name
    assert found.dip.depth == pytest.approx(expected["dip_depth"], rel=TOLERANCE)
    assert found.dip.by_chance == pytest.approx(expected["dip_by_chance"], rel=TOLERANCE)


def test_the_lives_of_samples() -> None:
    case = GOLDEN["samples"]
    matrix = matrix_from(values_of(case["lives"]).T)
    rows = np.arange(10)
    changes = event_matrix(lives_of(matrix, rows))
    assert ["".join(LETTERS[life]) for life in changes.T] == case["changes"]
    before, after = known_share(matrix, rows[:5]), known_share(matrix, rows[5:])
    assert [None if np.isnan(s) else s for s in before] == case["share_before"]
    assert [None if np.isnan(s) else s for s in after] == case["share_after"]
    assert np.flatnonzero(is_lost(before, after)).tolist() == case["lost"]
    assert np.flatnonzero(is_lost(after, before)).tolist() == case["gained"]
    flow = flow_between(before, after, window=5)
    assert (flow.lost, flow.gained, flow.net_lost) == (3, 1, 2)


@pytest.mark.shared_data
def test_the_shared_cases() -> None:
    document = json.loads(shared_data("../verdicts/regression_golden.json").read_text(encoding="utf-8"))
    cases = [case for case in document["cases"] if case["kind"] == "forgetting"]
    assert cases
    for case in cases:
        values, expected = np.array(case["input"]["scores_checkpoints_by_items"], dtype=np.float64), case["expect"]
        unit = unit_of(values)
        matrix = matrix_from(values)
        rows = np.arange(values.shape[0])
        changes = event_matrix(lives_of(matrix, rows))
        forgotten = (changes == 2).sum(axis=0)
        known = matrix.codes[-1] == matrix.codes.max()
        learned = np.any(changes == 1, axis=0)
        assert matrix.means == pytest.approx(expected["means"], rel=TOLERANCE)
        assert unit.compare(rows[-1:], rows[:1]).delta == pytest.approx(expected["bwt_last_minus_first"], rel=TOLERANCE)
        assert raw_forgetting(matrix.means) == pytest.approx(expected["chaudhry_max_minus_last"], rel=TOLERANCE)
        assert forgotten.tolist() == expected["toneva_events_per_item"]
        assert np.flatnonzero(~learned).tolist() == expected["never_learned_items"]
        assert np.flatnonzero(learned & (forgotten == 0)).tolist() == expected["unforgettable_items"]
        assert np.flatnonzero(learned & ~known).tolist() == expected["lost_now_items"]
