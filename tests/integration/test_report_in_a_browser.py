"""The report as people see it: in a real Chromium, in light and dark, on a narrow screen and on paper."""

from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Page

from dashboards.data.run import RunData
from dashboards.page.html import render_checkpoint, render_page
from dashboards.views.checkpoint import build_checkpoint_view
from dashboards.views.run import build_view
from eval_jobs.types import EvalRecord, EvalResult, Outcome, SampleScore
from tests.accessibility import BARRIERS
from tests.browser import LOW_CONTRAST, screenshot, wait_for_texts, without_script
from tests.judged_run import judged_run
from tests.records import RecordedRun, forgetting_run, wide_run
from tests.reports import checkpoint_data, run_data
from tracker.domain.records.policy import Phase
from tracker.domain.records.reasons import Failed

pytestmark = pytest.mark.chromium

HOSTILE = (
    "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script></script></style></svg>"
    "<a href=javascript:document.title='owned'>a</a><svg onload=document.title='owned'>{{ 7 * 7 }}"
    "\x1b[2J\x00\u202e\ud83d"
)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(run_data(forgetting_run()), tmp_path_factory.mktemp("report") / "report.html")


@pytest.fixture(scope="module")
def judged_report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(run_data(judged_run()), tmp_path_factory.mktemp("report") / "judged.html")


@pytest.fixture(scope="module")
def wide_report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = run_data(wide_run(checkpoints=200, benchmarks=50, samples=4))
    return written(data, tmp_path_factory.mktemp("report") / "wide.html")


@pytest.fixture(scope="module")
def samples_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = forgetting_run()
    view = build_checkpoint_view(checkpoint_data(replace(run, records=tuple(map(talkative, run.records))), 1000))
    path = tmp_path_factory.mktemp("report") / "samples.html"
    path.write_text(render_checkpoint(view, version="0.1.0"), encoding="utf-8")
    return path


def written(data: RunData, path: Path) -> Path:
    path.write_text(render_page(build_view(data), version="0.1.0"), encoding="utf-8")
    return path


def answered(record: EvalRecord) -> EvalRecord:
    """Return the record with hostile prompts, targets, answers and details; the first answer is a megabyte long."""
    outcomes: list[Outcome] = []
    for outcome in record.outcomes:
        if isinstance(outcome, EvalResult):
            text = {"prompt": HOSTILE, "target": HOSTILE, "answer": HOSTILE, "detail": HOSTILE}
            first, *rest = (replace(sample, **text) for sample in outcome.samples)  # type: ignore[arg-type]
            long = replace(first, answer=HOSTILE + "x" * 2**20)
            outcomes.append(replace(outcome, samples=(long, *rest)))
        else:
            outcomes.append(replace(outcome, message=HOSTILE, hint=HOSTILE))
    return replace(record, outcomes=tuple(outcomes))


def page_width(page: Page) -> int:
    width: int = page.evaluate("document.documentElement.scrollWidth")
    return width


def background(page: Page) -> str:
    colour: str = page.evaluate("getComputedStyle(document.body).backgroundColor")
    return colour


def test_the_report_shows_finding_table_and_charts_and_loads_nothing(page: Page, report: Path, tmp_path: Path) -> None:
    messages: list[str] = []
    requests: list[str] = []
    page.on("console", lambda message: messages.append(message.text))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(report.as_uri())
    wait_for_texts(
        page,
        "facts and sums were forgotten after step 600; reversal improved earlier.",
        "▼▼ forgotten",
        "not evaluated: it was deleted before it could be pinned",
        "62 of 80 samples lost",
        "Time to first token (TTFT), ms",
    )
    assert page.title() == "tiny-forgetting: facts and sums were forgotten after step 600; reversal improved earlier"
    assert page.locator("table.verdicts tbody tr").count() == 11
    assert page.locator("table.verdicts td.v-forgotten").count() == 4
    assert page.locator(".wide-only svg path.line:visible").count() >= 8
    assert page.locator(".wide-only svg path.line.s0").first.evaluate("e => getComputedStyle(e).stroke") != "none"
    assert screenshot(page, tmp_path / "light.png", full_page=True).stat().st_size > 50_000
    assert messages == []
    assert requests == [report.as_uri()]


