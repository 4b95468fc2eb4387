"""History, report, ledger, comparison, alerts, tables and MLflow have the same numbers about a loss.

Random runs rise, fall and recover, results arrive late, levels are accepted, and settings change and change back.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings

from dashboards.data.run import Conclusions
from dashboards.views.conclusions import loss_rows
from eval_jobs.types import EvalRecord, Suite
from tests.deep import sized
from tests.unit.tracker.app.courses import FOUND, Course, courses
from tests.unit.tracker.app.fake_world import FakeWorld
from tests.unit.tracker.domain.judging import NOW
from tests.unit.tracker.domain.making import record_of, suite_of
from tracker.api.formats.arrow import batch_of
from tracker.app.commands.accept import accept
from tracker.app.review import recall, review
from tracker.app.steps.best_of_run import newest_scores
from tracker.domain.best.choice import champions_of
from tracker.domain.compare.lost_between import Ends, ends_of
from tracker.domain.compare.view import RunNoise, compare_parts
from tracker.domain.forgetting.ledger import run_ledger
from tracker.domain.records.alerts import Alert
from tracker.domain.records.loss_text import Series, loss_text, open_losses, series_number_of
from tracker.domain.records.losses import Acceptance, Closing, Drop, Incident, Measure
from tracker.domain.records.policy import Policy
from tracker.domain.records.reason_text import reason_text
from tracker.domain.records.reasons import Compared
from tracker.domain.records.types import IS_BACK, WORSE, Report, Verdict
from tracker.domain.scores.run_scores import RunScores
from tracker.domain.scores.series import series_keys
from tracker.domain.scores.series_changes import series_numbers
from tracker.domain.tables.catalog import LOSSES
from tracker.domain.tables.recorded import losses_table
from tracker.domain.tracking.batch import tracking_batch

RUN, SAMPLES = "run", 60
POLICY = Policy(planned_checkpoints=12)


def suite(names: tuple[str, ...], *, longer: bool) -> Suite:
    found = suite_of(names)
    if longer:
        return replace(found, generation=replace(found.generation, max_tokens=2 * found.generation.max_tokens))
    return found


@dataclass
class Told:
    """A run that is reviewed as its results arrive."""

    course: Course
    fakes: FakeWorld = field(default_factory=FakeWorld)

    def arrivals(self) -> Iterator[int]:
        """Yield after each arrival how many there were."""
        world = replace(self.fakes.world(), policy=POLICY)
        rng = np.random.default_rng(self.course.seed)
        length = min(map(len, self.course.levels.values()))
        answers = {name: rng.random(SAMPLES) for name in self.course.levels}
        order = [
            (at, self.course.longer[at]) for at in sorted(range(length), key=lambda at: (at + self.course.late[at], at))
        ]
        order += [(at, not self.course.longer[at]) for at in self.course.again if at < length]
        for arrived, (at, is_longer) in enumerate([*order, *self.course.at_last]):
            scores = {}
            for name, levels in self.course.levels.items():
                flips = rng.random(SAMPLES) < 0.03
                scores[name] = ((answers[name] < levels[at]) ^ flips).astype(float).tolist()
            suited = suite(tuple(scores), longer=is_longer)
            now = NOW + timedelta(minutes=arrived)
            review(world, record_of(100 * (at + 1), scores, suite=suited, finished_after_s=60.0 * arrived), now)
            if arrived in self.course.accepted:
                self.accept(max(report.step for report in self.fakes.history.reports(RUN)), now)
            yield arrived

    def accept(self, step: int, now: object = NOW) -> None:
        """Accept the first open loss at a step."""
        for incident in self.open_losses():
            acceptance = Acceptance(
                run_id=RUN,
                step=step,
                benchmark=incident.benchmark,
                from_step=step,
                reason="meant",
                accepted_at=now,  # type: ignore[arg-type]
            )
            if incident.benchmark:
                accept(replace(self.fakes.world(), policy=POLICY), acceptance)
                return

    def series(self) -> Series:
        return series_numbers(self.fakes.history.series_changes(RUN))

    def open_losses(self) -> list[Incident]:
        return [one for one in self.fakes.history.incidents(RUN) if one.closed_step is None]


def with_found_cases(test: Callable[..., None]) -> Callable[..., None]:
    for course in FOUND:
        test = example(course)(test)
    return test


@pytest.mark.slow
@settings(
    max_examples=sized(25, 1000),
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@with_found_cases
@given(courses())
def test_every_reader_has_the_same_numbers_about_a_loss(course: Course) -> None:
    told = Told(course)
    for _ in told.arrivals():
        check_alerts(told)
        for incident in told.open_losses():
            check_loss(told, incident)
        told.fakes.tracking.flush()
        assert next(reversed(told.fakes.tracking.losses), ()) == open_losses(told.open_losses(), told.series()), (
            "MLflow"
        )
        check_published(told)
        check_accepted(told)
        check_ends(told)
        check_exported(told)


# --- private


def newest_verdict(told: Told, incident: Incident) -> tuple[Report, Verdict] | None:
    """Return the newest verdict on the subject in the series of the incident."""
    history = told.fakes.history
    reports = {report.plan_id: report for report in history.reports(RUN)}
    newest = max(of_its_series(told, incident), key=lambda r: r.plan.checkpoint.step)
    report = reports[newest.plan.id]
    subject = (incident.benchmark, incident.subset, incident.measure)
    for verdict in (*report.verdicts, *report.findings):
        if (verdict.benchmark, verdict.subset, verdict.measure) == subject:
            return report, verdict
    return None


def of_its_series(told: Told, incident: Incident) -> list[EvalRecord]:
    """Return the records with the settings of an incident."""
    found = []
    for record in told.fakes.history.records(RUN):
        settings_of = {key.benchmark: key.settings for key in series_keys(record.plan, record.outcomes)}
        if settings_of[incident.benchmark or incident.benchmarks[0]] == incident.series[0]:
            found.append(record)
    return found


def check_loss(told: Told, incident: Incident) -> None:
    drop, found = incident.drop, newest_verdict(told, incident)
    if drop is None or found is None or incident.measure is not Measure.SCORE:
        assert not incident.benchmark or incident.measure is not Measure.SCORE
        return
    report, verdict = found
    assert verdict.lost_since == incident.onset_step, "history"
    assert verdict.drop == drop, "history"
    if verdict.word in WORSE:
        assert reason_text(verdict).startswith(loss_text(incident)), "words of the history"
    elif isinstance(verdict.reason, Compared):
        assert reason_text(verdict).endswith(f"the loss is open: {loss_text(incident)}"), "words of the history"
    (row,) = [row for row in loss_rows(Conclusions(reports=(), incidents=(incident,))) if row.lasts]
    assert (row.onset, row.took) == (incident.onset_step, loss_text(incident)), "report"
    check_table(told, incident, drop)
    check_ledger(told, incident, drop)
    record = told.fakes.history.record(report.plan_id)
    assert record is not None
    tracked = next(one for one in tracking_batch(record, report).verdicts if one.benchmark == incident.benchmark)
    assert (tracked.word, tracked.change) == (verdict.word, drop.delta), "MLflow"
    assert tracked.baseline.endswith(str(drop.baseline_steps[-1])), "MLflow"
    check_comparison(told, incident, drop)


def check_published(told: Told) -> None:
    """MLflow describes the newest checkpoint with the numbers that its verdicts have now."""
    newest = max(told.fakes.history.reports(RUN), key=lambda report: (report.step, report.created_at))
    record, published = [one for one in told.fakes.tracking.records if one[1].plan_id == newest.plan_id][-1]
    assert tracking_batch(record, published).verdicts == tracking_batch(record, newest).verdicts, "MLflow"


def check_ends(told: Told) -> None:
    """A checkpoint is `recovered` exactly if a loss ended there, and names no loss that is none."""
    history, shown = told.fakes.history, set[tuple[int, str, str]]()
    onsets = {(one.benchmark, one.subset, one.onset_step) for one in history.incidents(RUN)}
    for report in history.reports(RUN):
        for verdict in (*report.verdicts, *report.findings):
            if verdict.benchmark and verdict.lost_since is not None and verdict.measure is Measure.SCORE:
                assert (verdict.benchmark, verdict.subset, verdict.lost_since) in onsets, "lost since"
            if verdict.word in IS_BACK and verdict.measure is Measure.SCORE:
                shown.add((report.step, verdict.benchmark, verdict.subset))
    ended = set[tuple[int, str, str]]()
    for one in history.incidents(RUN):
        if one.closed_by in (Closing.RECOVERED, Closing.TRANSIENT) and one.measure is Measure.SCORE:
            ended.add((one.closed_step or 0, one.benchmark, one.subset))
    # An accepted loss stays accepted, also if a result that comes later shows that it was over before.
    accepted = {(one.benchmark, one.subset) for one in history.incidents(RUN) if one.closed_by is Closing.ACCEPTED}
    assert {one for one in shown - ended if one[1:] not in accepted} == ended - shown == set(), "ends"


def check_exported(told: Told) -> None:
    incidents = told.fakes.history.incidents(RUN)
    rows = losses_table(incidents, (), {RUN: told.series()})
    batch = batch_of(LOSSES, rows)
    is_pooled = [name == "" for name in batch.column("benchmark").to_pylist()]
    assert [number is None for number in batch.column("series").to_pylist()] == is_pooled, "export"


def check_table(told: Told, incident: Incident, drop: Drop) -> None:
    rows = losses_table([incident], (), {RUN: told.series()})
    assert tuple(rows["onset_step"]) == (incident.onset_step,)
    assert tuple(rows["series"]) == (series_number_of(incident, told.series()),)
    for name in ("before", "now", "delta", "n_common", "n_lost", "n_gained"):
        assert tuple(rows[name]) == (getattr(drop, name),), name
    assert (tuple(rows["baseline_first"]), tuple(rows["baseline_last"])) == (
        drop.baseline_steps[:1],
        drop.baseline_steps[-1:],
    )


def check_ledger(told: Told, incident: Incident, drop: Drop) -> None:
    history = told.fakes.history
    scores = newest_scores(RUN, history)
    if not is_of_newest_series(scores, incident):
        return
    ledger = run_ledger(scores, POLICY, history.incidents(RUN), details=0)
    (one,) = [one for one in ledger.benchmarks if one.benchmark == incident.benchmark]
    whole = one.whole.forgetting
    assert whole is not None
    assert (whole.peak.mean, whole.last.mean, -whole.forgetting) == pytest.approx((drop.before, drop.now, drop.delta))
    assert (whole.peak.first_step, whole.peak.last_step) == (drop.baseline_steps[0], drop.baseline_steps[-1])
    assert (whole.ci_low, whole.ci_high, whole.p_value) == (-drop.ci_high, -drop.ci_low, drop.p_worse)
    assert one.whole.flow is not None
    assert (one.whole.flow.lost, one.whole.flow.gained) == (drop.n_lost, drop.n_gained)
    assert len(one.lost) == drop.n_lost


def is_of_newest_series(scores: RunScores, incident: Incident) -> bool:
    return scores.of(incident.benchmark, incident.suite)[-1].key.settings == incident.series[0]


def check_accepted(told: Told) -> None:
    """An acceptance changes none of the numbers of the ledger, which names it."""
    history = told.fakes.history
    incidents = history.incidents(RUN)
    scores = newest_scores(RUN, history)
    before = [replace(one, closed_step=None, closed_by=None) for one in incidents if one.closed_by is Closing.ACCEPTED]
    for incident in before:
        if incident.drop is None or incident.drop.newest_steps[-1] < max(max(s.steps) for s in scores.series.values()):
            continue
        others = [one for one in incidents if one.key != incident.key]
        ledgers = [run_ledger(scores, POLICY, found, details=0) for found in (incidents, [*others, incident])]
        after, earlier = (
            next(one for one in ledger.benchmarks if one.benchmark == incident.benchmark) for ledger in ledgers
        )
        assert after.whole == earlier.whole
        assert (after.accepted_step is not None) == is_of_newest_series(scores, incident)


def check_comparison(told: Told, incident: Incident, drop: Drop) -> None:
    """The pair that the report recommends to compare, if both sides are single checkpoints."""
    if (len(drop.baseline_steps), len(drop.newest_steps)) != (1, 1):
        return
    sides = []
    for step in (*drop.baseline_steps, *drop.newest_steps):
        plan = next(r.plan for r in of_its_series(told, incident) if r.plan.checkpoint.step == step)
        record = told.fakes.history.record(plan.id)
        assert record is not None
        sides.append(record)
    view = compare_parts([(sides[0], sides[1])], POLICY, RunNoise())
    (one,) = [one for one in view.benchmarks if one.benchmark == incident.benchmark]
    numbers = one.comparison
    assert numbers.delta == pytest.approx(drop.delta)
    assert (numbers.n_lost, numbers.n_gained) == (drop.n_lost, drop.n_gained)


def check_alerts(told: Told) -> None:
    """Alerts are open exactly while their losses are.

    Those of one checkpoint, or covered by the suite's, have none, nor those that other settings show before the newest
    checkpoint has them.
    """
    newest = max(record.plan.checkpoint.step for record in told.fakes.history.records(RUN))
    firing = told.fakes.history.open_alerts(RUN)
    left = [one for one in firing if one.evidence is not None]
    lost, together = told.open_losses(), set[str]()
    for incident in lost:
        if not incident.benchmark:
            together |= set(incident.benchmarks)
    for incident in lost:
        alert = next((one for one in left if is_about(one, incident)), None)
        if alert is not None:
            left.remove(alert)
        elif incident.measure is Measure.SCORE and not incident.provisional and incident.benchmark not in together:
            shown = incident.opened_step if incident.drop is None else incident.drop.newest_steps[-1]
            assert shown < newest, f"no alert with the numbers of {incident}"
    assert not left, "alerts without a loss"
    queued = {a.fingerprint: a.state for a in told.fakes.alerting.alerts}
    assert {a.fingerprint for a in firing} == {key for key, state in queued.items() if state == "firing"}
    check_champion(told)


def is_about(alert: Alert, incident: Incident) -> bool:
    """Return whether an alert has the numbers of a loss; with changed settings there may be two of one onset."""
    evidence = alert.evidence
    if evidence is None or (alert.subject.name, evidence.onset_step) != (incident.benchmark, incident.onset_step):
        return False
    drop = incident.drop
    return drop is None or (evidence.baseline_steps, evidence.before) == (drop.baseline_steps, drop.before)


def check_champion(told: Told) -> None:
    history = told.fakes.history
    if not recall(history, RUN, POLICY).records:
        return
    onsets = [one.onset_step for one in told.open_losses() if one.measure is Measure.SCORE]
    for champion in champions_of(newest_scores(RUN, history), history.incidents(RUN))[:1]:
        assert all(champion.checkpoint.step < onset for onset in onsets) or champion.alias != "champion"
        assert f"step {champion.checkpoint.step} scores higher" not in champion.reason


def test_a_loss_that_later_results_explain_ends_as_corrected_and_its_alert_with_it() -> None:
    """The newest checkpoint came second and looked like a loss; those before it show that the first one was the odd."""
    levels = {"b0": (0.9, 0.35, 0.4, 0.35, 0.38, 0.36)}
    told = Told(Course(levels=levels, late=(0, 5, 5, 0, 5, 5), longer=(False,) * 12, accepted=(), seed=0))
    for _ in told.arrivals():
        check_alerts(told)
    (incident,) = told.fakes.history.incidents(RUN)
    assert (incident.opened_step, incident.closed_by) == (400, Closing.CORRECTED)
    alert, correction, end = told.fakes.alerting.alerts
    assert [one.is_correction for one in (alert, correction, end)] == [False, True, False]
    assert "0.867 at step 100 -> 0.367 since step 400;" in alert.message
    assert "0.867 at step 100 -> 0.367 since step 200;" in correction.message
    assert end.message == "b0: no loss with the checkpoints evaluated since: suspect at step 400"


def test_a_search_for_the_newest_loss_begins_at_its_baseline() -> None:
    levels = {"b0": (*(0.95,) * 3, *(0.0,) * 2, *(0.9,) * 3, *(0.0,) * 2)}
    told = Told(Course(levels=levels, late=(0,) * 10, longer=(False,) * 10, seed=0))
    assert len([*told.arrivals()]) == 10
    *_, newest = told.fakes.history.incidents(RUN)
    assert (newest.onset_step, newest.drop is not None and newest.drop.baseline_steps[-1]) == (900, 800)
    series = told.fakes.history.scores(RUN).of("b0", newest.suite)[-1]
    rows, known = series.whole_rows(POLICY.min_coverage), told.fakes.history.incidents(RUN)
    assert ends_of(series, rows, known, Ends()) == (800, newest.opened_step)
    assert ends_of(series, rows, known, Ends(good=300)) == (300, newest.opened_step)
    assert ends_of(series, rows, known, Ends(bad=500)) == (300, 500)


def test_an_accepted_level_corrects_no_loss_that_was_found_with_other_settings() -> None:
    levels = {"b0": (0.0,) * 4, "b1": (0.0,) * 4, "b2": (0.35, 0.35, 0.0, 0.0)}
    course = Course(levels=levels, late=(0,) * 4, longer=(False,) * 4, again=(0, 2), at_last=((2, False),), seed=0)
    told = Told(course)
    assert len([*told.arrivals()]) == 7
    told.accept(300)
    losses = told.fakes.history.incidents(RUN)
    assert [(one.opened_step, one.closed_by) for one in losses] == [(300, Closing.ACCEPTED), (300, Closing.REMEASURED)]
