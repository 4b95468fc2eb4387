"""Sweeps from timetable to results, on fakes: what begins, what waits, and what survives a kill."""

from dataclasses import replace
from datetime import datetime, timedelta
from itertools import count
from typing import Any

import pytest

from eval_jobs.errors import ConfigError, StoreError, TrackingUnreachable
from eval_jobs.queue.rules import lease_end
from eval_jobs.queue_types import Backlog
from tests.fakes.history import FakeHistory
from tests.fakes.queue import FakeQueue
from tests.fakes.sweeps import FakeSweeps
from tests.fakes.tracking import FakeTracking
from tests.killing import Killed
from tests.sweeping import CHECKPOINTS, LOADS, NOW, OTHER, RECORDED, FakePins, answered, sweep_of
from tests.unit.tracker.app.test_tick import Fuse
from tracker.app.steps.sweeps import (
    LEASE_S,
    SweepService,
    begin_by_hand,
    carry_on,
    follow,
    select_checkpoints,
    take_sweep_result,
)
from tracker.domain.sweeps.types import Missed, Sweep, Timetable, Turn, TurnState

RUN = RECORDED.run_id
TWO = NOW.replace(hour=2)
DAY = timedelta(days=1)


class Bench:
    """One database, and as many processes on it as a test wants."""

    def __init__(self, *sweeps: Sweep) -> None:
        self.sweeps = {sweep.name: sweep for sweep in sweeps}
        self.store, self.queue, self.history = FakeSweeps(), FakeQueue(), FakeHistory()
        self.tracking, self.pins = FakeTracking(), FakePins()
        self._numbers = count(1)

    def service(self, **changes: Any) -> SweepService:
        """Return what another process has."""
        parts: dict[str, Any] = {
            "run": RUN,
            "sweeps": self.sweeps,
            "store": self.store,
            "queue": self.queue,
            "records": self.history,
            "pins": self.pins,
            "tracking": self.tracking,
            "holder": f"process {next(self._numbers)}",
            "registered": nobody_registered,
        }
        return SweepService(**(parts | changes))

    def asked(self) -> list[str]:
        """Do what workers would and hand the results to a watcher; return what was asked, in order."""
        names, service = [], self.service()
        while claim := self.queue.claim(worker="w", now=NOW, lease_until=lease_end(NOW)):
            cell = claim.plan.sweep
            names.append("run" if cell is None else f"{cell.target} {dict(cell.variant)}")
            self.queue.finish(claim, answered(claim.plan), now=NOW)
        for record in self.queue.finished():
            if record.plan.sweep is not None:
                take_sweep_result(record, service)
        return names

    def states(self, sweep: str = "nightly") -> list[TurnState]:
        return [turn.state for turn in self.store.turns(sweep)]


def nobody_registered(name: str) -> Any:
    raise TrackingUnreachable("the store does not answer", hint=name)


def followed(bench: Bench, *times: datetime) -> list[Turn]:
    """Follow timetables in one process, at these times."""
    service = bench.service()
    return [turn for time in times for turn in follow(service, time)]


def test_a_sweep_begins_when_it_is_due_ends_when_all_is_answered_and_is_published() -> None:
    bench = Bench(sweep_of(loads=LOADS))
    assert followed(bench, NOW, TWO - timedelta(seconds=1)) == []
    (begun,) = followed(bench, TWO)
    assert (begun.state, begun.due_at, len(begun.plans)) == (TurnState.RUNNING, TWO, 4)
    assert followed(bench, TWO + timedelta(minutes=1)) == []
    asked = bench.asked()
    assert [name.partition(" ")[0] for name in asked] == [f"{RUN}@300"] * 2 + [f"{RUN}@400"] * 2  # each loaded once
    assert len(set(asked)) == 4
    (ended,) = followed(bench, TWO + timedelta(minutes=2))
    assert (ended.state, ended.ended_at) == (TurnState.DONE, TWO + timedelta(minutes=2))
    bench.tracking.flush()
    assert sorted(record.plan.id for record in bench.tracking.sweeps) == sorted(plan.id for plan in begun.plans)
    assert bench.queue.state().counts.get("finished", 0) == 0


