"""What a report of 200 checkpoints and 50 benchmarks costs: to make, to send, to open, to use.

    python -m benchmarks.report_page
    python -m benchmarks.report_page --quick      # a small run: does it work?

Prints one table. The run is made up; the page is opened in a real headless Chromium, each time in a new one. "To use"
is the time from the first byte until a click has changed what the page shows: the page has no script that could make a
reader wait longer.
"""

from __future__ import annotations

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
from tests.records import RecordedRun, wide_run
from tests.reports import checkpoint_data, run_data, timed

TRIES = 5
OPENED = """() => new Promise(done => {
  const loaded = performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd;
  requestAnimationFrame(() => requestAnimationFrame(() => done([loaded, performance.now()])));
})"""
USED = """([control, by]) => new Promise(done => {
  const e = document.querySelector(control), start = performance.now();
  e.scrollIntoView();
  if (by === 'click') e.click(); else { e.value = by; e.dispatchEvent(new Event('change', {bubbles: true})); }
  requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now() - start)));
})"""


@dataclass(frozen=True, kw_only=True)
class Opened:
    """What one opening of a page took, in ms."""

    loaded: float
    """Until DOMContentLoaded."""
    drawn: float
    """Until the second frame after it."""
    filtered: float
    """From a click on a filter until the page has changed."""


@click.command()
@click.option("--quick", is_flag=True, help="A small run.")
def main(*, quick: bool) -> None:
    """Make the pages, open them and print."""
    checkpoints, benchmarks = (10, 5) if quick else (200, 50)
    made_up = wide_run(checkpoints=checkpoints, benchmarks=benchmarks, samples=20)
    run = replace(made_up, records=tuple(timed(record) for record in made_up.records))
    table = Table(title=f"{checkpoints} checkpoints x {benchmarks} benchmarks")
    for heading in ("page", "size", "to arrange and write", "to DOMContentLoaded", "drawn", "a filter"):
        table.add_column(heading, justify="left" if heading == "page" else "right")
    with tempfile.TemporaryDirectory(prefix="tracker-report-") as name, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for row in _rows(run, Path(name), browser):
            table.add_row(*row)
        browser.close()
    Console(width=120).print(table)


# --- private


def _rows(run: RecordedRun, folder: Path, browser: Browser) -> Iterator[tuple[str, ...]]:
    data, step = run_data(run), run.reports[-1].step
    one = checkpoint_data(run, step)
    pages: tuple[tuple[str, Callable[[], str], str], ...] = (
        ("the run", lambda: render_page(build_view(data), version="0"), "#forgetting select"),
        ("a checkpoint", lambda: render_checkpoint(build_checkpoint_view(one), version="0"), "#changes select"),
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
            _median(tries, lambda t: t.drawn),
            _median(tries, lambda t: t.filtered),
        )
        yield (name, f"{path.stat().st_size / 1e6:.2f} MB", f"{spent:.2f} s", *times)


def _open(browser: Browser, path: Path, control: str) -> Opened:
    context = browser.new_context(viewport={"width": 1200, "height": 900})
    page = context.new_page()
    page.goto(path.as_uri(), wait_until="commit")
    page.wait_for_load_state("domcontentloaded")
    loaded, drawn = page.evaluate(OPENED)
    filtered = page.evaluate(USED, [control, "of1"])
    context.close()
    return Opened(loaded=loaded, drawn=drawn, filtered=filtered)


def _median(tries: list[Opened], of: Callable[[Opened], float]) -> str:
    return f"{statistics.median(map(of, tries)):,.0f} ms"


if __name__ == "__main__":
    main()
