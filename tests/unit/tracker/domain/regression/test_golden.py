"""The engine against reference values of an independent oracle, to nine digits."""

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.requires import PROJECT, shared_data
from tests.unit.tracker.domain.regression import oracle
from tests.unit.tracker.domain.regression.tables import evidence_at, matrix_of, table_of, track_of
from tracker.domain.records.types import Baseline
from tracker.domain.regression.blocks import Blocks
from tracker.domain.regression.budget import DEFAULT, PLAIN, Design
from tracker.domain.regression.detector import ErrorBudget, Evidence
from tracker.domain.regression.jitter import Jitter, SecondDifferences, estimate_jitter
from tracker.domain.regression.pooled_test import PooledTest, independent, pooled_test
from tracker.domain.scores.matrix import Contrast, FloatArray
from tracker.domain.scores.statistics.paired import Spread, mde, paired_test, t_cdf, t_quantile, tost_p
from tracker.domain.verdicts.hypothesis import Thresholds, word_of

GOLDEN: dict[str, Any] = json.loads((PROJECT / "tests" / "golden" / "verdicts.json").read_text(encoding="utf-8"))
THRESHOLDS = Thresholds(min_effect=0.01, equivalence_margin=0.01)
MANY = 10**9
"""So many samples that the allowance for unseen changes is nothing."""


def exactly(value: Any) -> Any:
    return pytest.approx(value, rel=1e-9, abs=1e-15)


def cases(kind: str) -> list[Any]:
    return [pytest.param(case, id=f"{kind}{i}") for i, case in enumerate(GOLDEN[kind])]


def evidence_with(delta: float, stderr: float, df: float, alpha_test: float) -> Evidence:
    test = PooledTest(delta=delta, stderr=stderr, item_stderr=stderr, df=df, n=MANY, common_fraction=1.0)
    blocks = Blocks(baseline=Baseline.RECENT, new=np.array([2]), base=np.array([0, 1]))
    return Evidence(blocks=blocks, test=test, alpha_test=alpha_test, jitter=Jitter(tau2=1e-6, variance=1e-13))


def contrast_weights(m: int, rows: int) -> FloatArray:
    return Blocks(baseline=Baseline.RECENT, new=np.arange(rows - m, rows), base=np.arange(rows - m)).weights(rows)[None]


def test_the_reference_values_are_those_of_the_oracle() -> None:
    def same(found: Any, stored: Any) -> None:
        if isinstance(stored, Mapping):
            assert found.keys() == stored.keys()
            for key, value in stored.items():
                same(found[key], value)
        elif isinstance(stored, list):
            assert len(found) == len(stored)
            for one, other in zip(found, stored, strict=True):
                same(one, other)
        else:
            assert found == (exactly(stored) if isinstance(stored, float) else stored)

    same(json.loads(json.dumps(oracle.golden())), GOLDEN)


@pytest.mark.parametrize("case", cases("jitter"))
def test_jitter_agrees(case: dict[str, Any]) -> None:
    histories = [
        [SecondDifferences(deltas=np.array(c), item_variances=np.array(v), size=size) for size, c, v in parts]
        for parts in case["histories"]
    ]
    for found, expected in zip(estimate_jitter(histories), case["expect"], strict=True):
        for one, (r, probability, tau2, tau4) in zip(found.persistent, expected, strict=True):
            assert (one.r, one.probability, one.tau2) == exactly((r, probability, tau2))
            assert one.tau4 == pytest.approx(tau4, rel=1e-9, abs=0)
        assert found.tau2 == exactly(sum(p * tau2 for _, p, tau2, _ in expected))


@pytest.mark.parametrize("case", cases("contrast"))
def test_contrasts_agree(case: dict[str, Any]) -> None:
    table = np.array(case["scores"])
    (found,) = matrix_of(table).contrasts(contrast_weights(case["m"], len(table)))
    assert found.delta == exactly(case["expect"]["delta"])
    assert found.item_variance == exactly(case["expect"]["item_variance"])
    assert (found.n, found.common_fraction) == (table.shape[1], 1.0)


@pytest.mark.parametrize("case", cases("pooled"))
def test_pooled_p_values_agree(case: dict[str, Any]) -> None:
    contrast = Contrast(delta=case["delta"], item_variance=case["item_variance"], n=100, common_fraction=1.0)
    test = pooled_test(
        contrast, Jitter(tau2=case["tau2"], variance=case["variance"]), independent(case["m"], case["width"])
    )
    expect = case["expect"]
    found = {"stderr": test.stderr, "df": test.df, "p_worse": test.p_worse(), "p_better": test.p_better()}
    assert found == exactly(expect)


@pytest.mark.parametrize("case", cases("verdict"))
def test_words_equivalence_and_detectable_effects_agree(case: dict[str, Any]) -> None:
    df = math.inf if case["df"] is None else case["df"]
    evidence = evidence_with(case["delta"], case["stderr"], df, case["alpha_test"])
    expect = dict(case["expect"])
    assert word_of([evidence], THRESHOLDS).value == expect.pop("word")
    found = {
        "p_worse": evidence.p_worse,
        "p_better": evidence.p_better,
        "equivalence_p": evidence.test.equivalence_p(0.01),
        "mde": evidence.test.mde(case["alpha_test"]),
    }
    assert found == exactly(expect)


