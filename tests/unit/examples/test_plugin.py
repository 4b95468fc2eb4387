"""docs/how-to/plugins.md shows the example package as it is, in 30 lines, and names every kind of part."""

import re
import tomllib

from eval_jobs.host.plugins import ENGINES, EVALUATORS
from tests.plugins import EXAMPLE
from tests.requires import PROJECT
from tracker.adapters.alerts.channels.plugin_channel import CHANNELS
from tracker.adapters.checkpoints.plugin_source import SOURCES
from tracker.cli.main import PLUGIN_GROUP
from tracker.config import parse_config

PAGE = (PROJECT / "docs" / "how-to" / "plugins.md").read_text()
PACKAGE = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, flags=re.DOTALL)


def test_the_page_shows_the_channel_of_the_example_in_thirty_lines() -> None:
    shown, settings = blocks("python")[0], blocks("toml")[0]
    assert shown.strip() in (EXAMPLE / "tracker_example" / "channel.py").read_text()
    lines = [line for line in (shown + settings).splitlines() if line.strip()]
    assert len(lines) <= 30
    project = tomllib.loads(settings)["project"]
    assert (project["name"], project["dependencies"]) == (PACKAGE["name"], PACKAGE["dependencies"])
    for group, points in project["entry-points"].items():
        assert points.items() <= PACKAGE["entry-points"][group].items()


def test_the_settings_on_the_page_are_settings() -> None:
    base = '[run]\nname = "r"\noutput_dir = "o"\n[[benchmark]]\nbenchmark = "gsm8k"\n'
    (channel,) = parse_config(base + blocks("toml")[1], PROJECT / "tracker.toml").alerts.to_channels()
    assert channel.program is not None
    assert channel.program.name in PACKAGE["entry-points"][CHANNELS.group]


def test_the_page_names_every_kind_of_part_and_the_example_has_one_of_each_port() -> None:
    kinds = (ENGINES, EVALUATORS, CHANNELS, SOURCES)
    assert set(PACKAGE["entry-points"]) == {kind.group for kind in kinds}
    for group, setting in [(kind.group, kind.setting) for kind in kinds] + [(PLUGIN_GROUP, "tracker NAME")]:
        assert f"| `{group}` | `{setting}` |" in PAGE
