"""How the times of single requests are shown."""

from dataclasses import replace

from dashboards.charts.ecdf import Curve, Ecdf, draw_ecdf
from dashboards.charts.latency_spread import load_spreads, times_of
from dashboards.charts.run import latency_figures
from eval_jobs.types import EvalRecord, ProbeResult, ReferenceProbe
from tests.records import forgetting_run
from tests.reports import run_data, timed
from tracker.domain.overview.run import overview
from tracker.domain.records.types import LatencyMetric

RUN = forgetting_run()
NOW, BEFORE = timed(RUN.records[-1], slower=1.5), timed(RUN.records[-2])


def _probe(record: EvalRecord) -> ProbeResult:
    (probe,) = record.probes
    assert isinstance(probe, ProbeResult)
    return probe


def test_every_request_of_both_sides_is_in_the_curves() -> None:
    (load,) = load_spreads(NOW, BEFORE)
    ttft, tpot, e2e = load.figures
    assert [len(curve.values) for curve in ttft.curves] == [40, 40]
    assert [len(curve.values) for curve in tpot.curves] == [
        39,
        39,
    ]  # an answer of one token has no time per further one
    assert [curve.name for curve in e2e.curves] == ["step 1000", "step 900, previous"]
    assert "different times" in load.note


def test_percentiles_are_those_of_the_requests() -> None:
    (load,) = load_spreads(NOW, BEFORE)
    row = next(row for row in load.rows if row.metric == "TTFT" and row.side == "step 900, previous")
    assert row.percentiles[2] == "49.5"  # the median of 30 to 69
    assert row.percentiles[-1] == "69.0"


def test_a_reference_that_was_timed_by_turns_comes_before_the_checkpoint_before() -> None:
    own = _probe(NOW)
    pairs = ReferenceProbe(
        load=own.load,
        reference_digest="r" * 64,
        reference_step=100,
        candidate=own.requests,
        reference=_probe(BEFORE).requests,
        first_pairs=20,
        dropped=0,
    )
    (load,) = load_spreads(replace(NOW, reference_probes=(pairs,)), BEFORE)
    assert [curve.name for curve in load.figures[0].curves] == ["step 1000", "step 100, reference"]
    assert "alternating on the same engine" in load.note


def test_another_load_is_never_compared() -> None:
    probe = _probe(BEFORE)
    other = replace(BEFORE, probes=(replace(probe, load=replace(probe.load, concurrency=64)),))
    (load,) = load_spreads(NOW, other)
    assert [curve.name for curve in load.figures[0].curves] == ["step 1000"]
    assert "No previous checkpoint to compare with under this load." in load.note


def test_without_single_requests_nothing_is_drawn() -> None:
    (load,) = load_spreads(RUN.records[-1], BEFORE)
    assert (load.figures, load.rows) == ((), ())
    assert load.note == "Only percentiles are available, no individual requests."


def test_a_load_that_failed_says_why() -> None:
    (load,) = load_spreads(RUN.records[7], None)
    assert load.figures == ()
    assert load.note.startswith("Not measured: ")


def test_a_curve_ends_at_all_requests_and_names_its_median() -> None:
    figure = Ecdf(ident="e", title="TTFT, ms", description="d <b>", curves=(Curve(name="a", slot=0, values=(1, 2, 4)),))
    svg = draw_ecdf(figure, width=330)
    assert "d &lt;b&gt;" in svg
    path = next(part for part in svg.split("<path ") if 'class="line' in part)
    assert path.count("V") == 3
    assert path.split('d="')[1].split('"')[0].endswith("V24.0")  # 100 %


def test_one_request_and_equal_times_can_be_drawn() -> None:
    for values in ((5.0,), (5.0, 5.0), (0.0,)):
        figure = Ecdf(ident="e", title="t", description="d", curves=(Curve(name="a", slot=0, values=values),))
        assert "nan" not in draw_ecdf(figure, width=330)


def test_a_long_tail_does_not_hide_everything_else() -> None:
    values = (*(10.0 + at / 100 for at in range(999)), 60_000.0)
    figure = Ecdf(ident="e", title="t", description="d", curves=(Curve(name="a", slot=0, values=values),))
    assert ">60000<" not in draw_ecdf(figure, width=330)


def test_the_run_shows_the_middle_half_of_the_requests_around_each_median() -> None:
    run = replace(RUN, records=tuple(timed(record) for record in RUN.records))
    data = run_data(run)
    (figure,) = latency_figures(data, overview(data.conclusions.reports, data.conclusions.gaps))
    assert [panel.title[:12] for panel in figure.panels] == ["Time to firs", "Time per out", "End-to-end l"]
    median = figure.panels[0].lines[1]
    assert [(p.low, p.high) for p in median.points][:2] == [(39.75, 59.25)] * 2
    assert "IQR 39.8 to 59.2" in median.points[0].tip


def test_times_are_ascending_and_those_that_are_not_known_are_left_out() -> None:
    requests = _probe(BEFORE).requests[::-1]
    assert list(times_of(requests, LatencyMetric.TTFT)) == sorted(times_of(requests, LatencyMetric.TTFT))
    assert len(times_of(requests, LatencyMetric.TPOT)) == len(requests) - 1
