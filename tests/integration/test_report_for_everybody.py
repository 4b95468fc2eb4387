"""Both reports for people who use no pointer, see nothing, read paper; and what the page of a checkpoint tells.

The checks are our own (tests/accessibility.py), in a real Chromium.
"""

from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Page

from dashboards.page.html import render_checkpoint, render_page
from dashboards.views.checkpoint import build_checkpoint_view
from dashboards.views.run import build_view
from eval_jobs.types import Cost
from tests.accessibility import BARRIERS, barriers_of_keyboard
from tests.browser import LOW_CONTRAST, wait_for_texts, without_script
from tests.judged_run import judged_run
from tests.records import RecordedRun, forgetting_run, wide_run
from tests.reports import checkpoint_data, run_data, timed
from tests.unit.dashboards.page.test_checkpoint_page import hostile
from tracker.domain.overview.costs import run_costs

pytestmark = pytest.mark.chromium

COST = Cost(loading_s=2.0, evaluating_s=30.0, probing_s=8.0, input_tokens=4000, output_tokens=900, gpu_s=40.0)
HOSTILE = (
    "<img src=x onerror=\"document.title='owned'\"></style></svg><script>document.title='owned'</script>{{ 7 * 7 }}"
)


LINES = """e => {
  const range = document.createRange();
  range.selectNodeContents(e);
  return range.getClientRects().length;
}"""
"""Script: how many lines the text of an element takes."""


def _with_times_and_costs(run: RecordedRun) -> RecordedRun:
    return replace(run, records=tuple(replace(timed(record), cost=COST) for record in run.records))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reports")
    run = _with_times_and_costs(judged_run())
    data = replace(run_data(run), costs=run_costs(run.run_id, run.records))
    page = render_page(build_view(data, {700: "checkpoint.html"}), version="0.1.0")
    (folder / "run.html").write_text(page, encoding="utf-8")
    small = _with_times_and_costs(forgetting_run())
    one = replace(checkpoint_data(small, 700), run_page="run.html")
    html = render_checkpoint(build_checkpoint_view(one), version="0.1.0")
    (folder / "checkpoint.html").write_text(html, encoding="utf-8")
    return folder


BOTH = pytest.mark.parametrize("name", ["run.html", "checkpoint.html"])


@BOTH
def test_everything_has_a_name_a_caption_or_words_and_nothing_moves(page: Page, folder: Path, name: str) -> None:
    page.goto((folder / name).as_uri())
    assert page.evaluate(BARRIERS) == []


@BOTH
def test_everything_is_reached_by_the_keyboard_and_seen_to_be(page: Page, folder: Path, name: str) -> None:
    page.goto((folder / name).as_uri())
    assert barriers_of_keyboard(page) == []


@BOTH
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_can_be_read_in_both_themes(page: Page, folder: Path, name: str, scheme: str) -> None:
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    page.goto((folder / name).as_uri())
    page.evaluate("() => document.querySelectorAll('details').forEach(e => { e.open = true; })")
    assert page.evaluate(LOW_CONTRAST) == []


@BOTH
def test_neither_a_phone_nor_paper_cuts_anything(page: Page, folder: Path, name: str) -> None:
    page.goto((folder / name).as_uri())
    page.set_viewport_size({"width": 375, "height": 700})
    assert page.evaluate("document.documentElement.scrollWidth") == 375
    wider = [e for e in page.locator(".scroll:visible").all() if e.evaluate("e => e.scrollWidth > e.clientWidth")]
    assert wider
    for table in wider:  # a shadow says that it continues: covers scroll with it, shadows do not
        style = table.evaluate("e => getComputedStyle(e).backgroundAttachment")
        assert style == "local, local, scroll, scroll"
    page.emulate_media(media="print")
    page.set_viewport_size({"width": 702, "height": 1000})
    assert page.evaluate("document.documentElement.scrollWidth") == 702
    assert page.locator(".filter:visible, nav:visible, .skip:visible").count() == 0
    assert page.get_by_text("Measurement", exact=True).last.is_visible()


def test_the_checks_find_what_is_wrong(page: Page) -> None:
    page.goto("about:blank")  # a report lets no script write HTML
    page.set_content(
        "<html lang=en><title>t</title><style>:focus-visible{outline:none}</style><main><h1>a</h1><h3>b</h3>"
        "<table><tbody><tr><td>1</td></tr></tbody></table><svg role=img></svg><input><a href=#a id=a></a>"
        "<p id=a style='transition: color 1s'>x</p></main>"
    )
    found = " ".join(page.evaluate(BARRIERS))
    for what in ("heading of level 3", "without a caption", "heads of columns", "row without", "picture", "control"):
        assert what in found
    for what in ("link without words", "used twice", "it moves"):
        assert what in found
    assert any("focus is not seen" in problem for problem in barriers_of_keyboard(page))


