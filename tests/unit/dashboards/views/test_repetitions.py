"""What repeating an evaluation changes, in the report: beside every difference, and quiet where nobody measured it."""

from dataclasses import replace
from datetime import UTC, datetime

from dashboards.page.checkpoint import Sources
from dashboards.page.html import render_page
from dashboards.page.run import read_run
from dashboards.views.run import RunView, build_view
from eval_jobs.types import EngineInfo
from tests.fakes.history import FakeHistory
from tests.fakes.queue import FakeQueue
from tests.records import forgetting_run
from tracker.domain.records.calibration import AskedTwice, Calibration
from tracker.domain.records.policy import Policy

NOW = datetime(2026, 3, 14, 12, 0, tzinfo=UTC)
RUN = forgetting_run(trouble=False)
NEWEST = RUN.records[-1]


def asked(benchmark: str, flips: int, n: int = 400) -> AskedTwice:
    fingerprint = next(o.fingerprint for o in NEWEST.outcomes if o.benchmark == benchmark)
    return AskedTwice(
        benchmark=benchmark, fingerprint=fingerprint, planned=n, samples=n, flips=flips, other_texts=3,
        squares=float(flips), largest=1.0, first_mean=0.5, second_mean=0.5, p_shift=1.0,
    )  # fmt: skip


def view_with(*benchmarks: AskedTwice, engine: EngineInfo | None = NEWEST.engine) -> RunView:
    history = FakeHistory()
    for record in RUN.records:
        history.append(record)
    for report in RUN.reports:
        history.append_reports(report)
    if benchmarks:
        plan = replace(NEWEST.plan, id="calibration", calibration=1)
        history.append_calibration(
            Calibration(plan=plan, engine=engine, benchmarks=benchmarks, started_at=NOW, finished_at=NOW)
        )
    sources = Sources(history=history, queue=FakeQueue(), policy=Policy())
    return build_view(read_run(RUN.run_id, sources, now=NOW))


def cells(view: RunView) -> dict[str, str]:
    return {one.name: one.repeated for one in view.measured.benchmarks}


def test_without_a_calibration_the_report_says_so_quietly_and_nowhere_else() -> None:
    view = view_with()
    assert set(cells(view).values()) == {"not calibrated"}
    assert not any("repeating" in note for case in view.conclusions.evidence for note in case.notes)
    assert not any("unfit" in fact for fact in view.heading.facts)
    page = render_page(view, version="1")
    assert page.count('<td class="text muted">not calibrated</td>') == 3


def test_what_repetition_does_stands_beside_the_difference() -> None:
    view = view_with(asked("facts", 2))
    assert cells(view) == {
        "facts": "flips 0.5 % of the samples, score \u00b10.007, fit (step 1000, 2026-03-14)",
        "sums": "not calibrated",
        "reversal": "not calibrated",
    }
    notes = {case.benchmark: case.notes for case in view.conclusions.evidence}
    assert notes["facts"][-1] == "repeating the evaluation flips 0.5 % of the samples, score \u00b10.007"
    assert not any("repeating" in note for name in ("sums", "reversal") for note in notes[name])


def test_an_unfit_benchmark_is_named_in_the_first_lines() -> None:
    view = view_with(asked("sums", 80))
    said = "sums is too noisy: repeated evaluations differ by \u00b10.044, more than policy.min_effect 0.01"
    assert said in view.heading.facts
    assert '<td class="text v-regressed">flips 20 % of the samples, score \u00b10.044, unfit' in render_page(
        view, version="1"
    )


def test_a_calibration_of_another_version_is_shown_as_stale_and_makes_nothing_unfit() -> None:
    assert NEWEST.engine is not None
    view = view_with(asked("sums", 80), engine=replace(NEWEST.engine, version="0.31.0"))
    stale = "(stale: engine is vllm 0.32.1, was vllm 0.31.0)"
    assert cells(view)["sums"] == f"flips 20 % of the samples, score \u00b10.044 {stale} (step 1000, 2026-03-14)"
    assert not any("unfit" in fact for fact in view.heading.facts)
