"""The rules of `ports.History`, over the fake, SQLite and PostgreSQL."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from eval_jobs.identity import content_hash
from eval_jobs.types import BenchmarkFailure, EvalRecord, EvalResult
from tests import alerts
from tests.contract.conftest import ReopenHistory
from tests.records import RUN, forgetting_run, outlined, without_samples
from tests.score_tables import table_of, table_of_records
from tests.verdicts import outline_of
from tracker.domain.records.alerts import Alert, AlertState
from tracker.domain.records.losses import Acceptance, Closing, Incident, Measure
from tracker.domain.records.reasons import Difference
from tracker.domain.scores.series_changes import SeriesChange, change_lines
from tracker.ports import History

NOW = datetime(2026, 3, 14, 12, 0, tzinfo=UTC)
RECORDED = forgetting_run(checkpoints=4, samples=6)
RECORDS = RECORDED.records


@pytest.fixture
def reopen(reopen_history: ReopenHistory) -> ReopenHistory:
    return reopen_history


@pytest.fixture
def history(reopen: ReopenHistory) -> History:
    return reopen()


def steps(records: tuple[EvalRecord, ...]) -> list[int]:
    return [r.plan.checkpoint.step for r in records]


def with_run(record: EvalRecord, run_id: str) -> EvalRecord:
    checkpoint = replace(record.plan.checkpoint, run_id=run_id)
    return replace(record, plan=replace(record.plan, id=content_hash([run_id, record.plan.id]), checkpoint=checkpoint))


def written_again(record: EvalRecord, plan_id: str = "again", later_s: float = 60.0) -> EvalRecord:
    """The same step with other weights."""
    checkpoint = replace(record.plan.checkpoint, digest="other")
    plan = replace(record.plan, id=plan_id, checkpoint=checkpoint)
    return replace(record, plan=plan, finished_at=record.finished_at + timedelta(seconds=later_s))


def alert(fingerprint: str, state: AlertState = AlertState.FIRING, step: int = 100, run_id: str = RUN) -> Alert:
    return replace(
        alerts.alert(step=step, state=state, run_id=run_id), fingerprint=fingerprint, message="sums: 0.93 \u2192 0.02"
    )


INCIDENT = Incident(
    run_id=RUN, suite="skills", benchmark="sums", opened_step=200, opened_digest="of it", onset_step=100
)
ACCEPTANCE = Acceptance(
    run_id=RUN, step=200, benchmark="sums", from_step=100, reason="new data \u2192 new level", accepted_at=NOW
)


def without_result(record: EvalRecord, benchmark: str, later_s: float = 9.0) -> EvalRecord:
    """The same plan again, finished later, and one benchmark gave no result."""
    outcomes = tuple(
        BenchmarkFailure(
            benchmark=benchmark, fingerprint=o.fingerprint, code="E", message="gone", hint="again", retryable=True
        )
        if o.benchmark == benchmark
        else o
        for o in record.outcomes
    )
    return replace(record, outcomes=outcomes, finished_at=record.finished_at + timedelta(seconds=later_s))


def test_a_new_history_is_empty(history: History) -> None:
    assert history.runs() == ()
    assert history.records(RUN) == ()
    assert history.scores(RUN).series == {}
    assert history.incidents(RUN) == ()
    assert history.acceptances(RUN) == ()
    assert history.reports(RUN) == ()
    assert history.gaps(RUN) == ()
    assert history.open_alerts(RUN) == ()
    assert history.record("nothing") is None


def test_a_record_comes_back_whole_with_its_texts(reopen: ReopenHistory) -> None:
    for record in RECORDS:
        reopen().append(record)
    for record in RECORDS:
        assert reopen().record(record.plan.id) == record


def test_a_record_comes_back_with_the_samples_of_some_benchmarks(reopen: ReopenHistory) -> None:
    reopen().append(RECORDS[0])
    whole, bare = RECORDS[0].outcomes, without_samples(RECORDS[0]).outcomes
    assert len(whole) == 3
    some = reopen().record(RECORDS[0].plan.id, {whole[1].benchmark, "no such benchmark"})
    assert some == replace(RECORDS[0], outcomes=(bare[0], whole[1], bare[2]))
    assert reopen().record(RECORDS[0].plan.id, ()) == without_samples(RECORDS[0])


def test_appending_twice_changes_nothing(history: History) -> None:
    for _ in range(2):
        history.append(RECORDS[0])
        history.append_reports(RECORDED.reports[0])
    assert history.records(RUN) == (without_samples(RECORDS[0]),)
    assert table_of(history.scores(RUN)) == table_of_records(RECORDS[:1])
    assert history.reports(RUN) == RECORDED.reports[:1]


def test_the_same_plan_again_replaces_its_record_for_every_reader(reopen: ReopenHistory) -> None:
    writer, reader = reopen(), reopen()
    writer.append(RECORDS[0])
    assert reader.records(RUN) == (without_samples(RECORDS[0]),)
    facts, *others = RECORDS[0].outcomes
    assert isinstance(facts, EvalResult)
    shorter = replace(facts, samples=facts.samples[:2])
    newer = replace(RECORDS[0], outcomes=(shorter, *others), finished_at=RECORDS[0].finished_at + timedelta(seconds=9))
    writer.append(newer)
    for history in (writer, reader):
        assert history.records(RUN) == (without_samples(newer),)
        assert history.record(newer.plan.id) == newer


def test_a_step_that_was_written_again_is_kept_twice_the_newest_last(history: History) -> None:
    again = written_again(RECORDS[0])
    history.append(again)
    history.append(RECORDS[0])
    assert [r.plan.id for r in history.records(RUN)] == [RECORDS[0].plan.id, "again"]


def test_times_of_any_zone_are_ordered_as_times(history: History) -> None:
    tokyo = written_again(RECORDS[0], "tokyo", 60)
    tokyo = replace(tokyo, finished_at=tokyo.finished_at.astimezone(ZoneInfo("Asia/Tokyo")))
    history.append(tokyo)
    history.append(written_again(RECORDS[0], "later", 120))
    assert [r.plan.id for r in history.records(RUN)] == ["tokyo", "later"]


def test_a_record_without_any_result_is_kept(history: History) -> None:
    failed = replace(RECORDS[2], outcomes=RECORDS[2].outcomes[1:2], engine=None, probes=())
    history.append(failed)
    assert history.record(failed.plan.id) == failed
    assert history.records(RUN) == (failed,)


def test_runs_are_told_apart(history: History) -> None:
    history.append(with_run(RECORDS[0], "b"))
    history.append(with_run(RECORDS[1], "a"))
    history.append_gap(replace(RECORDED.gaps[0], run_id="only gaps"))
    assert history.runs() == ("a", "b", "only gaps")
    assert steps(history.records("a")) == [200]
    assert history.records("c") == ()


def test_records_are_ordered_by_step_and_have_no_samples(reopen: ReopenHistory) -> None:
    history = reopen()
    for record in reversed(RECORDS):
        history.append(record)
    bare = tuple(without_samples(record) for record in RECORDS)
    assert history.records(RUN) == reopen().records(RUN) == bare
    assert history.records("other") == ()


def test_records_of_one_step_are_ordered_by_when_they_finished_and_then_by_plan(history: History) -> None:
    for plan_id, later_s in (("b", 60.0), ("c", 30.0), ("a", 60.0)):
        history.append(written_again(RECORDS[0], plan_id, later_s))
    assert [r.plan.id for r in history.records(RUN)] == ["c", "a", "b"]


def test_scores_grow_with_every_record_in_whatever_order(history: History) -> None:
    for count, index in enumerate((2, 0, 3, 1), start=1):
        history.append(RECORDS[index])
        known = [RECORDS[i] for i in (2, 0, 3, 1)[:count]]
        assert table_of(history.scores(RUN)) == table_of_records(known)
    assert history.scores(RUN).run_id == RUN
    assert history.scores(RUN).benchmarks() == ("facts", "sums", "reversal")
    assert history.scores("other").series == {}


def test_scores_read_at_once_are_those_that_grew(reopen: ReopenHistory) -> None:
    writer = reopen()
    for record in RECORDS:
        writer.append(record)
        writer.scores(RUN)
    late = reopen().scores(RUN)
    assert table_of(late) == table_of(writer.scores(RUN)) == table_of_records(RECORDS)


def test_scores_of_one_measure_are_those_of_all_measures(reopen: ReopenHistory) -> None:
    writer, reader = reopen(), reopen()
    for count, record in enumerate(RECORDS, start=1):
        writer.append(record)
        whole = {place: value for place, value in table_of_records(RECORDS[:count]).items() if place[-1] == "score"}
        for history in (reader, reopen()):  # one more record, and all at once
            scores = history.scores(RUN, (Measure.SCORE,))
            assert table_of(scores) == whole
            assert {tuple(series.matrices) for series in scores.series.values()} == {(Measure.SCORE,)}
    assert table_of(reader.scores(RUN)) == table_of_records(RECORDS)


def test_scores_of_some_steps_are_those_of_their_records_and_hide_no_others_later(reopen: ReopenHistory) -> None:
    history = reopen()
    for record in RECORDS:
        history.append(record)
    some = RECORDS[1:3]
    steps = {record.plan.checkpoint.step for record in some}
    for _ in range(2):
        assert table_of(history.scores(RUN, steps={*steps, 77})) == table_of_records(some)
        assert table_of(history.scores(RUN)) == table_of_records(RECORDS)


def test_scores_count_what_another_process_wrote(reopen: ReopenHistory) -> None:
    writer, reader = reopen(), reopen()
    for count, record in enumerate(RECORDS, start=1):
        writer.append(record)
        assert table_of(reader.scores(RUN)) == table_of_records(RECORDS[:count])


def test_a_replaced_record_leaves_nothing_of_itself_in_the_scores(reopen: ReopenHistory) -> None:
    writer, reader = reopen(), reopen()
    for record in RECORDS:
        writer.append(record)
    assert table_of(writer.scores(RUN)) == table_of(reader.scores(RUN))
    facts, *others = RECORDS[1].outcomes
    assert isinstance(facts, EvalResult)
    asked_otherwise = replace(facts, samples=(*facts.samples[:2], replace(facts.samples[2], sample_id="new")))
    newer = without_result(replace(RECORDS[1], outcomes=(asked_otherwise, *others)), "sums")
    writer.append(newer)
    for history in (writer, reader):
        assert table_of(history.scores(RUN)) == table_of_records([RECORDS[0], newer, *RECORDS[2:]])


def test_the_older_record_of_a_step_counts_again_where_the_newer_one_lost_its_result(reopen: ReopenHistory) -> None:
    writer, reader = reopen(), reopen()
    again = written_again(RECORDS[0])
    for record in (RECORDS[0], again, *RECORDS[1:]):
        writer.append(record)
    for history in (writer, reader):
        assert table_of(history.scores(RUN)) == table_of_records([RECORDS[0], again, *RECORDS[1:]])
    repaired = without_result(again, "reversal")
    writer.append(repaired)
    for history in (writer, reader):
        assert table_of(history.scores(RUN)) == table_of_records([RECORDS[0], repaired, *RECORDS[1:]])
        (series,) = history.scores(RUN).of("reversal")
        assert series.plans[0].id == RECORDS[0].plan.id


def test_a_record_without_any_result_adds_no_score(history: History) -> None:
    history.append(replace(RECORDS[2], outcomes=RECORDS[2].outcomes[1:2]))
    assert history.scores(RUN).series == {}
    history.append(RECORDS[0])
    assert table_of(history.scores(RUN)) == table_of_records(RECORDS[:1])


def test_reports_come_back_whole_and_ordered_by_step(reopen: ReopenHistory) -> None:
    for report in reversed(RECORDED.reports):
        reopen().append_reports(report)
    assert reopen().reports(RUN) == RECORDED.reports
    assert reopen().reports("other") == ()


def test_outlines_are_the_reports_without_what_newer_ones_overtook(reopen: ReopenHistory) -> None:
    failed, *_ = RECORDED.reports
    for report in RECORDED.reports:
        reopen().append_reports(report)
        reopen().append_reports(replace(report, run_id="other", plan_id=f"other {report.step}"))
    found = reopen().outlines(RUN)
    assert found == outlined(RECORDED.reports)
    assert found[-1] == RECORDED.reports[-1]
    assert found[0] == outline_of(failed) != failed
    assert reopen().outlines("nothing") == ()


def test_the_same_plan_again_replaces_its_outline(history: History) -> None:
    for report in RECORDED.reports:
        history.append_reports(report)
    assert history.outlines(RUN) == outlined(RECORDED.reports)
    newer = replace(RECORDED.reports[0], verdicts=RECORDED.reports[0].verdicts[1:])
    history.append_reports(newer)
    assert history.outlines(RUN) == outlined((newer, *RECORDED.reports[1:]))


def test_the_same_plan_again_replaces_its_report(history: History) -> None:
    history.append_reports(RECORDED.reports[0])
    newer = replace(RECORDED.reports[0], verdicts=(), created_at=NOW)
    history.append_reports(newer)
    assert history.reports(RUN) == (newer,)
    assert history.report(newer.plan_id) == newer
    assert history.report("nothing") is None


def test_an_accepted_incident_stays_accepted(reopen: ReopenHistory) -> None:
    accepted = replace(INCIDENT, closed_step=INCIDENT.opened_step, closed_by=Closing.ACCEPTED)
    for incident in (INCIDENT, accepted, replace(INCIDENT, forgotten=True)):
        reopen().append_incident(incident)
    assert reopen().incidents(RUN) == (accepted,)


def test_incidents_are_ordered_by_their_opening_and_their_names(reopen: ReopenHistory) -> None:
    later = replace(INCIDENT, opened_step=1000, measure=Measure.OUTPUT_LENGTH, forgotten=True)
    facts = replace(INCIDENT, benchmark="facts", subset="\u5386\u53f2" * 2000)
    part = replace(INCIDENT, subset="a", closed_step=300, closed_by=Closing.RECOVERED)
    for incident in (later, part, INCIDENT, facts, replace(INCIDENT, run_id="other")):
        reopen().append_incident(incident)
    assert reopen().incidents(RUN) == (facts, INCIDENT, part, later)


def test_an_incident_is_replaced_under_everything_that_it_is_known_by(reopen: ReopenHistory) -> None:
    others = (
        replace(INCIDENT, suite="full"),
        replace(INCIDENT, measure=Measure.COMPLETENESS),
        replace(INCIDENT, opened_step=201),
        replace(INCIDENT, series=("other settings",)),
    )
    for incident in (INCIDENT, *others):
        reopen().append_incident(incident)
    assert set(reopen().incidents(RUN)) == {INCIDENT, *others}
    closed = replace(INCIDENT, onset_step=150, forgotten=True, closed_step=400, closed_by=Closing.ACCEPTED)
    reopen().append_incident(closed)
    assert set(reopen().incidents(RUN)) == {closed, *others}


def test_an_acceptance_is_replaced_by_the_same_again(reopen: ReopenHistory) -> None:
    earlier = replace(ACCEPTANCE, step=90)
    facts = replace(ACCEPTANCE, benchmark="facts")
    otherwise = replace(ACCEPTANCE, step=300, series="other settings")
    for acceptance in (ACCEPTANCE, earlier, facts, otherwise, replace(ACCEPTANCE, run_id="other")):
        reopen().append_acceptance(acceptance)
    assert reopen().acceptances(RUN) == (earlier, facts, ACCEPTANCE, otherwise)
    again = replace(ACCEPTANCE, reason="", from_step=150)
    reopen().append_acceptance(again)
    assert reopen().acceptances(RUN) == (earlier, facts, again, otherwise)


def test_changes_of_settings_are_ordered_by_time_and_kept_once(reopen: ReopenHistory) -> None:
    first = SeriesChange(run_id=RUN, suite="default", benchmark="sums", at=NOW, step=100, number=1, settings="a")
    second = replace(
        first,
        at=NOW + timedelta(seconds=9),
        settings="b",
        number=2,
        differences=(Difference(setting="max_tokens", now="16", before="8"),),
    )
    facts = replace(first, benchmark="facts")
    for change in (second, first, facts, second, replace(first, run_id="other")):
        reopen().append_series_change(change)
    assert reopen().series_changes(RUN) == (facts, first, second)
    assert list(change_lines(reopen().series_changes(RUN))) == [
        "settings changed: sums max_tokens 8 -> 16, series 2 begins"
    ]


def test_a_gap_is_new_once(reopen: ReopenHistory) -> None:
    (gap,) = RECORDED.gaps
    assert reopen().append_gap(gap) is True
    assert reopen().append_gap(replace(gap, message="seen again", seen_at=NOW)) is False
    assert reopen().append_gap(replace(gap, code="E-CKPT-INCOMPLETE", step=50)) is True
    assert [(g.step, g.message) for g in reopen().gaps(RUN)] == [(50, gap.message), (550, gap.message)]


def test_an_alert_is_open_until_it_is_resolved(reopen: ReopenHistory) -> None:
    reopen().append_alert(alert("a", step=200))
    reopen().append_alert(alert("b", step=100))
    reopen().append_alert(alert("c", run_id="other"))
    assert reopen().open_alerts(RUN) == (alert("b"), alert("a", step=200))
    reopen().append_alert(alert("a", AlertState.RESOLVED, step=300))
    assert reopen().open_alerts(RUN) == (alert("b"),)
    reopen().append_alert(alert("a", step=400))
    assert reopen().open_alerts(RUN) == (alert("b"), alert("a", step=400))


def test_names_and_texts_of_any_script_survive(history: History) -> None:
    facts = RECORDS[0].outcomes[0]
    assert isinstance(facts, EvalResult)
    sample = replace(facts.samples[0], prompt="\u4f60\u597d \U0001f600 \x00\n", answer="", detail="caf\u00e9")
    odd = replace(facts, benchmark="../mmlu/\u5386\u53f2 50%", samples=(sample,))
    record = replace(with_run(RECORDS[0], "r\u00fcn"), outcomes=(odd,))
    history.append(record)
    assert history.record(record.plan.id) == record
    assert history.runs() == ("r\u00fcn",)


def test_a_benchmark_without_samples_comes_back_without_samples(history: History) -> None:
    facts = RECORDS[0].outcomes[0]
    assert isinstance(facts, EvalResult)
    record = replace(RECORDS[0], outcomes=(replace(facts, samples=()),))
    history.append(record)
    assert history.record(record.plan.id) == record
