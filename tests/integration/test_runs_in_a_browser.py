"""The page of several runs as people see it: in a real Chromium, in dark, on a phone and with the keyboard."""

from pathlib import Path

import pytest
from playwright.sync_api import Page

from dashboards.page.run import write_runs_report
from tests.accessibility import BARRIERS, barriers_of_keyboard
from tests.browser import LOW_CONTRAST
from tests.compared_runs import project_of_two_runs

pytestmark = pytest.mark.chromium


def test_runs_side_by_side_can_be_read_in_the_dark_on_a_phone_and_by_keyboard(page: Page, tmp_path: Path) -> None:
    path = write_runs_report(project_of_two_runs(tmp_path), ("tiny-forgetting", "slower"), None)
    page.emulate_media(color_scheme="dark")
    page.goto(path.as_uri())
    assert page.evaluate(BARRIERS) == []
    assert page.evaluate(LOW_CONTRAST) == []
    assert barriers_of_keyboard(page) == []
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    tables = page.locator(".scroll").all()
    assert len(tables) == 4
    assert not any(table.evaluate("e => e.scrollWidth > e.clientWidth") for table in tables)
    assert page.locator(".narrow .keys li:visible").count() == 6
