"""Differences between two configurations are listed by setting, without secrets."""

from pathlib import Path

import pytest

from tracker.config import parse_config
from tracker.config.changes import setting_changes

BASE = '[run]\nname = "r"\noutput_dir = "out"\n[[benchmark]]\nbenchmark = "gsm8k"\n'
ARGS = '[serve]\nengine = "vllm"\nargs = ["--hf-token", "hf_abcdefgh"]\n'
CHANNEL = '[[alerts.channel]]\nname = "team"\nkind = "slack"\nurl_env = "SLACK_URL"\n'


def changes(old: str, new: str) -> dict[str, tuple[str, str]]:
    before, after = (
        parse_config(text, Path("/project/tracker.toml")).model_dump(mode="json", exclude_none=True)
        for text in (old, new)
    )
    return {one["subject"]: (one["before"], one["after"]) for one in setting_changes(before, after)}


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (BASE, BASE, {}),
        (BASE, BASE + "limit = 3\n", {"benchmark.gsm8k.limit": ("not set", "3")}),
        (BASE + "limit = 3\n", BASE + "limit = 4\n", {"benchmark.gsm8k.limit": ("3", "4")}),
        (
            BASE + "[policy]\nalpha = 0.01\n[suite]\nmax_tokens = 8\n",
            BASE + "[policy]\nalpha = 0.02\n[suite]\nmax_tokens = 16\n",
            {"suite.max_tokens": ("8", "16"), "policy.alpha": ("0.01", "0.02")},
        ),
        (BASE, BASE + ARGS, {"serve.args": ("not set", "***")}),
        (BASE + ARGS, BASE, {"serve.args": ("***", "not set")}),
    ],
)
def test_each_setting_has_its_old_and_its_new_value(old: str, new: str, said: dict[str, tuple[str, str]]) -> None:
    assert changes(old, new) == said


def test_a_table_that_is_added_or_removed_is_one_change() -> None:
    more = BASE + '[[benchmark]]\nbenchmark = "exact"\nname = "facts"\ndata = "facts.jsonl"\n'
    assert changes(BASE, more) == {"benchmark.facts": ("not set", "{…}")}
    assert changes(more, BASE) == {"benchmark.facts": ("{…}", "not set")}
    assert changes(BASE, BASE + CHANNEL) == {"alerts.channel.team": ("not set", "{…}")}
    moved = changes(BASE + CHANNEL, BASE + CHANNEL.replace("SLACK_URL", "OTHER_URL"))
    assert moved == {"alerts.channel.team.url_env": ('"SLACK_URL"', '"OTHER_URL"')}