@pytest.mark.parametrize(("name", "design"), [("plain", PLAIN), ("shipped", DEFAULT)])
def test_a_whole_run_agrees_test_by_test_and_the_loss_is_found_where_it_was_planted(name: str, design: Design) -> None:
    run = GOLDEN["run"]
    tables = [table_of(rows) for rows in run["scores"]]
    level = ErrorBudget(alpha=run["alpha"], planned=run["planned"], benchmarks=len(tables), design=design)
    expected = {tuple(row[:4]): row[4:] for row in run[name]}
    alarms = set()
    for t in range(len(tables[0])):
        for k, tests in enumerate(evidence_at([track_of(table[: t + 1]) for table in tables], level)):
            for e in tests:
                assert numbers_of(e) == exactly(expected.pop((t, k, e.m, e.blocks.baseline.value)))
                alarms |= {(t, k)} if e.is_loss(run["min_effect"]) else set()
    assert expected == {}
    assert {k for _, k in alarms} == {1}
    assert min(alarms) == (24, 1)


def numbers_of(e: Evidence) -> list[float]:
    blocks, test = e.blocks, e.test
    shown = [test.delta, test.stderr, test.df, e.p_worse, math.sqrt(e.jitter.tau2), e.alpha_test]
    return [int(blocks.base[0]), int(blocks.base[-1]), blocks.selected_from, *shown]


# --- reference values that others computed


KINDS = ("mcnemar", "paired_cluster", "paired_t", "pooled_contrast", "verdict", "n_needed")
"""Not noise_tau2_raw, noise_estimate, pooled_p and rec_end_to_end: they are of an estimate of jitter that trusted quiet
histories and of its t distribution (docs/decisions/0008-verdict-tests.md)."""


@pytest.mark.parametrize("kind", KINDS)
def test_reference_values_of_others_agree(kind: str) -> None:
    path = shared_data("../verdicts/regression_golden.json")
    found = [case for case in json.loads(path.read_text(encoding="utf-8"))["cases"] if case["kind"] == kind]
    assert found
    for case in found:
        CHECKS[kind](case["input"], case["expect"])


def check_mcnemar(given: Any, expect: Any) -> None:
    n, lost, gained = given["n"], given["n10_lost"], given["n01_gained"]
    baseline, candidate = np.zeros(n), np.zeros(n)
    baseline[:lost] = 1.0
    candidate[lost : lost + gained] = 1.0
    test = paired_test(candidate, baseline)
    assert (test.delta, test.stderr) == exactly((expect["D"], expect["se_item"]))
    assert test.p_worse == exactly(expect["p_midp_worse"])
    assert test.p_two_sided == exactly(expect["p_midp_two_sided"])
    if test.stderr:
        spread = Spread(centre=test.delta, stderr=test.stderr, df=math.inf)
        assert tost_p(spread, 0.01) == exactly(expect["tost_p_1pt"])
        assert mde(spread, 1.25e-5) == exactly(expect["mde_at_alpha_1.25e-5_power80"])


def check_paired(given: Any, expect: Any) -> None:
    groups = np.array(given["groups"]) if "groups" in given else None
    new, ref = np.array(given["new"], dtype=float), np.array(given["ref"], dtype=float)
    test = paired_test(new, ref, groups)
    assert test.delta == exactly(expect["D"])
    assert test.stderr == exactly(expect["se_item" if groups is None else "se_cluster"])
    assert test.spread.df == exactly(expect["df"])
    assert test.p_worse == exactly(expect["p_worse"])


def check_pooled_contrast(given: Any, expect: Any) -> None:
    table, m = np.array(given["rows_oldest_first"], dtype=float), given["m_new"]
    (contrast,) = matrix_of(table).contrasts(contrast_weights(m, len(table)))
    known = replace(contrast, n=MANY)
    test = pooled_test(known, Jitter(tau2=given["tau"] ** 2, variance=0.0), independent(m, given["W_baseline"]))
    z = test.delta / test.stderr
    p = t_cdf(z, math.inf)
    assert (test.delta, contrast.item_variance) == exactly((expect["D"], expect["v_item"]))
    assert (test.stderr, z, p) == exactly((expect["se"], expect["z"], expect["p_worse"]))
    assert min(1.0, p * given["peak_blocks"]) == exactly(expect["p_peak_adjusted"])
    level = ErrorBudget(alpha=0.05, planned=given["T_plan"], benchmarks=given["K"], design=PLAIN)
    assert (given["n_baselines"], given["n_m"]) == (2, 4)
    assert level.alpha_test(7, m, Baseline.PEAK) == exactly(expect["alpha_test"])


def check_verdict(given: Any, expect: Any) -> None:
    df = math.inf if given["df"] is None else given["df"]
    e = evidence_with(given["D"], given["se"], df, given["alpha_test"])
    thresholds = Thresholds(min_effect=given["min_effect"], equivalence_margin=given["equiv"])
    assert word_of([e], thresholds).value == expect["verdict"]
    assert e.p_worse == exactly(expect["p_worse"])
    assert e.test.equivalence_p(given["equiv"]) == exactly(expect["tost_p"])
    assert e.test.mde(given["alpha_test"]) == exactly(expect["mde80_at_alpha_test"])


def check_samples(given: Any, expect: Any) -> None:
    # Pooling divides the part of the flips that each side of the difference contributes.
    rate = given["flip_total"] / 2 * (1 / given["m"] + 1 / given["W"])
    z = t_quantile(given["power"], math.inf) - t_quantile(given["alpha"], math.inf)
    assert math.ceil(z * z * rate / given["drop"] ** 2) == expect["n"]


CHECKS = {
    "mcnemar": check_mcnemar,
    "paired_cluster": check_paired,
    "paired_t": check_paired,
    "pooled_contrast": check_pooled_contrast,
    "verdict": check_verdict,
    "n_needed": check_samples,
}