def test_the_checkpoint_page_tells_scores_changes_latency_and_cost(page: Page, folder: Path) -> None:
    messages: list[str] = []
    requests: list[str] = []
    page.on("console", lambda message: messages.append(message.text))
    page.on("request", lambda request: requests.append(request.url))
    page.goto((folder / "checkpoint.html").as_uri())
    wait_for_texts(
        page,
        "tiny-forgetting, step 700",
        "Each benchmark compared with step 600 (previous checkpoint) and with the best earlier block",
        "facts, step 600 to 700",
        "✗ Incorrect at step 700",
        "Measured at different times",
        "30.0 s",
    )
    assert page.locator("#latency svg.chart:visible path.line").count() == 6
    widths = [svg.bounding_box() for svg in page.locator("#latency svg.chart:visible").all()]
    assert all(box is not None and box["width"] > 250 for box in widths)
    page.get_by_role("link", name="Report of the run").click()
    wait_for_texts(page, "Best checkpoint")
    page.get_by_role("link", name="700", exact=True).click()
    assert page.url.endswith("checkpoint.html")
    assert messages == []
    assert {url.rsplit("/", 1)[1] for url in requests} == {"checkpoint.html", "run.html"}


def test_no_table_of_a_checkpoint_is_cut_or_breaks_a_heading_on_a_laptop(page: Page, tmp_path: Path) -> None:
    path = tmp_path / "judged.html"  # step 700 of it has a benchmark that cannot be held against any other
    data = checkpoint_data(judged_run(), 700)
    path.write_text(render_checkpoint(build_checkpoint_view(data), version="0.1.0"), encoding="utf-8")
    page.goto(path.as_uri())
    tables = page.locator(".scroll:visible").all()
    assert len(tables) >= 4
    assert all(table.evaluate("e => e.scrollWidth <= e.clientWidth") for table in tables)
    headings = page.locator("thead th:visible", has_text="benchmark").all()
    assert len(headings) >= 2
    assert all(heading.evaluate(LINES) == 1 for heading in headings)


def test_without_script_changes_can_be_narrowed_to_one_kind_and_one_benchmark(page: Page, folder: Path) -> None:
    with without_script(page, (folder / "checkpoint.html").as_uri()) as still:
        lost, gained = still.locator("#changes .is-not-gained:visible"), still.locator("#changes .is-not-lost:visible")
        assert lost.count() >= 6
        all_gained = gained.count()
        assert all_gained >= 1
        still.get_by_label("lost only").focus()
        still.keyboard.press("Space")
        assert gained.count() == 0
        assert lost.count() >= 6
        still.get_by_role("radio", name="lost and gained").check()
        assert gained.count() == all_gained
        still.locator("#changes .filter select").select_option("sums")
        shown = still.locator("#changes article:visible h3").all_text_contents()
        assert shown
        assert all(title.startswith("sums vs. step") for title in shown)


def test_the_ledger_can_be_narrowed_and_opens_its_folds(page: Page, tmp_path: Path) -> None:
    path = tmp_path / "wide.html"
    data = run_data(wide_run(checkpoints=40, benchmarks=20, samples=20))
    path.write_text(render_page(build_view(data, {700: "checkpoint.html"}), version="0.1.0"), encoding="utf-8")
    page.goto(path.as_uri())
    rows = page.locator("#forgetting .heat > .one:visible, #forgetting .heat > details .one:visible")
    names = page.locator("#forgetting select option").all_text_contents()
    assert len(names) == 21
    assert rows.count() == 13  # seven are folded away
    for name in (names[2], names[20]):  # the last one is in the fold
        page.locator("#forgetting select").select_option(name)
        assert rows.count() == 1
        assert name in (rows.first.text_content() or "")
        assert page.locator("#forgetting table.ledger tbody tr:visible").count() == 1
    page.locator("#forgetting select").select_option("all")
    page.get_by_label("below best only").check()
    assert 0 < rows.count() < 20
    assert all("−" in (row.text_content() or "") for row in rows.all())  # noqa: RUF001 - a true minus sign
    page.locator("#forgetting").get_by_label("all", exact=True).check()
    assert rows.count() == 13


def test_what_a_model_wrote_runs_nothing_on_the_page_of_a_checkpoint(page: Page, tmp_path: Path) -> None:
    path = tmp_path / "hostile.html"
    data = replace(hostile(HOSTILE), run_page="")
    path.write_text(render_checkpoint(build_checkpoint_view(data), version="0.1.0"), encoding="utf-8")
    page.goto(path.as_uri())
    assert page.title().startswith("<img src=x")
    assert page.locator("script:not([type='application/octet-stream'])").count() == 1  # our own
    assert page.locator("img, iframe, object, [onload], [onerror]").count() == 0
    assert page.evaluate("document.body.textContent").count("<img src=x") > 10
    assert page.evaluate("document.documentElement.scrollWidth") == 1200
