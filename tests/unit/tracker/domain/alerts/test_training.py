"""Alerts of what went wrong in the training: their kind, their sentence, and when they are due."""

from dataclasses import replace
from datetime import timedelta

import pytest

from tests import alerts
from tests.log_reading import READ_AT as NOW
from tests.log_reading import read_incident
from tracker.config.health import load_rules
from tracker.domain.alerts.text import entry_of
from tracker.domain.alerts.training import (
    RunStanding,
    alert_of_incident,
    due_at,
    incident_text,
    incident_texts,
    is_due_at,
    naming_incidents,
    state_text,
    waits_at,
)
from tracker.domain.health.processes.signs import ProcessSign, process_trouble
from tracker.domain.health.run_log import RunLog
from tracker.domain.health.run_state import RunState
from tracker.domain.records.alerts import AlertEvidence, AlertKind, AlertState
from tracker.domain.records.training import IncidentEnd

SAVED = RunStanding(checkpoint=1000, is_evaluated=True)


OOM = read_incident("[rank7]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB")


def test_a_crash_says_its_cause_its_ranks_and_what_is_lost() -> None:
    firing = alert_of_incident(OOM, SAVED, NOW, lines=5)
    assert (firing.kind, firing.state, firing.step) == (AlertKind.CRASH, AlertState.FIRING, 1198)
    said = "GPU memory ran out on rank 7 at step 1198; last checkpoint 1000 is pinned and evaluated, 198 steps lost"
    assert firing.message == said
    assert firing.command == f"tracker incidents show {OOM.id}"
    entry = entry_of(firing)
    assert entry.headline == "training crashed: oom"
    assert entry.logged == (OOM.cause.text,)
    assert ("ranks", "7") in entry.facts
    assert ("hint", OOM.hint) in entry.facts
    over = alert_of_incident(replace(OOM, ended_by=IncidentEnd.PROGRESS, ended_step=1210), SAVED, NOW, lines=5)
    assert over.fingerprint == firing.fingerprint
    assert over.message == "GPU memory ran out on rank 7 at step 1198: training makes progress again, step 1210"


@pytest.mark.parametrize(("is_proven", "says"), [(True, ": rank 1 is"), (False, ": likely rank 1 is")])
def test_a_cause_that_is_only_likely_is_called_so(says: str, *, is_proven: bool) -> None:
    text = "rank 1 is not in the collective"
    sign = ProcessSign(trouble=process_trouble("spinning", "look"), text=text, is_proven=is_proven)
    log = RunLog(rules=load_rules().lines, state=RunState(run_id="run"))
    log.trouble.take_sign(sign, NOW)
    (incident,) = log.incidents()
    assert says in alert_of_incident(incident, SAVED, NOW, lines=5).message


def test_no_line_leaves_the_machine_if_none_is_wanted() -> None:
    evidence = alert_of_incident(OOM, SAVED, NOW, lines=0).evidence
    assert evidence is not None
    assert evidence.lines == ()


@pytest.mark.parametrize(
    ("standing", "words"),
    [
        (RunStanding(), "the run has no checkpoint yet"),
        (RunStanding(checkpoint=1198), "last checkpoint 1198 is pinned"),
        (RunStanding(checkpoint=1197), "last checkpoint 1197 is pinned, 1 step lost"),
    ],
)
def test_what_is_saved_is_said(standing: RunStanding, words: str) -> None:
    assert alert_of_incident(OOM, standing, NOW, lines=5).message.endswith(f"at step 1198; {words}")


def test_the_kind_follows_from_the_class() -> None:
    spike = (*(f"step {step} | loss: 2.5" for step in range(0, 400, 10)), "step 400 | loss: 9", "step 410 | loss: 9.5")
    kinds = {
        read_incident("NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."): AlertKind.FAULT,
        read_incident("step 1200 | loss: nan"): AlertKind.DIVERGED,
        read_incident(*spike, step=-10): AlertKind.ANOMALY,
    }
    assert {alert_of_incident(one, SAVED, NOW, lines=5).kind: kind for one, kind in kinds.items()} == {
        kind: kind for kind in kinds.values()
    }