def test_what_the_judge_says_is_shown_with_its_evidence(page: Page, judged_report: Path, tmp_path: Path) -> None:
    page.set_viewport_size({"width": 1280, "height": 900})
    page.goto(judged_report.as_uri())
    wait_for_texts(
        page,
        "facts and sums were forgotten after step 600; trivia / history was forgotten since step 600; "
        "and 3 other findings.",
        "△ recovered",
        "mean of 10, best of 12 blocks",
        "samples only 4.4e-09",
        "minimum detectable loss of the mean of four checkpoints: 0.048",
        "sums, output length",
        "score level at step 800 accepted on 2026-03-15: the data mix changed on purpose",
        "recovered at step 1000, last worse than the baseline at step 800",
        "Latency verdicts at step 1000.",
        "2.2e-09 (slower)",
    )
    tables = page.locator(".scroll:visible").all()
    assert len(tables) >= 7
    wide = [table.inner_text() for table in tables if table.evaluate("e => e.scrollWidth > e.clientWidth")]
    assert not wide, "nothing to scroll"
    assert screenshot(page, tmp_path / "judged.png", full_page=True).stat().st_size > 50_000


def test_a_narrow_screen_reads_every_reason_and_caption_without_scrolling_the_table(
    page: Page, judged_report: Path
) -> None:
    page.set_viewport_size({"width": 400, "height": 800})
    page.goto(judged_report.as_uri())
    assert page_width(page) == 400
    texts = [*page.locator(".case-text").all(), *page.locator("caption:visible").all()]
    assert len(texts) == 4 + 9
    assert all(text.evaluate("e => e.getBoundingClientRect().right <= 400") for text in texts)


@pytest.mark.parametrize("name", ["report", "judged_report", "wide_report"])
def test_the_first_screen_is_short_even_and_as_wide_as_the_window(
    page: Page, request: pytest.FixtureRequest, name: str
) -> None:
    page.set_viewport_size({"width": 1100, "height": 1400})
    page.goto(request.getfixturevalue(name).as_uri())
    lines = page.locator(".headline").evaluate("e => e.offsetHeight / parseFloat(getComputedStyle(e).lineHeight)")
    assert round(lines) <= 2
    for width in (1600, 1100, 390):
        page.set_viewport_size({"width": width, "height": 1400})
        assert page_width(page) == width
        assert page.locator("nav").evaluate("e => e.offsetWidth") >= 0.9 * width
        assert len(set(page.locator(".tile").evaluate_all("all => all.map(e => e.offsetHeight)"))) == 1
        widest = page.locator("main p:visible").evaluate_all("all => Math.max(...all.map(e => e.offsetWidth))")
        assert widest <= 1000


def test_paper_cuts_nothing_of_what_the_judge_says(page: Page, judged_report: Path) -> None:
    page.emulate_media(media="print")
    page.set_viewport_size({"width": 702, "height": 1000})
    page.goto(judged_report.as_uri())
    assert page_width(page) == 702
    assert page.locator("table.judged:visible").count() == 4


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_can_be_read(page: Page, judged_report: Path, scheme: str) -> None:
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    page.goto(judged_report.as_uri())
    page.locator("details").first.evaluate("e => { e.open = true; }")
    assert page.evaluate(LOW_CONTRAST) == []


def test_dark_is_dark_and_light_is_light(page: Page, report: Path) -> None:
    page.goto(report.as_uri())
    assert background(page) == "rgb(255, 255, 255)"
    page.emulate_media(color_scheme="dark")
    assert background(page) == "rgb(18, 22, 28)"


def test_a_narrow_screen_scrolls_tables_and_never_the_page(page: Page, report: Path) -> None:
    page.set_viewport_size({"width": 400, "height": 800})
    page.goto(report.as_uri())
    assert page_width(page) == 400
    assert page.locator(".narrow svg.chart:visible").count() == 2
    assert page.locator(".wide-only svg.chart:visible").count() == 0
    assert page.locator(".keys li:visible").count() == 5


