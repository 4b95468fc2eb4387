"""Secrets are found where the settings say, and no child process inherits one."""

import os

import pytest

from eval_jobs.errors import ConfigError
from eval_jobs.host.secrets import held_secrets
from tests.unit.tracker.config.test_alerting import HERE, PROJECT
from tracker.adapters.secrets import read_secret, take_out
from tracker.config import parse_config
from tracker.wiring.project import Project, channels_of


def test_a_variable_is_gone_for_children_and_still_found_as_often_as_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PLAIN_NAME", "https://robot.example/0123456789")
    take_out(["PLAIN_NAME", "NOT_THERE_AT_ALL"])
    assert "PLAIN_NAME" not in os.environ
    assert "https://robot.example/0123456789" in held_secrets({})
    for _ in range(2):
        assert read_secret(variable="PLAIN_NAME", file=None, setting="x") == "https://robot.example/0123456789"
    monkeypatch.setenv("PLAIN_NAME", "https://robot.example/another")
    assert read_secret(variable="PLAIN_NAME", file=None, setting="x") == "https://robot.example/another"
    with pytest.raises(ConfigError, match="NOT_THERE_AT_ALL is not set"):
        read_secret(variable="NOT_THERE_AT_ALL", file=None, setting="x")


def test_whoever_opens_a_project_hands_no_address_of_a_channel_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROBOT_OF_THE_TEAM", "https://hooks.slack.com/services/T0/B0/abcdefghijklmnop")
    monkeypatch.setenv("ROBOT_S_WORD", "0123456789abcdef")
    table = (
        '[[alerts.channel]]\nname = "t"\nkind = "lark"\nurl_env = "ROBOT_OF_THE_TEAM"\nsecret_env = "ROBOT_S_WORD"\n'
    )
    project = Project(parse_config(f"{PROJECT}{table}", HERE))
    assert not {"ROBOT_OF_THE_TEAM", "ROBOT_S_WORD"} & set(os.environ)
    (channel,) = channels_of(project.config)
    assert channel.name == "t"
