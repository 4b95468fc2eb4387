"""What the first screen of a run's report tells."""

from dataclasses import replace
from pathlib import Path

from dashboards.page.html import render_page
from dashboards.page.run import pages_beside, read_run
from dashboards.views.heading import AT_MOST, glance
from dashboards.views.run import build_view
from tests import alerts
from tests.judged_run import judged_run
from tests.records import RecordedRun, forgetting_run
from tests.reports import MADE_AT, run_data, sources_of
from tests.unit.dashboards.page.test_html import parsed
from tracker.domain.records.alerts import Alert

RUN = forgetting_run()


def _alert(number: int) -> Alert:
    return replace(alerts.alert("facts", 700, run_id=RUN.run_id), fingerprint=str(number), message=f"alert {number}")


def test_the_best_checkpoint_and_what_is_lost_come_first() -> None:
    sources = sources_of(replace(judged_run(), records=RUN.records))
    sources.history.append_alert(_alert(1))
    best, losses, alerts = glance(read_run(RUN.run_id, sources, now=MADE_AT).conclusions)
    assert best.lines[0].startswith("step ")
    assert "best block steps" in best.lines[1]
    assert "facts since step 700" in losses.lines
    assert losses.is_bad
    assert alerts.lines == ("alert 1",)


def test_of_many_alerts_the_rest_is_counted() -> None:
    _, _, alerts = glance(replace(run_data(RUN).conclusions, alerts=tuple(map(_alert, range(9)))))
    assert len(alerts.lines) == AT_MOST + 1
    assert alerts.lines[-1] == "and 5 more"


def test_nothing_open_is_said_and_not_left_out() -> None:
    best, losses, alerts = glance(run_data(replace(RUN, incidents=())).conclusions)
    assert best.lines == ("no checkpoint has a score for every benchmark",)
    assert (losses.lines, losses.is_bad) == (("none",), False)
    assert (alerts.lines, alerts.is_bad) == (("none",), False)


def test_a_run_without_results_has_a_page_without_them() -> None:
    data = run_data(RecordedRun(run_id="r", records=(), reports=()))
    assert "Best checkpoint" not in render_page(build_view(data), version="0.1.0")


def test_steps_link_to_the_pages_of_checkpoints_that_lie_beside() -> None:
    view = build_view(run_data(RUN), {600: "tiny-forgetting@600-abc.html"})
    page = parsed(render_page(view, version="0.1.0"))
    assert [link for link in page.links if not link.startswith("#")] == ["data:,", "tiny-forgetting@600-abc.html"]


def test_a_page_of_other_weights_is_not_linked(tmp_path: Path) -> None:
    digest = RUN.records[5].plan.checkpoint.digest[:8]
    (tmp_path / f"tiny-forgetting@600-{digest}.html").write_text("x", encoding="utf-8")
    (tmp_path / "tiny-forgetting@700-00000000.html").write_text("x", encoding="utf-8")
    assert pages_beside(tmp_path, RUN.records) == {600: f"tiny-forgetting@600-{digest}.html"}
