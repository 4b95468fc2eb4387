"""Shared by integration tests: the real vLLM server on one checkpoint, and the browser."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page

from eval_jobs.types import Endpoint
from tests.browser import open_page
from tests.tiny_model import checkpoint_record, write_checkpoint
from tests.vllm_series import Series


@pytest.fixture
def served(plain: Series, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    """The vLLM server of all tests on the tiny model of seed 0, with a context of 256 tokens (characters here)."""
    folder = write_checkpoint(tmp_path_factory.mktemp("served") / "checkpoint-0", seed=0)
    with plain.serving(checkpoint_record(folder, step=0)) as endpoint:
        yield endpoint


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
