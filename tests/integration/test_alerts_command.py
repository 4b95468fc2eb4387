"""`tracker alerts`, `tracker silence` and `tracker accept` as a user calls them, with a strict chat service behind."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from eval_jobs.queue.database_sql import open_database
from tests import alerts
from tests.channels import SECRET
from tests.commands import run_tracker, tracker
from tests.fakes.chat_rules import FeishuRules, SlackRules
from tests.fakes.chat_services import ChatService
from tests.json_output import result_of
from tests.judged_run import judged_run
from tracker.adapters.history.store_sql import SqlHistory
from tracker.config import load_config
from tracker.domain.alerts.rules import loss_alerts
from tracker.domain.records.alerts import Alert, AlertState
from tracker.wiring.project import Project

RUN = judged_run()
CONFIG = """
[run]
name = "{run}"
output_dir = "out"
[tracking]
enabled = false
[[benchmark]]
benchmark = "exact"
data = "facts.jsonl"
"""
CHANNELS = """
[[alerts.channel]]
name = "team"
kind = "feishu"
url_file = "feishu_url"
secret_file = "feishu_key"
[[alerts.channel]]
name = "others"
kind = "slack"
url_file = "slack_url"
"""


@dataclass(frozen=True, kw_only=True)
class Site:
    """A project with a judged run and two channels."""

    folder: Path
    team: ChatService
    others: ChatService

    def raise_alert(self, alert: Alert) -> None:
        """Do as a watcher does that is killed before it sends anything."""
        project = Project(load_config(self.folder / "tracker.toml"))
        project.dispatcher.dispatch([alert])
        project.database.dispose()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    (tmp_path / "tracker.toml").write_text(CONFIG.replace("{run}", RUN.run_id) + CHANNELS)
    (tmp_path / "facts.jsonl").write_text('{"question": "1+1", "answer": "2"}\n')
    (tmp_path / ".tracker").mkdir()
    engine = open_database(f"sqlite:///{tmp_path}/.tracker/tracker.db")
    history = SqlHistory(engine, tmp_path / ".tracker" / "samples")
    for record, report in zip(RUN.records, RUN.reports, strict=True):
        history.append(record)
        history.append_reports(report)
    for incident in RUN.incidents:
        history.append_incident(incident)
    engine.dispose()
    with ChatService(FeishuRules(secret=SECRET)) as team, ChatService(SlackRules()) as others:
        (tmp_path / "feishu_url").write_text(team.url)
        (tmp_path / "feishu_key").write_text(SECRET)
        (tmp_path / "slack_url").write_text(others.url)
        yield Site(folder=tmp_path, team=team, others=others)


def alert_of(subject: str = "facts") -> Alert:
    return replace(alerts.alert(subject, 1000, run_id=RUN.run_id), message=f"{subject} regressed at step 1000")


def test_a_channel_is_tried_and_what_the_service_answers_is_shown(site: Site) -> None:
    said = tracker(site.folder, "alerts", "test")
    assert "team: delivered" in said
    assert "others: delivered" in said
    assert (len(site.team.taken), len(site.others.taken)) == (1, 1)
    assert "this is a test message" in json.dumps(site.others.taken[0].json())


def test_a_wrong_key_is_said_with_what_to_do_and_shown_to_nobody(site: Site) -> None:
    (site.folder / "feishu_key").write_text("another-key")
    said = tracker(site.folder, "alerts", "test", "team", code=4)
    assert "team: not delivered" in said
    assert "secret_file" in said
    done = run_tracker(site.folder, "alerts", "test", "--json")
    team, others = sorted(result_of(done.stdout), key=lambda one: str(one["channel"]), reverse=True)
    assert (done.returncode, team["is_delivered"], others["is_delivered"]) == (4, False, True)
    assert "secret_file" in team["hint"]
    assert "another-key" not in said
    assert site.team.taken == []
    assert "no channel named 'tam'" in tracker(site.folder, "alerts", "test", "tam", code=2)


def test_what_lasts_and_what_waits_is_listed(site: Site) -> None:
    assert "no open alerts" in tracker(site.folder, "alerts", "list")
    site.raise_alert(alert_of())
    said = tracker(site.folder, "alerts", "list")
    assert "facts regressed at step 1000" in " ".join(said.split())
    assert "channel team: 1 alert pending" in said
    listed = json.loads(tracker(site.folder, "alerts", "list", "--json"))["result"]
    assert [alert["subject"]["name"] for alert in listed["open"]] == ["facts"]
    assert {channel["name"]: channel["waiting"] for channel in listed["channels"]} == {"team": 1, "others": 1}


def test_a_shell_without_the_secret_queues_for_the_watcher(site: Site) -> None:
    config = (site.folder / "tracker.toml").read_text()
    (site.folder / "tracker.toml").write_text(config.replace('url_file = "slack_url"', 'url_env = "NOT_IN_THIS_SHELL"'))
    site.raise_alert(alert_of())
    said = tracker(site.folder, "silence", "sums", "--for", "1h", "--reason", "lets what is due be sent")
    assert "1 alert for channel others pending, to be sent by the watcher or at the next start" in " ".join(
        said.split()
    )
    assert len(site.team.taken) == 1
    listed = " ".join(tracker(site.folder, "alerts", "list").split())
    assert "channel others: 1 alert pending" in listed
    assert "NOT_IN_THIS_SHELL is not set" in listed
    assert "NOT_IN_THIS_SHELL is not set" in tracker(site.folder, "watch", "--until-idle", code=2)


def test_a_project_without_a_channel_says_where_alerts_are(site: Site) -> None:
    (site.folder / "tracker.toml").write_text(CONFIG.replace("{run}", RUN.run_id))
    assert "no channel configured" in tracker(site.folder, "alerts", "list")
    assert "[[alerts.channel]]" in tracker(site.folder, "alerts", "test", code=2)


def test_a_channel_with_another_name_is_said_and_takes_over_what_waited_and_what_was_told(site: Site) -> None:
    site.raise_alert(alert_of("sums"))
    tracker(site.folder, "silence", "--kind", "queue", "--for", "1s", "--reason", "sends what waits")
    site.raise_alert(alert_of())
    file = site.folder / "tracker.toml"
    file.write_text(file.read_text().replace('name = "others"', 'name = "renamed"'))
    site.raise_alert(replace(alert_of("sums"), state=AlertState.RESOLVED, message="is back"))
    listed = " ".join(tracker(site.folder, "alerts", "list").split())
    assert "channel others: removed from tracker.toml, 1 alert pending" in listed
    assert "`tracker alerts rename others NEW`" in listed
    assert "`tracker alerts discard others`" in listed
    assert "channel 'team' is still configured" in tracker(site.folder, "alerts", "discard", "team", code=2)
    assert "no channel named 'nwe'" in tracker(site.folder, "alerts", "rename", "others", "nwe", code=2)
    said = tracker(site.folder, "alerts", "rename", "others", "renamed")
    assert "moved others to renamed: 1 alert pending" in said
    told = [json.dumps(asked.json()) for asked in site.others.taken]
    assert "facts regressed" in "".join(told)
    assert "Resolved" in "".join(told[1:])  # of sums, whose end nobody would have heard
    assert "others" not in tracker(site.folder, "alerts", "list")
    assert "no alerts pending for channel 'others'" in tracker(site.folder, "alerts", "discard", "others", code=2)


def test_a_silence_holds_alerts_back_until_it_is_ended(site: Site) -> None:
    said = tracker(site.folder, "silence", "facts", "--for", "4h", "--reason", "the data is being mended")
    assert f"silenced until {datetime.now(UTC):%Y-}" in said
    site.raise_alert(alert_of())
    site.raise_alert(alert_of("sums"))
    tracker(site.folder, "silence", "fact?", "--subset", "a", "--for", "1s", "--reason", "sends what waits")
    assert "sums" in json.dumps(site.others.taken[0].json())
    assert len(site.others.taken) == 1
    listed = tracker(site.folder, "alerts", "list")
    assert "channel team: 1 alert pending: silenced" in listed
    assert "the data is being mended" in " ".join(listed.split())
    tracker(site.folder, "silence", "facts", "--end")
    assert "facts" in json.dumps(site.others.taken[1].json())
    assert len(site.team.taken) == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("facts",), "expected either --for DURATION or --end"),
        (("facts", "--for", "4h", "--end"), "expected either --for DURATION or --end"),
        (("facts", "--for", "4h"), "missing --reason"),
        (("facts", "--for", "4 weeks", "--reason", "r"), "is not a duration, such as 30min, 4h or 2d"),
        (("facts", "--for", "0h", "--reason", "r"), "expected a duration from 1s to 365d"),
        (("facts", "--end"), "is not silenced"),
        (("checkpoint", "--for", "4h", "--reason", "r"), "checkpoint is an alert kind and may also be a benchmark"),
        (("--for", "4h", "--reason", "r"), "missing NAME"),
        (
            ("fatcs", "--for", "4h", "--reason", "r"),
            "'fatcs' hint: did you mean facts? known benchmarks: facts, reversal, sums",
        ),
        (
            ("z*", "--for", "4h", "--reason", "r"),
            "no benchmark matches 'z*' hint: known benchmarks: facts, reversal, sums",
        ),
        (("x", "--kind", "latency", "--for", "4h", "--reason", "r"), "no load matches 'x' hint: known loads: "),
        (("facts", "--kind", "queue", "--for", "4h", "--reason", "r"), "queue alerts have no name"),
        (("--kind", "latency", "--subset", "a", "--for", "4h", "--reason", "r"), "--subset requires --kind benchmark"),
        (
            ("facts", "--for", "4h", "--reason", "r", "--run", "other"),
            "is not a run of this tracker.toml",
        ),
    ],
)
def test_a_silence_that_cannot_be_meant_is_refused(site: Site, arguments: tuple[str, ...], said: str) -> None:
    assert said in " ".join(tracker(site.folder, "silence", *arguments, code=2).split())


def test_accepting_a_level_tells_that_the_loss_is_over(site: Site) -> None:
    project = Project(load_config(site.folder / "tracker.toml"))
    (incident,) = [e for e in project.history.incidents(RUN.run_id) if e.benchmark == "facts" and e.closed_step is None]
    report = next(r for r in RUN.reports if r.step == 1000)
    project.database.dispose()
    (alert,) = loss_alerts(replace(report, incidents=(incident,)), ())
    site.raise_alert(alert)
    tracker(site.folder, "accept", "1000", "facts", "--reason", "the mix changed on purpose")
    told = [json.dumps(asked.json(), ensure_ascii=False) for asked in site.others.taken]
    assert len(told) == 1  # both are of one checkpoint: one message
    assert "the mix changed on purpose" in told[0]
    assert "facts" not in tracker(site.folder, "alerts", "list")