def test_answers_and_questions_are_published_and_not_kept_twice() -> None:
    bench = Bench(sweep_of())
    followed(bench, NOW, TWO)
    bench.asked()
    bench.tracking.flush()
    assert bench.tracking.sweeps[0].outcomes[0].samples[0].answer == "42"  # type: ignore[union-attr]
    (kept, *_) = bench.store.results([p.id for p in bench.store.turns("nightly")[0].plans]).values()
    assert {(s.prompt, s.target, s.answer) for o in kept.outcomes for s in o.samples} == {("", "", "")}  # type: ignore[union-attr]


def test_what_a_sweep_asks_waits_for_the_runs_own_checkpoints() -> None:
    bench = Bench(sweep_of())
    followed(bench, NOW, TWO)
    own = [record.plan for record in RECORDED.records]
    for plan in own:
        bench.queue.add(plan, now=TWO, backlog=Backlog.NEWEST)
    assert bench.asked()[: len(own)] == ["run"] * len(own)


def test_a_turn_that_comes_again_asks_only_what_is_new_unless_it_is_to_ask_again() -> None:
    for again, second in ((False, 2), (True, 4)):
        bench = Bench(sweep_of(again=again))
        bench.pins.checkpoints = list(CHECKPOINTS[:3])
        followed(bench, NOW, TWO)
        assert len(bench.asked()) == 4
        bench.pins.checkpoints = list(CHECKPOINTS)
        followed(bench, TWO + DAY - timedelta(hours=1))
        followed(bench, TWO + DAY)
        assert len(bench.asked()) == second
        followed(bench, TWO + DAY + timedelta(minutes=1))
        assert bench.states() == [TurnState.DONE, TurnState.DONE]


def test_what_was_asked_before_is_answered_at_once() -> None:
    bench = Bench(sweep_of())
    followed(bench, NOW, TWO)
    bench.asked()
    followed(bench, TWO + timedelta(minutes=1))
    assert [t.state for t in followed(bench, TWO + DAY, TWO + DAY + timedelta(seconds=1))] == [
        TurnState.RUNNING,
        TurnState.DONE,
    ]
    assert bench.asked() == []


def test_an_endpoint_is_asked_anew_at_every_turn_and_each_load_is_put_on_it_once() -> None:
    bench = Bench(sweep_of(checkpoints=(), endpoints=(OTHER,), loads=LOADS))
    followed(bench, NOW, TWO)
    (turn,) = bench.store.turns("nightly")
    assert [(len(p.loads), p.serve.base_url, p.checkpoint.run_id) for p in turn.plans] == [
        (2, OTHER.serve.base_url, RUN),
        (0, OTHER.serve.base_url, RUN),
    ]
    assert len(bench.asked()) == 2
    followed(bench, TWO + timedelta(hours=1), TWO + DAY)
    assert len(bench.asked()) == 2


def test_overlapping_sweeps_wait_and_of_one_sweep_at_most_one_turn_waits() -> None:
    hourly = Timetable(cron="0 * * * *")
    bench = Bench(sweep_of(timetable=hourly), sweep_of("other", timetable=Timetable(cron="30 2 * * *")))
    hours = [TWO + timedelta(hours=n) for n in range(5)]
    followed(bench, NOW, *hours)
    assert [t.state for t in bench.store.turns("nightly")][::-1] == [
        TurnState.RUNNING,
        TurnState.DUE,
        TurnState.SKIPPED,
        TurnState.SKIPPED,
        TurnState.SKIPPED,
    ]
    assert bench.states("other") == [TurnState.DUE]
    later = hours[-1] + timedelta(minutes=1)
    bench.asked()
    followed(bench, later)
    assert bench.states("other") == [TurnState.RUNNING]  # it was due before the second turn of the hourly one
    bench.asked()
    followed(bench, later + timedelta(minutes=1))
    assert bench.states("nightly")[-2:] == [TurnState.RUNNING, TurnState.DONE]


def test_missed_times_are_carried_out_once_or_skipped_by_policy() -> None:
    for missed, states in ((Missed.ONCE, [TurnState.RUNNING]), (Missed.SKIP, [TurnState.SKIPPED])):
        bench = Bench(sweep_of(timetable=Timetable(cron="0 2 * * *", missed=missed)))
        followed(bench, NOW)
        followed(bench, NOW + 5 * DAY + timedelta(hours=4))
        assert bench.states() == states
        assert bench.store.turns("nightly")[0].missed == 5