def test_many_ranks_are_counted() -> None:
    ranks = tuple(range(256))
    assert (
        incident_text(replace(OOM, ranks=ranks)) == "GPU memory ran out on ranks 0, 1, 2, 3 and 252 more at step 1198"
    )
    entry = entry_of(alert_of_incident(replace(OOM, ranks=ranks), SAVED, NOW, lines=5))
    assert ("ranks", "0, 1, 2, 3, 4, 5, 6, 7 and 248 more") in entry.facts


def test_what_training_may_survive_is_due_after_its_wait() -> None:
    died = read_incident("Killing subprocess 77")
    assert [is_due_at(died, NOW + timedelta(seconds=s)) for s in (0, 14, 15)] == [False, False, True]
    assert [waits_at(died, NOW + timedelta(seconds=s)) for s in (0, 14, 15)] == [True, True, False]
    assert is_due_at(OOM, NOW)
    for quiet in (
        replace(OOM, is_history=True),
        read_incident("KeyboardInterrupt"),
        replace(OOM, ended_by=IncidentEnd.DISMISSED),
    ):
        assert not is_due_at(quiet, NOW + timedelta(days=1))
        assert not waits_at(quiet, NOW)


def test_training_that_makes_steps_or_has_done_all_of_them_survived_what_it_logged() -> None:
    failed = read_incident("requests.exceptions.ConnectionError: Max retries exceeded with url: /api")
    late = NOW + timedelta(hours=1)
    assert (failed.is_alert, is_due_at(failed, NOW), is_due_at(failed, late)) == (False, False, True)
    assert due_at([failed], NOW, has_ended=True) == frozenset()
    caught = read_incident("ValueError: an image cannot be read")
    for one in (failed, caught):
        assert is_due_at(one, late)
        assert not is_due_at(replace(one, resumed_at=late - timedelta(seconds=20)), late)
    finished = read_incident("{'train_runtime': 1.0}", "requests.exceptions.ConnectionError: Max retries exceeded")
    assert not is_due_at(finished, late)


def test_what_follows_from_a_fault_of_the_hardware_can_end_the_training() -> None:
    xid = "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."
    fault, crash = read_incident(xid), read_incident(xid, "RuntimeError: CUDA error: unspecified launch failure")
    kinds = [alert_of_incident(one, SAVED, NOW, lines=5).kind for one in (fault, crash)]
    assert kinds == [AlertKind.FAULT, AlertKind.CRASH]
    assert alert_of_incident(crash, SAVED, NOW, lines=5).message.endswith("198 steps lost")


def test_the_state_of_an_incident_is_said_in_words() -> None:
    states = {
        "lasts": OOM,
        "over at step 1210": replace(OOM, ended_by=IncidentEnd.PROGRESS, ended_step=1210),
        "over at step 1003 after a restart": replace(OOM, ended_by=IncidentEnd.PROGRESS, ended_step=1003),
        "over: the training was restarted": replace(OOM, ended_by=IncidentEnd.RESTARTED),
        "over": replace(OOM, ended_by=IncidentEnd.PROGRESS),
        "dismissed: known": replace(OOM, ended_by=IncidentEnd.DISMISSED, reason="known"),
        "before the first start": replace(OOM, is_history=True),
    }
    assert [state_text(one) for one in states.values()] == list(states)
    assert incident_texts([OOM, read_incident("KeyboardInterrupt")]) == [f"{incident_text(OOM)} (lasts)"]


@pytest.mark.parametrize(("steps", "is_named"), [((1000, 1100), True), ((1100, 1198), False), ((900,), True)])
def test_a_loss_names_the_incidents_between_the_two_checkpoints(steps: tuple[int, ...], is_named: bool) -> None:  # noqa: FBT001
    loss = replace(alerts.alert(), step=1200, evidence=AlertEvidence(baseline_steps=steps))
    (named,) = naming_incidents([loss], [OOM])
    assert ("in the training: GPU memory ran out on rank 7 at step 1198" in named.message) is is_named
    other = replace(loss, kind=AlertKind.LATENCY)
    assert naming_incidents([other], [OOM]) == (other,)
