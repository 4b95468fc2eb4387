"""The real headless Chromium of all tests, for those that look at pages.

    with open_page("http://127.0.0.1:5000") as page:
        wait_for_texts(page, "facts", "train/loss")
        screenshot(page, tmp_path / "page.png")

`page` is Playwright's own page object; a file is opened by its `file://` URL (`path.as_uri()`).
Errors that the page itself throws are collected and fail the test when the page is closed.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from tests.requires import requires_binary
from tests.shared_servers import alone_with, start_detached

CHROMIUM_ARGS = (
    "--headless",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
    "--remote-debugging-port=0",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
)
TIMEOUT_MS = 60_000
"""Generous: a page with charts takes seconds on two busy cores."""

LOW_CONTRAST = """() => {
  const channel = c => (c /= 255) <= .03928 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4;
  const parse = s => (s.match(/[\\d.]+/g) || []).map(Number);
  const light = ([r, g, b]) => .2126 * channel(r) + .7152 * channel(g) + .0722 * channel(b);
  const ground = e => {
    for (; e; e = e.parentElement) {
      const c = parse(getComputedStyle(e).backgroundColor);
      if (c.length === 3 || c[3] > 0) return c;
    }
    return [255, 255, 255];
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const e = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !e.checkVisibility({visibilityProperty: true})) continue;
    const style = getComputedStyle(e);
    const ink = parse(e instanceof SVGElement ? style.fill : style.color);
    const [a, b] = [light(ink), light(ground(e))].sort((x, y) => y - x);
    const ratio = (a + .05) / (b + .05);
    if (ratio < 4.5) found.push(`${e.tagName} ${e.className.baseVal ?? e.className}: ${ratio.toFixed(2)}`);
  }
  return [...new Set(found)];
}"""
"""Script for `page.evaluate`: the elements whose visible text has a contrast below 4.5 to what is behind it."""


class Chromium:
    """The browser of all tests, one of which uses it at a time."""

    NAME = "chromium"

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._profile = folder / "profile"

    @property
    def url(self) -> str:
        """Address that takes its commands."""
        return f"http://127.0.0.1:{(self._profile / 'DevToolsActivePort').read_text().split()[0]}"

    def start(self) -> None:
        command = [str(requires_binary("chromium")), *CHROMIUM_ARGS, f"--user-data-dir={self._profile}", "about:blank"]
        start_detached(command, self._folder, (self._profile / "DevToolsActivePort").exists)


@contextmanager
def open_page(
    url: str,
    *,
    local_storage: Mapping[str, str] | None = None,
    width: int = 1600,
    height: int = 1000,
    fail_on_page_error: bool = True,
) -> Iterator[Page]:
    """Open `url` in a fresh profile; skip the test where Chromium is not installed.

    Args:
        url: `http://...` or `file://...`.
        local_storage: entries that are there before the page's first script runs.
        width: of the window, in pixels.
        height: of the window, in pixels.
        fail_on_page_error: whether an uncaught error in the page's scripts fails the test.
    """
    with alone_with(Chromium) as chromium, sync_playwright() as playwright:
        browser = playwright.chromium.connect_over_cdp(chromium.url)
        context = browser.new_context(viewport={"width": width, "height": height})
        try:
            page = context.new_page()
            page.set_default_timeout(TIMEOUT_MS)
            errors: list[str] = []
            page.on("pageerror", lambda error: errors.append(str(error)))
            if local_storage:
                page.add_init_script(_storage_script(local_storage))
            page.goto(url)
            yield page
        finally:
            context.close()
            browser.close()
    assert not (fail_on_page_error and errors), f"the page threw: {errors}"


@contextmanager
def without_script(page: Page, url: str) -> Iterator[Page]:
    """Open `url` in another page of the same browser, in which no script runs."""
    browser = page.context.browser
    assert browser is not None
    context = browser.new_context(viewport=page.viewport_size, java_script_enabled=False)
    try:
        still = context.new_page()
        still.goto(url)
        yield still
    finally:
        context.close()


def wait_for_texts(page: Page, *texts: str, timeout_ms: int = TIMEOUT_MS) -> None:
    """Wait until every text is visible somewhere on the page.

    Raises:
        playwright.sync_api.TimeoutError: one did not appear; the message names it.
    """
    for text in texts:
        page.get_by_text(text).locator("visible=true").first.wait_for(timeout=timeout_ms)


def screenshot(page: Page, path: Path, *, full_page: bool = False) -> Path:
    """Save what the page looks like now as a PNG file and return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=str(path), full_page=full_page)
    return path


# --- private


def _storage_script(entries: Mapping[str, str]) -> str:
    return f"for (const [k, v] of Object.entries({json.dumps(dict(entries))})) localStorage.setItem(k, v);"