def test_a_clock_that_is_set_back_repeats_no_turn_and_stops_none() -> None:
    bench = Bench(sweep_of())
    service = bench.service()
    for time in (NOW, TWO, TWO + timedelta(hours=3)):
        follow(service, time)
    bench.asked()
    for time in (NOW, TWO, TWO + timedelta(hours=1), TWO + DAY):  # set back by hours, and it runs on
        follow(service, time)
        bench.asked()
    follow(service, TWO + DAY + timedelta(hours=1))
    assert [(t.due_at, t.state) for t in bench.store.turns("nightly")] == [
        (TWO + DAY, TurnState.DONE),
        (TWO, TurnState.DONE),
    ]


def test_two_watchers_begin_a_turn_once() -> None:
    bench = Bench(sweep_of())
    one, other = bench.service(), bench.service()
    follow(one, NOW), follow(other, NOW)
    begun = [*follow(one, TWO), *follow(other, TWO), *follow(one, TWO), *follow(other, TWO)]
    assert [turn.state for turn in begun] == [TurnState.RUNNING]
    assert len(bench.asked()) == 4


def test_a_holder_that_was_frozen_beyond_its_lease_doubles_nothing() -> None:
    bench = Bench(sweep_of())
    frozen, other = bench.service(), bench.service()
    follow(frozen, NOW)

    class Sleepy(FakePins):
        def held(self) -> Any:
            follow(other, TWO + timedelta(seconds=LEASE_S + 1))  # everything happens while this one sleeps
            bench.pins.checkpoints = list(CHECKPOINTS[:1])
            return super().held()

    slow = replace(frozen, pins=Sleepy(checkpoints=list(CHECKPOINTS[:1])))
    assert follow(slow, TWO) == ()
    (turn,) = bench.store.turns("nightly")
    assert len(turn.plans) == 4
    assert len(bench.asked()) == 4


def test_a_kill_at_any_call_loses_and_doubles_nothing() -> None:
    for survived in count():
        fuse, bench = Fuse(survived), Bench(sweep_of(), sweep_of("weekly", timetable=Timetable(cron="0 2 * * 0")))
        for record in RECORDED.records:  # of which a half is known
            bench.history.append(record)
        followed(bench, NOW)
        is_killed = False
        try:
            parts = ("store", "queue", "pins", "tracking")
            service = bench.service(**{name: fuse.around(getattr(bench, name)) for name in parts})
            follow(service, TWO)
            for record in finished(bench):
                take_sweep_result(record, service)
            follow(service, TWO + timedelta(seconds=1))
        except Killed:
            is_killed = True
        for number in range(1, 8):
            followed(bench, TWO + timedelta(seconds=LEASE_S * number))
            bench.asked()
        assert [bench.states(), bench.states("weekly")] == [[TurnState.DONE], [TurnState.DONE]], survived
        bench.tracking.flush()
        published = [record.plan.id for record in bench.tracking.sweeps]
        assert len(published) == len(set(published)) == 8, survived
        if not is_killed:
            break
    assert survived > 20


def finished(bench: Bench) -> list[Any]:
    """Do what workers would."""
    while claim := bench.queue.claim(worker="w", now=TWO, lease_until=lease_end(TWO)):
        bench.queue.finish(claim, answered(claim.plan), now=TWO)
    return list(bench.queue.finished())


def test_a_schedule_that_is_edited_while_a_turn_waits_counts_as_it_is_when_the_turn_begins() -> None:
    bench = Bench(sweep_of(), sweep_of("other", timetable=Timetable(cron="30 2 * * *")))
    followed(bench, NOW, TWO, TWO + timedelta(minutes=30))
    bench.sweeps["other"] = sweep_of("other", checkpoints=("first",), axes={})
    bench.sweeps["nightly"] = sweep_of(checkpoints=("first",))
    assert len(bench.asked()) == 4  # what had begun is carried out as it began
    followed(bench, TWO + timedelta(hours=1))
    assert bench.asked() == [f"{RUN}@100 {{}}"]


def test_a_turn_whose_schedule_was_taken_out_is_skipped_and_says_so() -> None:
    bench = Bench(sweep_of())
    begin_by_hand(bench.service(), bench.sweeps.pop("nightly"), NOW)
    (turn,) = carry_on(bench.service(), NOW)
    assert (turn.state, turn.note) == (TurnState.SKIPPED, "removed from tracker.toml")


