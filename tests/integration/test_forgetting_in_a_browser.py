"""The ledger in the report as people see it: in a real Chromium, in light and dark, on a narrow screen and on paper."""

from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Page

from dashboards.data.run import RunData
from dashboards.page.html import render_page
from dashboards.views.run import build_view
from eval_jobs.types import EvalResult, Outcome
from tests.browser import LOW_CONTRAST, screenshot, wait_for_texts
from tests.records import RecordedRun, forgetting_run
from tests.reports import run_data
from tracker.domain.records.policy import Phase

pytestmark = pytest.mark.chromium

HOSTILE = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script></svg>"


def with_subsets(run: RecordedRun, names: tuple[str, ...]) -> RecordedRun:
    """Return the run with the samples of sums in as many subsets."""

    def of_outcome(outcome: Outcome) -> Outcome:
        if not isinstance(outcome, EvalResult) or outcome.benchmark != "sums":
            return outcome
        samples = (replace(s, subset=names[i % len(names)]) for i, s in enumerate(outcome.samples))
        return replace(outcome, samples=tuple(samples))

    records = (replace(r, outcomes=tuple(of_outcome(o) for o in r.outcomes)) for r in run.records)
    return replace(run, records=tuple(records))


def written(data: RunData, path: Path) -> Path:
    path.write_text(render_page(build_view(data), version="0.1.0"), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = with_subsets(forgetting_run(), ("easy", "hard", "odd"))
    return written(run_data(run), tmp_path_factory.mktemp("report") / "report.html")


def colour(page: Page, selector: str) -> str:
    found: str = page.locator(selector).first.evaluate("e => getComputedStyle(e).fill")
    return found


def test_strips_numbers_and_lost_samples_are_shown(page: Page, report: Path, tmp_path: Path) -> None:
    page.goto(report.as_uri())
    wait_for_texts(
        page,
        "facts and sums, learned in phase skills",
        "facts: 62 of 80 samples lost, 64 now, about 0.3 expected by chance",
        "✓ Correct at step 600",
        "✗ Incorrect at step 1000",
        "incorrect at 100 to 200, correct at 300 to 700, incorrect at 800 to 1000",
    )
    assert page.locator("#forgetting .heat-row:visible").count() == 3
    box = page.locator("#forgetting .strip").first.bounding_box()
    assert box is not None
    assert (box["width"] > 500, box["height"]) == (True, 24)
    assert colour(page, ".strip .best") != colour(page, ".strip .a6")
    assert screenshot(page, tmp_path / "ledger.png", full_page=True).stat().st_size > 50_000


def test_subsets_are_folded_until_they_are_asked_for(page: Page, report: Path) -> None:
    page.goto(report.as_uri())
    summary = page.get_by_text("3 subsets of sums, largest loss first")
    assert not page.locator(".heat-row.part").first.is_visible()
    summary.focus()
    page.keyboard.press("Enter")
    assert page.locator(".heat-row.part:visible").count() == 3


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_can_be_read_with_everything_unfolded(page: Page, report: Path, scheme: str) -> None:
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    page.goto(report.as_uri())
    for details in page.locator("#forgetting details").all():
        details.evaluate("e => { e.open = true; }")
    assert page.evaluate(LOW_CONTRAST) == []


def test_colours_follow_the_scheme(page: Page, report: Path) -> None:
    page.goto(report.as_uri())
    light = colour(page, ".strip .a6")
    page.emulate_media(color_scheme="dark")
    assert colour(page, ".strip .a6") != light


@pytest.mark.parametrize(("width", "media"), [(400, "screen"), (702, "print")])
def test_neither_a_narrow_screen_nor_paper_is_too_narrow(page: Page, report: Path, width: int, media: str) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    page.emulate_media(media="print" if media == "print" else "screen")
    page.goto(report.as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") == width
    strip = page.locator("#forgetting .strip").first.bounding_box()
    assert strip is not None
    assert strip["width"] > 150
    assert page.locator(".heat-row.part").first.is_visible() is (media == "print")  # folded away on screens


def test_text_of_a_model_runs_nothing(page: Page, tmp_path: Path) -> None:
    run = with_subsets(forgetting_run(samples=20), (HOSTILE, f"{HOSTILE}2"))

    def hostile(outcome: Outcome) -> Outcome:
        if not isinstance(outcome, EvalResult):
            return outcome
        samples = (replace(s, prompt=HOSTILE, target=HOSTILE, answer=HOSTILE) for s in outcome.samples)
        return replace(outcome, samples=tuple(samples))

    records = tuple(replace(r, outcomes=tuple(hostile(o) for o in r.outcomes)) for r in run.records)
    phases = (Phase(name=HOSTILE, from_step=0), Phase(name=f"{HOSTILE}2", from_step=600))
    data = run_data(replace(run, records=records, phases=phases))
    assert data.ledger is not None
    named = tuple(replace(b, benchmark=HOSTILE + b.benchmark) for b in data.ledger.benchmarks)
    data = replace(data, ledger=replace(data.ledger, benchmarks=named))
    page.goto(written(data, tmp_path / "hostile.html").as_uri())
    assert page.locator("#forgetting .heat-row").count() == 5
    assert page.locator("#forgetting .sample").count() == 6
    assert page.locator("img").count() == 0
    kinds = [script.get_attribute("type") for script in page.locator("script").all()]
    assert kinds.count(None) == 1  # ours; the others are data
    assert {kind for kind in kinds if kind is not None} == {"application/octet-stream"}
    assert "<img src=x" in page.locator("#samples-list").inner_text()
    assert "owned" not in page.title()
