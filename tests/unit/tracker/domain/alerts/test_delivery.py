"""What a channel is told next, what waits and until when, and when a channel is asked again. No database, no clock."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from eval_jobs.errors import ChannelRefused, ChannelUnreachable
from tests.alerts import NOW, RUN, alert, end_of
from tracker.domain.alerts.delivery import (
    DeliveryStatus,
    DeliveryTurn,
    QueuedAlert,
    is_news,
    message_of,
    next_turn,
    without_causes,
)
from tracker.domain.alerts.pace import Pace
from tracker.domain.alerts.text import message_text
from tracker.domain.records.alerts import Alert, AlertState, AlertSubject, Silence, SubjectKind
from tracker.domain.records.losses import Measure

NOW_S = NOW.timestamp()
LATER_S = NOW_S + 60
HOUR = timedelta(hours=1)
AWAY = ChannelUnreachable("nobody answers", hint="start it")
REFUSED = ChannelRefused("the signature is wrong", hint="look at the key")
WAITING, SILENCED, BEHIND = DeliveryStatus.WAITING, DeliveryStatus.SILENCED, DeliveryStatus.BEHIND


def queued(*alerts: Alert, retry_at_s: float = 0.0, status: DeliveryStatus = WAITING) -> list[QueuedAlert]:
    return [QueuedAlert(id=n, alert=a, attempts=0, retry_at_s=retry_at_s, status=status) for n, a in enumerate(alerts)]


def about(kind: SubjectKind, name: str = "", *, subset: str = "", measure: Measure = Measure.SCORE) -> Alert:
    """Return an alert about what is no whole benchmark."""
    subject = AlertSubject(kind=kind, name=name, subset=subset, measure=measure)
    return replace(alert(f"{kind} {name} {subset} {measure}"), subject=subject)


def silence(name: str, ends_in: timedelta = HOUR, *, begins_in: timedelta = timedelta()) -> Silence:
    return Silence(
        id=f"{name} {ends_in}", run_id=RUN, kind=SubjectKind.BENCHMARK, name=name, reason="known",
        begins_at=NOW + begins_in, ends_at=NOW + ends_in,
    )  # fmt: skip


def told(turn: DeliveryTurn) -> list[list[int]]:
    return [[one.id for one in group] for group in turn.groups]


def turn_of(waiting: Sequence[QueuedAlert], *silences: Silence) -> DeliveryTurn:
    return next_turn(waiting, silences, NOW)


def test_a_message_is_all_of_one_checkpoint_and_no_end_goes_before_its_beginning() -> None:
    waiting = queued(alert("facts", 200), alert("sums", 100), end_of("sums", 200), alert("words", 100))
    assert told(turn_of(waiting)) == [[0], [1, 3], [2]]


def test_each_cause_at_an_unknown_step_has_its_own_message_without_a_step() -> None:
    causes = [replace(alert(name), step=None) for name in ("oom", "hang")]
    turn = turn_of(queued(*causes, alert("sums", step=0)))
    assert [len(group) for group in turn.groups] == [1, 1, 1]
    titles = [message_text(message_of(group, "")).title for group in turn.groups]
    assert [title.partition(":")[0] for title in titles] == [RUN, RUN, f"{RUN} step 0"]


def test_what_has_older_news_of_its_cause_before_it_waits_as_long() -> None:
    waiting = queued(alert("sums", 100), end_of("sums", 200), alert("facts", 200))
    waiting[0] = replace(waiting[0], retry_at_s=LATER_S)
    turn = turn_of(waiting)
    assert told(turn) == [[2]]
    assert turn.put_off == {1: (LATER_S, BEHIND)}


def test_what_is_silenced_waits_for_the_end_of_the_last_silence_that_means_it() -> None:
    waiting = queued(alert("sums"), alert("facts"), alert("math-hard"))
    turn = turn_of(
        waiting, silence("sums"), silence("s*", 2 * HOUR), silence("facts", begins_in=HOUR), silence("math-*")
    )
    assert told(turn) == [[1]]
    ends = {0: NOW + 2 * HOUR, 2: NOW + HOUR}
    assert turn.put_off == {id_: (at.timestamp(), SILENCED) for id_, at in ends.items()}


def test_the_end_of_what_was_sent_before_a_silence_is_sent_during_it() -> None:
    turn = turn_of(queued(end_of("sums", 200), alert("facts", 200), end_of("facts", 300)), silence("*"))
    assert told(turn) == [[0]]
    assert sorted(turn.put_off) == [1, 2]
    correction = replace(alert("sums", 100), is_correction=True)
    waiting = [replace(one, status=SILENCED) for one in queued(correction, end_of("sums", 200))]
    turn = turn_of(waiting)
    assert (turn.dropped, told(turn)) == ((0,), [[1]])
    never_sent = queued(alert("sums", 100), correction, end_of("sums", 200))
    statuses = (SILENCED, BEHIND, BEHIND)
    turn = turn_of([replace(one, status=status) for one, status in zip(never_sent, statuses, strict=True)])
    assert (turn.dropped, told(turn)) == ((0, 1, 2), [])


def test_a_silence_means_subsets_measures_and_sub_folders_and_nothing_else() -> None:
    meant = [
        about(SubjectKind.BENCHMARK, "sums", subset="carry"),
        about(SubjectKind.BENCHMARK, "sums", measure=Measure.COMPLETENESS),
        alert("sums", run_id=f"{RUN}/a"),
        alert("math-hard"),
        alert("checkpoint"),  # a benchmark may be called like a kind of alert
    ]
    others = [
        alert("sums / carry"),  # and so
        about(SubjectKind.LATENCY, "sums"),
        alert("sums2"),
        alert("math"),
        about(SubjectKind.CHECKPOINT),
    ]
    turn = turn_of(queued(*meant, *others), silence("sums"), silence("math-*"), silence("checkpoint"))
    assert sorted(turn.put_off) == list(range(len(meant)))


def test_what_began_and_ended_in_silence_is_dropped_and_what_was_only_waiting_is_not() -> None:
    pair = [alert("sums", 100), end_of("sums", 200)]
    again = alert("sums", 300)
    cases = [
        ((SILENCED, BEHIND, BEHIND), (0, 1), [[2]]),
        ((WAITING, SILENCED, WAITING), (), [[0], [1], [2]]),
        ((DeliveryStatus.FAILED, SILENCED, WAITING), (), [[0], [1], [2]]),
    ]
    for statuses, dropped, groups in cases:
        waiting = [replace(one, status=s) for one, s in zip(queued(*pair, again), statuses, strict=True)]
        turn = turn_of(waiting)
        assert (turn.dropped, told(turn)) == (dropped, groups), statuses


def test_what_came_and_went_several_times_in_silence_is_told_if_it_lasts() -> None:
    waiting = queued(
        alert("sums", 100), end_of("sums", 200), alert("sums", 300), end_of("sums", 400), alert("sums", 500)
    )
    statuses = (SILENCED, BEHIND, BEHIND, BEHIND, BEHIND)
    turn = turn_of([replace(one, status=status) for one, status in zip(waiting, statuses, strict=True)])
    assert (turn.dropped, told(turn)) == ((0, 1, 2, 3), [[4]])


def test_after_a_refusal_nothing_later_of_that_cause_is_told() -> None:
    group = queued(alert("sums"), alert("facts"))
    assert [one.id for one in without_causes(group, {alert("sums").fingerprint})] == [1]


def test_only_what_changes_something_is_news() -> None:
    firing, resolved = AlertState.FIRING, AlertState.RESOLVED
    assert [is_news(alert(), last) for last in (None, resolved, firing)] == [True, True, False]
    assert [is_news(end_of(), last) for last in (None, resolved, firing)] == [False, False, True]


def test_a_channel_that_was_away_rests_and_one_that_refused_does_not() -> None:
    pace, retry = Pace().after_failure(AWAY, 1, NOW)
    assert (retry.is_for_all, retry.at) == (True, NOW + timedelta(seconds=5))
    for after_s, rests in ((-1, False), (0, True), (4.9, True), (5, False)):  # a clock may be set back
        now = NOW + timedelta(seconds=after_s)
        assert pace.rests(now) == rests, after_s
        assert pace.is_asked(now, now.timestamp()) != rests, after_s
    pace, retry = Pace().after_failure(REFUSED, 1, NOW)
    assert (retry.is_for_all, pace.rests(NOW)) == (False, False)


def test_the_wait_grows_and_is_at_least_what_the_service_asks_for() -> None:
    waits = [Pace().after_failure(AWAY, attempts, NOW)[1].wait_s for attempts in (1, 2, 3, 20)]
    assert waits == [5.0, 10.0, 20.0, 300.0]
    asked = ChannelUnreachable("too many requests", hint="wait", retry_after_s=120)
    assert Pace().after_failure(asked, 1, NOW)[1].wait_s == 120.0


def test_a_trouble_that_lasts_is_news_once_and_a_refusal_always() -> None:
    pace, first = Pace().after_failure(AWAY, 1, NOW)
    assert (first.is_news, pace.is_in_trouble) == (True, True)
    assert not pace.after_failure(AWAY, 2, NOW)[1].is_news
    assert pace.after_failure(REFUSED, 2, NOW)[1].is_news


def test_a_service_that_forgets_is_asked_again_though_nothing_waits() -> None:
    assert not Pace().is_asked(NOW, None)
    assert not Pace().is_asked(NOW, LATER_S)
    pace = Pace(repeat_s=60.0)
    assert pace.is_asked(NOW, None)
    pace = replace(pace, repeated_at=NOW)
    for after_s, repeats in ((0, False), (59.9, False), (60, True), (-1, True)):
        assert pace.is_asked(NOW + timedelta(seconds=after_s), None) == repeats, after_s
    assert not Pace(repeat_s=60.0).after_failure(AWAY, 1, NOW)[0].repeats(NOW)
