import math
from dataclasses import replace

import pytest

from dashboards.charts.figures import Figure, Line
from dashboards.charts.run import latency_figures, score_figures, thinned
from dashboards.data.run import Training
from eval_jobs.types import EvalResult, Percentiles, ProbeResult
from tests.records import forgetting_run, wide_run
from tests.reports import run_data
from tracker.domain.overview.run import overview
from tracker.domain.records.types import CurvePoint, VerdictWord

RUN = forgetting_run()
DATA = run_data(RUN)
VIEW = overview(RUN.reports, RUN.gaps)


def _scores() -> Figure:
    (figure,) = score_figures(DATA, VIEW)
    return figure


def _line(figure: Figure, name: str) -> Line:
    return next(line for panel in figure.panels for line in panel.lines if line.name == name)


def test_scores_and_loss_share_one_figure() -> None:
    assert [panel.title for panel in _scores().panels] == ["Score", "Training loss"]
    assert (_scores().x_min, _scores().x_max) == (10, 1000)


def test_a_benchmark_that_failed_has_no_point_there_and_its_line_is_broken() -> None:
    sums = _line(_scores(), "sums")
    assert 300 not in [point.step for point in sums.points]
    assert 300 in sums.breaks
    absences = {(a.step, a.slot): a.text for a in _scores().panels[0].absences}
    assert absences[300, 1].startswith("step 300, sums: no result: the server went away")


def test_a_checkpoint_that_was_not_evaluated_is_marked_for_all() -> None:
    assert [a.step for a in _scores().panels[0].absences if a.slot is None] == [550]


def test_a_score_of_too_few_samples_is_no_point() -> None:
    report = RUN.reports[3]
    partly = replace(report.verdicts[0], word=VerdictWord.MISSING, coverage=0.4)
    view = overview([*RUN.reports[:3], replace(report, verdicts=(partly,)), *RUN.reports[4:]])
    (figure,) = score_figures(DATA, view)
    assert 400 not in [point.step for point in _line(figure, "facts").points]


def test_a_score_that_is_no_number_is_no_point() -> None:
    report = RUN.reports[0]
    odd = replace(report.verdicts[0], score=math.nan)
    (figure,) = score_figures(DATA, overview([replace(report, verdicts=(odd, *report.verdicts[1:]))]))
    assert _line(figure, "facts").points == ()


def test_intervals_are_two_standard_errors_wide() -> None:
    verdict = RUN.reports[5].verdicts[0]
    assert verdict.score is not None
    assert verdict.stderr is not None
    point = next(p for p in _line(_scores(), "facts").points if p.step == 600)
    assert point.low is not None
    assert point.high is not None
    assert math.isclose(point.high - verdict.score, 1.96 * verdict.stderr, rel_tol=1e-4)
    assert math.isclose(verdict.score - point.low, 1.96 * verdict.stderr, rel_tol=1e-4)


def test_the_checkpoint_that_a_loss_is_measured_against_is_ringed() -> None:
    assert [_line(_scores(), name).ring_step for name in ("facts", "sums", "reversal")] == [600, 600, None]


def test_results_that_were_measured_otherwise_are_not_connected() -> None:
    record = DATA.records[6]
    outcomes = tuple(
        replace(o, fingerprint="other") if isinstance(o, EvalResult) and o.benchmark == "facts" else o
        for o in record.outcomes
    )
    records = (*DATA.records[:6], replace(record, outcomes=outcomes), *DATA.records[7:])
    (figure,) = score_figures(replace(DATA, records=records), VIEW)
    assert _line(figure, "facts").breaks == (700, 800)


def test_many_benchmarks_get_a_figure_each_with_losses_first() -> None:
    run = wide_run(checkpoints=12, benchmarks=20, samples=12)
    figures = score_figures(run_data(run), overview(run.reports))
    assert len(figures) == 21
    assert figures[0].title == "Training loss by step"
    assert "forgotten" in figures[1].title
    assert len({figure.ident for figure in figures}) == 21