def test_paper_is_light_complete_and_not_cut(page: Page, report: Path) -> None:
    page.emulate_media(media="print", color_scheme="dark")
    page.set_viewport_size({"width": 702, "height": 1000})
    page.goto(report.as_uri())
    assert background(page) == "rgb(255, 255, 255)"
    assert page_width(page) == 702
    assert not page.locator("nav").is_visible()
    assert page.get_by_text("TTFT p50").is_visible()  # folded away on screens
    document = page.pdf(format="A4", print_background=True)
    assert document.startswith(b"%PDF")
    assert len(document) > 50_000


def test_the_pointer_shows_the_values_of_a_checkpoint(page: Page, report: Path) -> None:
    page.goto(report.as_uri())
    column = page.locator(".wide-only .hit").nth(5)
    tip = column.locator(".tip")
    assert tip.evaluate("e => getComputedStyle(e).visibility") == "hidden"
    column.locator("rect").first.hover()
    assert tip.evaluate("e => getComputedStyle(e).visibility") == "visible"
    assert "step 600" in (tip.text_content() or "")
    assert "facts 0.912 ± 0.062 ~ inconclusive" in (tip.text_content() or "")


def test_the_keyboard_reaches_everything(page: Page, report: Path) -> None:
    page.goto(report.as_uri())
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.url.endswith("#verdicts")
    assert page.locator('.scroll:not([tabindex="0"])').count() == 0
    page.locator("#latency summary").focus()
    page.keyboard.press("Enter")
    assert page.get_by_text("TTFT p50").is_visible()


def test_text_of_a_model_runs_nothing(page: Page, tmp_path: Path) -> None:
    run = forgetting_run(run_id=HOSTILE, samples=20)
    reports = tuple(
        replace(
            r,
            verdicts=tuple(replace(v, reason=Failed(message=HOSTILE, error="E-X")) for v in r.verdicts),
            run_id=HOSTILE,
        )
        for r in run.reports
    )
    hostile = RecordedRun(
        run_id=HOSTILE,
        records=tuple(map(answered, run.records)),
        reports=reports,
        gaps=tuple(replace(g, message=HOSTILE) for g in run.gaps),
        phases=(*run.phases[:1], Phase(name=HOSTILE, from_step=600)),
    )
    page.goto(written(run_data(hostile), tmp_path / "hostile.html").as_uri())
    assert page.title().startswith("<img src=x")
    page.locator("html.live").wait_for()
    assert page.locator("script:not([type='application/octet-stream'])").count() == 1  # our own
    assert page.locator("img, iframe, object, [onload], [onerror]").count() == 0
    assert "<img src=x" in page.locator("#samples-list").inner_text()
    links: list[str] = page.evaluate("[...document.links].map(link => link.getAttribute('href'))")
    assert links
    assert all(link.startswith("#") for link in links)
    shown: str = page.evaluate("document.body.textContent")
    assert shown.count("<img src=x") > 10
    assert "{{ 7 * 7 }}" in shown
    assert not set("\x1b\x00\u202e\ud83d") & set(shown)


def talkative(record: EvalRecord) -> EvalRecord:
    """Return the record with long prompts, answers of several sentences, and two subsets."""

    def said(at: int, sample: SampleScore) -> SampleScore:
        return replace(
            sample,
            subset=("easy", "hard")[at % 2],
            prompt=f"{'A long introduction. ' * 60}{sample.prompt}",
            answer=f"Let me think about question {at}. 答案是{sample.answer}。",
        )

    outcomes = tuple(
        replace(o, samples=tuple(said(*one) for one in enumerate(o.samples))) if isinstance(o, EvalResult) else o
        for o in record.outcomes
    )
    return replace(record, outcomes=outcomes)


def test_without_script_the_first_samples_are_shown_and_a_sentence_says_so(page: Page, samples_page: Path) -> None:
    with without_script(page, samples_page.as_uri()) as still:
        assert still.get_by_text("This file contains all 131 lost and 2 gained samples").is_visible()
        assert still.locator("#changes article.loss:visible .sample").count() >= 9
        assert still.locator("#samples-tools").is_hidden()
    page.emulate_media(media="print")
    page.goto(samples_page.as_uri())
    page.locator("html.live").wait_for(state="attached")
    assert page.locator("#changes article.loss:visible .sample").count() >= 9
    assert page.locator("#samples-tools").is_hidden()


