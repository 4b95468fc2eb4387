"""What the first screen of a run's report tells."""

import re
from dataclasses import replace
from pathlib import Path

from dashboards.data.run import Training
from dashboards.page.html import FIRST_OPEN, render_page
from dashboards.page.run import pages_beside, read_run
from dashboards.views.run import build_view
from tests import alerts
from tests.drops import DROP
from tests.judged_run import judged_run
from tests.log_reading import read_incident
from tests.records import RecordedRun, forgetting_run
from tests.reports import MADE_AT, run_data, sources_of
from tests.unit.dashboards.page.test_html import parsed
from tracker.domain.health.run_state import RunState
from tracker.domain.health.stored import progress_of
from tracker.domain.records.alerts import Alert

RUN = forgetting_run()


def _alert(number: int) -> Alert:
    return replace(alerts.alert("facts", 700, run_id=RUN.run_id), fingerprint=str(number), message=f"alert {number}")


def test_the_best_checkpoint_and_the_number_of_alerts_are_facts() -> None:
    sources = sources_of(replace(judged_run(), records=RUN.records))
    for number in range(2):
        sources.history.append_alert(_alert(number))
    facts = build_view(read_run(RUN.run_id, sources, now=MADE_AT)).heading.facts
    assert facts[2].startswith("best checkpoint: step 500 (3 benchmarks: best block steps 400 to 500")
    assert facts[3] == "2 open alerts"
    healthy = build_view(run_data(RUN)).heading.facts
    assert healthy[2] == "no best checkpoint: none without a loss has a score for every benchmark"
    assert "open alert" not in " ".join(healthy)


def test_open_losses_and_incidents_of_the_training_are_listed_once_each_with_its_place() -> None:
    losses = tuple(replace(one, drop=DROP) if one.benchmark == "facts" else one for one in judged_run().incidents)
    oom = read_incident("torch.OutOfMemoryError: CUDA out of memory", step=950)
    old = replace(read_incident("KeyError: 1", step=20), is_history=True)
    training = Training(incidents=(old, oom), progress=progress_of(RUN.run_id, RunState(run_id=RUN.run_id), MADE_AT))
    data = replace(run_data(replace(judged_run(), incidents=losses)), training=training)
    page = render_page(build_view(data), version="0.1.0")
    listed = page[page.index('<ul class="open"') :].partition("</ul>")[0]
    assert re.findall(r'href="#([a-z0-9-]+)">([^<]*)</a> <span>([^<]*)<', listed) == [
        ("training-1", "GPU memory ran out at step 950", f"since {oom.seen_at:%Y-%m-%d %H:%M} UTC"),
        (
            "incident-1",
            "facts",
            "0.731 at steps 400 to 500 -&gt; 0.037 since step 700; 61 of 80 samples lost, 2 gained",
        ),
        ("incident-2", "sums, output length", "since step 700"),
        ("incident-3", "trivia / history", "since step 600"),
    ]
    for place in ("training-1", "incident-1", "incident-3"):
        assert page.count(f'<tr id="{place}">') == 1
    row = page[page.index('<tr id="incident-1">') :].partition("</tr>")[0]
    assert "0.731 at steps 400 to 500" in row


def test_of_many_open_losses_the_rest_is_counted_and_none_is_said() -> None:
    many = tuple(replace(judged_run().incidents[0], benchmark=f"b{number:02}") for number in range(FIRST_OPEN + 5))
    page = render_page(build_view(run_data(replace(RUN, incidents=many))), version="0.1.0")
    assert '<a href="#incidents">and 5 more</a>' in page
    assert page.count('<tr id="incident-13">') == 1
    assert "No open incidents." in render_page(build_view(run_data(RUN)), version="0.1.0")


def test_a_run_without_results_has_a_page_without_them() -> None:
    data = run_data(RecordedRun(run_id="r", records=(), reports=()))
    page = render_page(build_view(data), version="0.1.0")
    assert "best checkpoint" not in page
    assert "No open incidents" not in page


def test_steps_link_to_the_pages_of_checkpoints_that_lie_beside() -> None:
    view = build_view(run_data(RUN), {600: "tiny-forgetting@600-abc.html"})
    page = parsed(render_page(view, version="0.1.0"))
    assert [link for link in page.links if not link.startswith("#")] == ["data:,", "tiny-forgetting@600-abc.html"]


def test_a_page_of_other_weights_is_not_linked(tmp_path: Path) -> None:
    digest = RUN.records[5].plan.checkpoint.digest[:8]
    (tmp_path / f"tiny-forgetting@600-{digest}.html").write_text("x", encoding="utf-8")
    (tmp_path / "tiny-forgetting@700-00000000.html").write_text("x", encoding="utf-8")
    assert pages_beside(tmp_path, RUN.records) == {600: f"tiny-forgetting@600-{digest}.html"}