def test_scores_beyond_one_get_their_own_axis() -> None:
    report = RUN.reports[0]
    verdicts = (replace(report.verdicts[0], score=37.5, stderr=2.0), *report.verdicts[1:])
    figures = score_figures(replace(DATA, training=Training()), overview([replace(report, verdicts=verdicts)]))
    assert len(figures) == 3
    facts = next(figure for figure in figures if figure.title.startswith("facts")).panels[0]
    assert facts.low < 37.5 < facts.high
    others = [figure.panels[0] for figure in figures if not figure.title.startswith("facts")]
    assert all((panel.low, panel.high) == (0.0, 1.0) for panel in others)


def test_scores_that_are_all_equal_have_an_interval_that_is_not_empty() -> None:
    report = RUN.reports[0]
    none_right = (replace(report.verdicts[0], score=0.0, stderr=0.0, units=100), *report.verdicts[1:])
    (figure,) = score_figures(DATA, overview([replace(report, verdicts=none_right)]))
    point = _line(figure, "facts").points[0]
    assert point.tip.startswith("0.000 (0.000 to 0.037) ")
    assert (point.low, point.high) == pytest.approx((0.0, 0.0370), abs=1e-4)
    untold = (replace(none_right[0], units=None), *report.verdicts[1:])  # judged before units were kept
    (figure,) = score_figures(DATA, overview([replace(report, verdicts=untold)]))
    assert _line(figure, "facts").points[0].low is None


def test_a_failed_latency_measurement_is_a_hole_with_a_reason() -> None:
    (figure,) = latency_figures(DATA, VIEW)
    ttft = figure.panels[0]
    assert [(a.step, a.text) for a in ttft.absences] == [
        (800, "step 800: all 32 requests failed: connection reset by peer")
    ]
    assert all(800 not in [p.step for p in line.points] and 800 in line.breaks for line in ttft.lines)


def test_a_latency_that_is_no_number_is_no_point() -> None:
    odd = Percentiles(p50=math.nan, p90=math.nan, p95=math.inf, p99=math.inf, mean=math.inf)
    records = []
    for record in DATA.records:
        probes = [replace(p, ttft_ms=odd, requests=()) if isinstance(p, ProbeResult) else p for p in record.probes]
        records.append(replace(record, probes=tuple(probes)))
    (figure,) = latency_figures(replace(DATA, records=tuple(records)), VIEW)
    ttft, tpot = figure.panels[:2]
    assert [line.points for line in ttft.lines] == [(), ()]
    assert all(line.points for line in tpot.lines)


def test_latency_without_any_verdict_still_has_a_chart() -> None:
    assert len(latency_figures(replace(DATA, training=Training()), overview(()))) == 1


def test_a_long_curve_keeps_its_spikes() -> None:
    points = [(step, 1.0) for step in range(100_000)]
    points[61_803] = (61_803, 99.0)
    kept = thinned(points, 800)
    assert len(kept) <= 802
    assert (61_803, 99.0) in kept
    assert [step for step, _ in kept] == sorted(step for step, _ in kept)


def test_only_losses_are_drawn_and_never_what_is_no_number() -> None:
    curves = (
        CurvePoint(key="train/loss", step=10, value=2.0),
        CurvePoint(key="train/loss", step=20, value=math.inf),
        CurvePoint(key="train/learning_rate", step=10, value=1e-3),
    )
    (figure,) = score_figures(replace(DATA, training=Training(curves=curves)), VIEW)
    (loss,) = figure.panels[1].lines
    assert [(p.step, p.value) for p in loss.points] == [(10, 2.0)]


def test_a_figure_says_in_words_what_it_shows() -> None:
    assert _scores().description == (
        "Score: facts from 0.037 at step 100 to 0.037 at step 1000, sums from 0.013 at step 100 to 0.037 at step 1000,"
        " reversal from 0.025 at step 100 to 0.988 at step 1000."
        " Training loss: train/loss from 2.661 at step 10 to 0.336 at step 1000."
    )