def test_all_lost_and_gained_samples_are_searched_filtered_and_compared_word_by_word(
    page: Page, samples_page: Path
) -> None:
    cards, tools = page.locator("#samples-list article:visible"), page.locator("#samples-tools")
    page.goto(samples_page.as_uri())
    wait_for_texts(page, "1 to 10 of 133")
    assert page.locator(".still:visible").count() == 0
    page.get_by_role("button", name="Next samples").click()
    wait_for_texts(page, "11 to 20 of 133")
    tools.get_by_label("Direction").select_option("gained (2)")
    wait_for_texts(page, "1 to 2 of 2")
    assert cards.first.inner_text().startswith("Gained reversal, step 900 to 1000 (")
    assert page.get_by_role("button", name="Next samples").is_disabled()
    tools.get_by_label("Direction").select_option("lost (131)")
    tools.get_by_label("Benchmark").select_option("sums, step 600 to 1000")
    wait_for_texts(page, "1 to 10 of 53")
    tools.get_by_label("Subset").select_option("hard")
    wait_for_texts(page, "1 to 10 of 24")
    tools.get_by_label("Search").fill("Introduction QUESTION 37.")
    wait_for_texts(page, "1 to 1 of 1")
    assert cards.locator(".then mark").all_inner_texts() == ["48"]
    assert cards.locator(".now mark").all_inner_texts() == ["=92+91"]
    assert "答案是48。" in cards.locator(".then pre").inner_text()
    cards.locator("summary").click()
    wait_for_texts(
        page, "4 output tokens, finish reason stop; evaluated 2026-03-14", "greedy, top_p 1, at most 16 tokens"
    )
    assert page.evaluate(BARRIERS) == []
    assert page.evaluate(LOW_CONTRAST) == []
    page.set_viewport_size({"width": 360, "height": 800})
    assert page_width(page) == 360
    tools.get_by_label("Search").fill("no such words")
    wait_for_texts(page, "no sample")


def test_names_without_a_place_to_break_never_widen_the_page(page: Page, tmp_path: Path) -> None:
    name = "a_name_without_any_place_to_break_" * 6
    run, failed = judged_run(subset=name, reason=name), Failed(message=name, error="E-X")
    reports = tuple(
        replace(
            r,
            verdicts=tuple(replace(v, benchmark=name + v.benchmark, reason=failed) for v in r.verdicts),
            findings=tuple(replace(f, benchmark=name + f.benchmark, reason=failed) for f in r.findings),
            latency=tuple(replace(v, load=name, reason=failed) for v in r.latency),
        )
        for r in run.reports
    )
    long = replace(run, reports=reports, gaps=tuple(replace(g, message=name) for g in run.gaps))
    page.goto(written(run_data(long), tmp_path / "long.html").as_uri())
    assert page_width(page) == 1200
    page.set_viewport_size({"width": 400, "height": 800})
    assert page_width(page) == 400
    page.set_viewport_size({"width": 702, "height": 1000})
    page.emulate_media(media="print")
    assert page_width(page) == 702


def test_200_checkpoints_of_50_benchmarks_are_one_page_of_less_than_5_megabytes(page: Page, wide_report: Path) -> None:
    assert wide_report.stat().st_size < 5_000_000
    page.goto(wide_report.as_uri())
    wait_for_texts(page, "▼▼ forgotten", "160 earlier checkpoints", "38 more curves", "38 more benchmarks")
    assert page_width(page) == 1200
    assert page.locator("table.verdicts.wide thead").first.locator("th").count() == 51
    page.set_viewport_size({"width": 400, "height": 800})
    assert page_width(page) == 400
    page.emulate_media(media="print")
    page.set_viewport_size({"width": 702, "height": 1000})
    assert page_width(page) == 702
    assert page.locator("table.paper:visible").count() == 5  # ten benchmarks each, every checkpoint
    assert page.locator("table.paper:visible").last.locator("tbody tr").count() == 200
    assert page.locator("table.wide:visible").count() == 0
