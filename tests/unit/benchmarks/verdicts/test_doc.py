"""docs/explanation/verdicts.md states what the engine's own numbers are, and shows benchmarks/verdicts/RESULTS.md."""

import math
import re

import pytest

from benchmarks.verdicts.campaign import NULLS, detectors
from benchmarks.verdicts.detector import DEFAULT
from benchmarks.verdicts.series import CLUSTERS, PLANTS
from docs.generator.verdict_results import GROUPS, Detector, Rate, detector_table
from tests.requires import PROJECT
from tracker.domain.records.types import Baseline
from tracker.domain.regression.budget import SCORE_SHARE, SUITE_SHARE
from tracker.domain.regression.detector import ErrorBudget
from tracker.domain.regression.jitter import Jitter
from tracker.domain.regression.pooled_test import independent, pooled_test
from tracker.domain.scores.matrix import Contrast

DOC = (PROJECT / "docs" / "explanation" / "verdicts.md").read_text(encoding="utf-8")
RESULTS = (PROJECT / "benchmarks" / "verdicts" / "RESULTS.md").read_text(encoding="utf-8")
LEVEL = ErrorBudget(alpha=0.05 * SCORE_SHARE * (1 - SUITE_SHARE), planned=100, benchmarks=20)


def smallest_loss(n: int, m: int) -> float:
    """In points; 10 % of the questions change between two checkpoints, a jitter of .3 points."""
    v_item = 0.10 / 2 * (1 / m + 1 / 10) / n
    contrast = Contrast(delta=0.0, item_variance=v_item, n=n, common_fraction=1.0)
    test = pooled_test(contrast, Jitter(tau2=0.003**2, variance=0.0), independent(m, 10))
    return 100 * test.mde(LEVEL.alpha_test(50, m, Baseline.RECENT))


def test_the_smallest_losses_are_those_of_the_tests() -> None:
    rows = re.findall(r"^\| ([\d,]+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|$", DOC, re.MULTILINE)
    assert len(rows) == 5
    for n, *points in rows:
        expected = [smallest_loss(int(n.replace(",", "")), m) for m in (2, 4, 8)]
        assert [float(p) for p in points] == pytest.approx(expected, abs=0.051)


def test_the_levels_are_those_of_the_budget() -> None:
    levels = [LEVEL.alpha_test(50, m, b) for m in (1, 2, 4, 8) for b in (Baseline.RECENT, Baseline.PEAK)]
    found = re.search(r"leaves (0\.0+\d) to (0\.0+\d) per test", DOC)
    assert found is not None
    assert [float(x) for x in found.groups()] == pytest.approx([min(levels), max(levels)], rel=0.1)
    assert sum(levels) == pytest.approx(0.05 * SCORE_SHARE * (1 - SUITE_SHARE) / 100 / 20)
    assert math.isclose(sum(LEVEL.design.by_pooled.values()), 1.0)


def test_the_measured_tables_name_detectors_that_there_are_and_every_loss() -> None:
    headers = re.findall(rf"^\| +(\| {DEFAULT}\b.*)\|$", RESULTS, re.MULTILINE)
    named = {cell.strip() for header in headers for cell in header.strip("|").split("|")} - {""}
    assert DEFAULT in named <= {d.name for d in detectors()}
    for row in [f"FWER {kind}" for kind in NULLS] + [f"{plant} n={n}" for plant in PLANTS for n in CLUSTERS]:
        assert f"\n| {row} " in RESULTS


def test_the_picture_shows_every_detector_of_the_measured_table_once() -> None:
    shown = [name for labels in GROUPS.values() for name in labels]
    assert sorted(shown) == sorted({name for _, name in detector_table(RESULTS)})


def test_a_detector_keeps_the_limit_if_no_interval_is_above_it() -> None:
    healthy = Rate(share=4, low=1.1, high=9.9)
    for worst, keeps in (Rate(share=9, low=4.2, high=16.4), True), (Rate(share=12, low=5.1, high=20), False):
        assert Detector(label="", alarms=(healthy, worst), found=()).keeps_limit is keeps
