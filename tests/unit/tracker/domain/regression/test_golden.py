"""The engine against reference values of an independent oracle, to nine digits."""

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from tests.requires import PROJECT, shared_data
from tests.unit.tracker.domain.regression import oracle
from tests.unit.tracker.domain.regression.tables import evidence_at, matrix_of, table_of, track_of
from tracker.domain.records.types import Baseline
from tracker.domain.regression.blocks import Blocks, second_difference_weights
from tracker.domain.regression.budget import DEFAULT, PLAIN, Design
from tracker.domain.regression.detector import ErrorBudget, Evidence
from tracker.domain.regression.jitter import Jitter, SecondDifferences, _raw, estimate_jitter
from tracker.domain.regression.pooled_test import PooledTest, pooled_test
from tracker.domain.scores.matrix import Contrast, FloatArray
from tracker.domain.scores.statistics import Spread, mde, paired_test, t_cdf, t_quantile, tost_p
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
        SecondDifferences(deltas=np.array(h["deltas"]), item_variances=np.array(h["item_variances"]))
        for h in case["histories"]
    ]
    for found, expected in zip(estimate_jitter(histories), case["expect"], strict=True):
        assert found.tau2 == exactly(expected["tau2"])
        assert found.variance == pytest.approx(expected["variance"], rel=1e-9, abs=0)


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
    test = pooled_test(contrast, Jitter(tau2=case["tau2"], variance=case["variance"]), case["m"], case["width"])
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
    assert alarms == {(t, 1) for t in range(24, 30)}


def numbers_of(e: Evidence) -> list[float]:
    blocks, test = e.blocks, e.test
    shown = [test.delta, test.stderr, test.df, e.p_worse, math.sqrt(e.jitter.tau2), e.alpha_test]
    return [int(blocks.base[0]), int(blocks.base[-1]), blocks.selected_from, *shown]


# --- reference values that others computed


KINDS = (
    "mcnemar",
    "paired_cluster",
    "paired_t",
    "pooled_contrast",
    "noise_tau2_raw",
    "noise_estimate",
    "pooled_p",
    "rec_end_to_end",
    "verdict",
    "n_needed",
)


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
    assert test.spread.df == expect["df"]
    assert test.p_worse == exactly(expect["p_worse"])


def check_pooled_contrast(given: Any, expect: Any) -> None:
    table, m = np.array(given["rows_oldest_first"], dtype=float), given["m_new"]
    (contrast,) = matrix_of(table).contrasts(contrast_weights(m, len(table)))
    test = pooled_test(contrast, Jitter(tau2=given["tau"] ** 2, variance=0.0), m, given["W_baseline"])
    z = test.delta / test.stderr
    p = t_cdf(z, math.inf)
    assert (test.delta, contrast.item_variance) == exactly((expect["D"], expect["v_item"]))
    assert (test.stderr, z, p) == exactly((expect["se"], expect["z"], expect["p_worse"]))
    assert min(1.0, p * given["peak_blocks"]) == exactly(expect["p_peak_adjusted"])
    level = ErrorBudget(alpha=0.05, planned=given["T_plan"], benchmarks=given["K"], design=PLAIN)
    assert (given["n_baselines"], given["n_m"]) == (2, 4)
    assert level.alpha_test(7, m, Baseline.PEAK) == exactly(expect["alpha_test"])


def check_noise_raw(given: Any, expect: Any) -> None:
    y = np.array(given["mean_scores"])
    deltas = second_difference_weights(np.arange(y.size), y.size, 40) @ y
    assert (deltas**2).tolist() == exactly(expect["c2"])
    variances = np.array(given["v_item_of_second_difference"])
    raw = _raw(SecondDifferences(deltas=deltas, item_variances=variances))
    assert raw is not None
    assert raw.excess == exactly(expect["tau2_unshrunk"])


def check_noise_estimate(given: Any, expect: Any) -> None:
    deltas, variances = np.array(given["second_differences"]), np.array(given["v_item"])
    found = estimate_jitter(
        [SecondDifferences(deltas=deltas[:, k], item_variances=variances[:, k]) for k in range(deltas.shape[1])]
    )
    assert [j.tau2 for j in found] == exactly(expect["tau2"])
    assert [j.variance for j in found] == pytest.approx(expect["var_tau2"], rel=1e-9, abs=0)


def check_pooled_p(given: Any, expect: Any) -> None:
    columns = (given["D"], given["v_item"], given["tau2"], given["var_tau2"])
    for i, (delta, variance, tau2, tau2_variance) in enumerate(zip(*columns, strict=True)):
        contrast = Contrast(delta=delta, item_variance=variance, n=100, common_fraction=1.0)
        test = pooled_test(contrast, Jitter(tau2=tau2, variance=tau2_variance), given["m"], given["W"])
        assert (test.p_worse(), test.stderr, test.df) == exactly(
            (expect["p_worse"][i], expect["se"][i], expect["df"][i])
        )


def check_run(given: Any, expect: Any) -> None:
    tables = [table_of(rows) for rows in given["scores_rows_are_checkpoints"]]
    level = ErrorBudget(alpha=given["alpha"], planned=given["T_plan"], benchmarks=given["K"], design=PLAIN)
    trace = {(x["t"], x["m"], x["kind"]): x for x in expect["trace_from_t22"]}
    seen = set()
    for t, alarms in enumerate(expect["alarm_by_checkpoint"]):
        tests = evidence_at([track_of(table[: t + 1]) for table in tables], level)
        assert [any(e.is_loss(given["min_effect"]) for e in found) for found in tests] == alarms
        for k, found in enumerate(tests):
            for e in found:
                assert e.alpha_test == exactly(expect["alpha_test"])
                x = trace.get((t, e.m, e.blocks.baseline.value))
                if x is not None:
                    seen.add((t, e.m, x["kind"]))
                    numbers = (e.test.delta, e.test.stderr, e.test.df, e.p_worse, math.sqrt(e.jitter.tau2))
                    assert numbers == exactly(tuple(x[key][k] for key in ("D", "se", "df", "p", "tau")))
    assert seen == trace.keys()


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
    "noise_tau2_raw": check_noise_raw,
    "noise_estimate": check_noise_estimate,
    "pooled_p": check_pooled_p,
    "rec_end_to_end": check_run,
    "verdict": check_verdict,
    "n_needed": check_samples,
}
