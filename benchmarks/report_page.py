"""What a report of 200 checkpoints and 50 benchmarks costs, and one with 50,000 lost samples: to make, open and use.

    python -m benchmarks.report_page
    python -m benchmarks.report_page --quick      # a small run: does it work?

Prints one table. The runs are made up; a page is opened in a real headless Chromium, each time in a new one. A page is
usable when its script has shown the first samples. "a filter" and "a search" last until the page has changed; the
search looks through all samples for a text that none has.
"""

from __future__ import annotations

import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import click
from playwright.sync_api import Browser, sync_playwright
from rich.console import Console
from rich.table import Table

from dashboards.page.html import render_checkpoint, render_page
from dashboards.views.checkpoint import build_checkpoint_view
from dashboards.views.run import build_view
from eval_jobs.types import EvalRecord, EvalResult, SampleScore
from tests.records import RecordedRun, wide_run
from tests.reports import checkpoint_data, run_data, timed

TRIES = 5
VOCABULARY, PROMPT_WORDS, ANSWER_WORDS, CHANGED_WORDS = 5_000, 60, 50, 8
OPENED = """() => new Promise(done => {
  const loaded = performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd;
  const look = () => document.documentElement.classList.contains('live')
    ? requestAnimationFrame(() => requestAnimationFrame(() => done([loaded, performance.now()])))
    : setTimeout(look, 1);
  look();
})"""
USED = """([control, value, event]) => new Promise(done => {
  const e = document.querySelector(control);
  const count = document.querySelector('#samples-count');
  e.scrollIntoView();
  const start = performance.now(), isOurs = control.startsWith('#samples');
  const end = () => requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now() - start)));
  if (isOurs) new MutationObserver((_, seen) => {
    if (!count.textContent.endsWith('…')) { seen.disconnect(); end(); }
  }).observe(count, {childList: true});
  e.value = value;
  e.dispatchEvent(new Event(event, {bubbles: true}));
  if (!isOurs) end();
})"""


@dataclass(frozen=True, kw_only=True)
class Opened:
    """What one opening of a page took, in ms."""

    loaded: float
    """Until DOMContentLoaded."""
    usable: float
    """Until the second frame after the first samples were shown."""
    filtered: float
    """From the choice of a benchmark until the page has changed."""
    searched: float
    """From the last key until all samples were searched."""


@click.command()
@click.option("--quick", is_flag=True, help="A small run.")
def main(*, quick: bool) -> None:
    """Make the pages, open them and print."""
    checkpoints, benchmarks, samples = (10, 5, 200) if quick else (200, 50, 10_000)
    made_up = wide_run(checkpoints=checkpoints, benchmarks=benchmarks, samples=20)
    run = replace(made_up, records=tuple(timed(record) for record in made_up.records))
    table = Table(title=f"{checkpoints} checkpoints x {benchmarks} benchmarks; {5 * samples:,} lost samples")
    for heading in ("page", "size", "to arrange and write", "to DOMContentLoaded", "usable", "a filter", "a search"):
        table.add_column(heading, justify="left" if heading == "page" else "right")
    with tempfile.TemporaryDirectory(prefix="tracker-report-") as name, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for row in _rows(run, _all_lost(samples), Path(name), browser):
            table.add_row(*row)
        browser.close()
    Console(width=140).print(table)


# --- private


def _all_lost(samples: int) -> RecordedRun:
    """Return two checkpoints of five benchmarks: each question is answered correctly first, then incorrectly."""
    run, rng = wide_run(checkpoints=2, benchmarks=5, samples=samples), random.Random(1)  # noqa: S311 - made-up data
    words = ["".join(rng.choices("abcdefghiklmnoprstuw", k=rng.randint(2, 9))) for _ in range(VOCABULARY)]
    weights = [1 / (rank + 3) for rank in range(VOCABULARY)]
    return replace(
        run,
        records=tuple(_answered(record, words, weights, is_first=record is run.records[0]) for record in run.records),
    )


def _answered(record: EvalRecord, words: list[str], weights: list[float], *, is_first: bool) -> EvalRecord:
    def text(sample: SampleScore) -> SampleScore:
        rng = random.Random(sample.sample_id)  # noqa: S311 - made-up data
        said = rng.choices(words, weights, k=PROMPT_WORDS + ANSWER_WORDS)
        prompt, answer = said[:PROMPT_WORDS], said[PROMPT_WORDS:]
        if not is_first:
            for place in rng.sample(range(ANSWER_WORDS), CHANGED_WORDS):
                answer[place] = rng.choice(words)
        return replace(sample, prompt=" ".join(prompt), answer=" ".join(answer), score=float(is_first))

    outcomes = tuple(
        replace(o, samples=tuple(map(text, o.samples))) if isinstance(o, EvalResult) else o for o in record.outcomes
    )
    return replace(record, outcomes=outcomes)


def _rows(run: RecordedRun, lost: RecordedRun, folder: Path, browser: Browser) -> Iterator[tuple[str, ...]]:
    data, step = run_data(run), run.reports[-1].step
    one, many = checkpoint_data(run, step), checkpoint_data(lost, lost.reports[-1].step)
    pages: tuple[tuple[str, Callable[[], str], tuple[str, str]], ...] = (
        ("the run", lambda: render_page(build_view(data), version="0"), ("#forgetting select", "of1")),
        ("a checkpoint", lambda: render_checkpoint(build_checkpoint_view(one), version="0"), ("#samples-group", "1")),
        ("all lost", lambda: render_checkpoint(build_checkpoint_view(many), version="0"), ("#samples-group", "1")),
    )
    for name, made, control in pages:
        begun = time.perf_counter()
        html = made()
        spent = time.perf_counter() - begun
        path = folder / f"{name}.html"
        path.write_text(html, encoding="utf-8")
        tries = [_open(browser, path, control) for _ in range(TRIES)]
        times = (
            _median(tries, lambda t: t.loaded),
            _median(tries, lambda t: t.usable),
            _median(tries, lambda t: t.filtered),
            _median(tries, lambda t: t.searched),
        )
        yield (name, f"{path.stat().st_size / 1e6:.2f} MB", f"{spent:.2f} s", *times)


def _open(browser: Browser, path: Path, control: tuple[str, str]) -> Opened:
    context = browser.new_context(viewport={"width": 1200, "height": 900})
    page = context.new_page()
    page.goto(path.as_uri(), wait_until="commit")
    page.wait_for_load_state("domcontentloaded")
    loaded, usable = page.evaluate(OPENED)
    filtered = page.evaluate(USED, [*control, "change"])
    page.evaluate(USED, ["#samples-group", "", "change"])
    searched = page.evaluate(USED, ["#samples-search", "§ nowhere", "input"])
    context.close()
    return Opened(loaded=loaded, usable=usable, filtered=filtered, searched=searched)


def _median(tries: list[Opened], of: Callable[[Opened], float]) -> str:
    return f"{statistics.median(map(of, tries)):,.0f} ms"


if __name__ == "__main__":
    main()
