"""All benchmarks of a suite together: broken checkpoints, small losses everywhere, dips after a restart."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from eval_jobs.types import EvalRecord
from tests.unit.tracker.domain.judging import changes_of, followed
from tests.unit.tracker.domain.making import record_of
from tracker.domain.alerts.rules import alerts_for
from tracker.domain.records.alerts import Alert, AlertState
from tracker.domain.records.losses import Closing
from tracker.domain.records.policy import Policy
from tracker.domain.records.reason_text import reason_text
from tracker.domain.records.reasons import Disruption
from tracker.domain.records.types import Report, Verdict, VerdictWord
from tracker.domain.verdicts.context import RunContext

POLICY = Policy(planned_checkpoints=40)
NAMES = ("sums", "words", "colors", "facts", "rhymes", "dates")
N = 400
W = VerdictWord

Falls = Callable[[int, int], float]
"""What benchmark k has lost at checkpoint t."""


def run_of(falls: Falls, *, checkpoints: int = 16) -> list[EvalRecord]:
    """Six benchmarks at a level of .7: samples keep their rank, and a few flip by chance."""
    rng = np.random.default_rng(5)
    ranks = [rng.permutation(N) for _ in NAMES]
    records = []
    for t in range(checkpoints):
        answers = {}
        for k, name in enumerate(NAMES):
            right = (ranks[k] < (0.7 - falls(k, t)) * N) ^ (rng.random(N) < 0.02)
            answers[name] = right.astype(float).tolist()
        records.append(record_of(100 * (t + 1), answers))
    return records


def of_checkpoint(reports: Sequence[Report]) -> dict[int, Verdict]:
    return {r.step: v for r in reports for v in r.findings if not v.benchmark}


def heard(reports: Sequence[Report]) -> list[tuple[int, str, str]]:
    """The notifications, as a watcher stores and sends them."""
    stored: dict[str, Alert] = {}
    said = []
    for report in reports:
        alerts = alerts_for(report, [a for a in stored.values() if a.state is AlertState.FIRING])
        stored |= {a.fingerprint: a for a in alerts}
        said += [(a.step or 0, a.state.value, a.message) for a in alerts]
    return said


def test_a_broken_checkpoint_is_shown_at_once_and_ends_as_transient_without_a_notification() -> None:
    reports = followed(run_of(lambda k, t: 0.06 if t == 9 and k < 4 else 0.0), POLICY)
    found = of_checkpoint(reports)
    assert {step: v.word for step, v in found.items()} == {1000: W.SUSPECT, 1100: W.TRANSIENT}
    text = reason_text(found[1000])
    assert text.startswith("4 of 6 benchmarks are lower by ")
    assert text.endswith("shows whether that lasts")
    text = reason_text(found[1100])
    assert text.startswith("broken: step 1000; 4 of 6 benchmarks fell by ")
    assert "and are back (" in text
    (incident,) = reports[10].incidents
    assert (incident.closed_by, incident.onset_step, incident.last_step) == (Closing.TRANSIENT, 1000, 1000)
    assert heard(reports) == []
    compared = [c for r in reports[10:] for v in r.verdicts for c in v.comparisons]
    assert compared
    assert not any(1000 in (*c.baseline_steps, *c.pooled_steps) for c in compared)


def test_a_collapse_of_one_checkpoint_is_one_notification_and_over_at_the_next() -> None:
    reports = followed(run_of(lambda k, t: 0.6 if t == 9 and k < 4 else 0.0), POLICY)
    assert {step: v.word for step, v in of_checkpoint(reports).items()} == {1000: W.REGRESSED, 1100: W.TRANSIENT}
    (begun, ended) = heard(reports)
    assert (begun[:2], ended[:2]) == ((1000, "firing"), (1100, "resolved"))
    assert ended[2].startswith("checkpoint transient at step 1100: broken: step 1000; 4 of 6 benchmarks fell by ")
    assert {e.closed_by for e in reports[10].incidents} == {Closing.TRANSIENT}
    back = {v.benchmark: reason_text(v) for v in reports[10].verdicts if v.word is W.TRANSIENT}
    assert set(back) == set(NAMES[:4])
    assert all(" again: only step 1000 was worse (" in text for text in back.values())
    assert len(reports[10].incidents) == 1 + 4


def test_a_small_loss_of_all_is_one_notification_and_recovers_once() -> None:
    reports = followed(run_of(lambda k, t: 0.03 if 8 <= t < 13 and k < 5 else 0.0, checkpoints=18), POLICY)
    words = {step: v.word for step, v in of_checkpoint(reports).items()}
    assert W.REGRESSED in words.values()
    assert list(words.values())[-1] is W.RECOVERED
    (begun, *_, ended) = said = heard(reports)
    assert begun[1:2] == ("firing",)
    assert begun[2].startswith(f"checkpoint regressed at step {begun[0]}: 5 of 6 ")
    assert ended[1] == "resolved"
    assert len(said) == 2


def test_what_stays_lost_after_the_others_recovered_gets_its_own_notification() -> None:
    def falls(k: int, t: int) -> float:
        return 0.2 if t >= 8 and (k == 0 or (t < 12 and k < 5)) else 0.0

    said = heard(followed(run_of(falls, checkpoints=18), POLICY))
    assert [text.split(" at step")[0] for _, state, text in said if state == "firing"] == [
        "checkpoint regressed",
        "sums regressed",
    ]


def test_a_benchmark_that_is_better_by_its_own_test_is_not_called_lower_while_the_loss_of_all_is_open() -> None:
    def falls(k: int, t: int) -> float:
        if k == 4 and t >= 12:
            return -0.15
        return 0.03 if t >= 8 and k < 5 else 0.0

    reports = followed(run_of(falls, checkpoints=15), POLICY)
    alone = {v.benchmark: v.word for v in reports[-1].verdicts}
    assert alone["rhymes"] is W.IMPROVED
    text = reason_text(of_checkpoint(reports)[1500])
    assert text.startswith("3 of 6 benchmarks are lower by ")
    assert text.endswith("(facts, sums and words); better again: rhymes")


@pytest.mark.parametrize("lost", [1, 2])
def test_losses_of_few_benchmarks_are_their_own(lost: int) -> None:
    reports = followed(run_of(lambda k, t: 0.3 if t >= 9 and k < lost else 0.0), POLICY)
    assert of_checkpoint(reports) == {}
    assert {v.benchmark for v in reports[-1].verdicts if v.word in {W.REGRESSED, W.FORGOTTEN}} == set(NAMES[:lost])


RESTART = Disruption(step=800, what="restart of the learning rate")


def test_a_dip_after_a_restart_is_marked_and_raises_an_alarm_only_if_it_lasts() -> None:
    context = RunContext(disruptions=(RESTART,))

    def dip(_: int, t: int) -> float:
        return 0.05 * 0.6 ** (t - 8) if t >= 8 else 0.0

    reports = followed(run_of(dip, checkpoints=20), POLICY, context)
    shown = of_checkpoint(reports)
    assert shown[900].word is W.SUSPECT
    assert reason_text(shown[900]).endswith(
        ": expected after the restart of the learning rate at step 800, an alert follows if it lasts"
    )
    assert heard(reports) == []
    lasting = heard(followed(run_of(lambda _, t: 0.05 if t >= 8 else 0.0, checkpoints=20), POLICY, context))
    assert [(state, text.split(" at step")[0]) for _, state, text in lasting] == [("firing", "checkpoint regressed")]
    assert lasting[0][0] > 1400  # the first dip of a run may last six checkpoints
    collapsed = heard(followed(run_of(lambda _, t: 0.4 if t >= 8 else 0.0), POLICY, context))
    assert collapsed[0][0] <= 1000  # no restart explains 40 points


@pytest.mark.parametrize("began", [8, 15])
def test_a_loss_that_outlasts_what_a_restart_explains_begins_where_it_began(began: int) -> None:
    context = RunContext(disruptions=(RESTART,))
    reports = followed(run_of(lambda k, t: 0.4 if t >= began and k == 0 else 0.0, checkpoints=20), POLICY, context)
    (incident,) = changes_of(reports)
    assert incident.opened_step == 100 * (began + 1)
    assert [v.word for r in reports[began:] for v in r.verdicts if v.benchmark == NAMES[0]] == [W.REGRESSED] * (
        20 - began
    )


def test_the_tail_of_a_dip_raises_no_alarm_after_the_expected_time() -> None:
    context = RunContext(disruptions=(RESTART,))
    slow = run_of(lambda _, t: 0.05 * 0.8 ** (t - 8) if t >= 8 else 0.0, checkpoints=22)
    assert heard(followed(slow, POLICY, context)) == []
