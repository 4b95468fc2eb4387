"""Shared by integration tests: one real vLLM server, whose start takes 20 s and more, and a browser for each file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page

from eval_jobs.host.clock import SystemClock
from eval_jobs.serve.resident.vllm import VllmEngine
from eval_jobs.types import Endpoint, ServeSpec
from tests.browser import open_page
from tests.tiny_model import checkpoint_record, write_checkpoint

SERVED_MAX_MODEL_LEN = 256


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[Endpoint]:
    """A vLLM server on the tiny model of seed 0 with a context of 256 tokens, which are characters here."""
    folder = tmp_path_factory.mktemp("served")
    checkpoint = checkpoint_record(write_checkpoint(folder / "checkpoint-100", seed=0))
    reporter = pytestconfig.pluginmanager.getplugin("terminalreporter")

    def show(line: str) -> None:
        # Past the capturing of output, so that a person sees why nothing moves.
        if reporter is not None and reporter.isatty:
            reporter.rewrite(f"one vLLM for all integration tests: {line} ")

    engine = VllmEngine(folder / "work", SystemClock())
    try:
        with engine.serving(checkpoint, ServeSpec(max_model_len=SERVED_MAX_MODEL_LEN), progress=show) as endpoint:
            yield endpoint
    finally:
        engine.close()


@pytest.fixture(scope="module")
def browser_page() -> Iterator[Page]:
    with open_page("about:blank", width=1200, height=900) as page:
        yield page


@pytest.fixture
def page(browser_page: Page) -> Page:
    """The browser's page, as wide and as light as at its start."""
    browser_page.set_viewport_size({"width": 1200, "height": 900})
    browser_page.emulate_media(media="screen", color_scheme="light")
    return browser_page