def test_a_run_without_checkpoints_and_one_that_nobody_knows_are_said_and_the_rest_is_asked() -> None:
    bench = Bench(sweep_of(checkpoints=("latest", "ghost@latest:2", "best", "12345", "models:/m@champion")))
    choice = select_checkpoints(bench.service(), bench.sweeps["nightly"])
    assert [c.step for c in choice.checkpoints] == [400]
    assert choice.missing == (
        "ghost@latest:2: no pinned checkpoint of ghost",
        f"best: no checkpoint of {RUN} has a score for all benchmarks of its suite",
        "12345: checkpoint is not pinned",
        "models:/m@champion: the store does not answer",
    )
    bench.pins.checkpoints = []
    begin_by_hand(bench.service(), bench.sweeps["nightly"], NOW)
    (turn,) = carry_on(bench.service(), NOW)
    assert (turn.state, turn.plans) == (TurnState.DONE, ())
    assert f"latest: no pinned checkpoint of {RUN}" in turn.note


def test_the_best_checkpoint_is_the_one_that_its_peak_names() -> None:
    bench = Bench(sweep_of(checkpoints=("best",)))
    for record in RECORDED.records:
        bench.history.append(record)
    assert [c.step for c in select_checkpoints(bench.service(), bench.sweeps["nightly"]).checkpoints] == [400]


def test_a_version_of_the_registry_is_the_held_checkpoint_with_its_weights() -> None:
    bench = Bench(sweep_of(checkpoints=("models:/sft@champion", "200")))
    service = bench.service(registered=lambda _: CHECKPOINTS[1])
    assert [c.step for c in select_checkpoints(service, bench.sweeps["nightly"]).checkpoints] == [200]


def test_checkpoints_of_another_run_are_asked_and_counted_to_the_run_whose_sweep_it_is() -> None:
    bench = Bench(sweep_of(checkpoints=("base@latest",)))
    bench.pins.checkpoints = [replace(CHECKPOINTS[0], run_id="base", step=7)]
    begin_by_hand(bench.service(), bench.sweeps["nightly"], NOW)
    (turn,) = carry_on(bench.service(), NOW)
    assert {(p.checkpoint.run_id, p.sweep.target) for p in turn.plans if p.sweep} == {(RUN, "base@7")}


def test_a_turn_that_is_too_large_is_refused_by_hand_and_by_time() -> None:
    large = sweep_of(checkpoints=("all",), max_evaluations=7)
    bench = Bench(large)
    with pytest.raises(
        ConfigError, match=r"needs 8 evaluations \(4 targets x 2 variants\), more than max_evaluations = 7"
    ):
        begin_by_hand(bench.service(), large, NOW)
    followed(bench, NOW, TWO)
    (turn,) = bench.store.turns("nightly")
    assert (turn.state, turn.plans) == (TurnState.REFUSED, ())
    assert "needs 8 evaluations" in turn.note


def test_thousands_of_thousands_of_cells_are_counted_and_never_made() -> None:
    axes = {axis: tuple(range(100)) for axis in ("temperature", "top_k", "seed", "max_tokens", "few_shot")}
    huge = sweep_of(axes=axes)
    with pytest.raises(ConfigError, match="needs 20,000,000,000 evaluations"):
        begin_by_hand(Bench(huge).service(), huge, NOW)


def test_most_passes_ask_no_table_when_nothing_is_due() -> None:
    bench = Bench(sweep_of())
    fuse = Fuse()
    service = bench.service(store=fuse.around(bench.store))
    follow(service, NOW)
    before = len(fuse.calls)
    follow(service, NOW + timedelta(minutes=1))
    assert len(fuse.calls) - before <= 3  # what is open, and nothing of timetables


def test_a_store_that_refuses_leaves_everything_for_the_next_pass() -> None:
    bench = Bench(sweep_of())
    followed(bench, NOW)

    class Refusing(FakePins):
        def held(self) -> Any:
            raise StoreError("no", hint="wait")

    with pytest.raises(StoreError):
        follow(bench.service(pins=Refusing()), TWO)
    followed(bench, TWO + timedelta(seconds=LEASE_S))
    assert len(bench.asked()) == 4
