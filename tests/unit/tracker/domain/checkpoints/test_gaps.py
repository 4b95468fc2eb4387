"""Which gaps are still to be told."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from datetime import timedelta

from tests.records import forgetting_run
from tracker.adapters.database.codec import from_json, to_json
from tracker.domain.checkpoints.gaps import Gaps, unsettled
from tracker.domain.overview.ending import totals_of
from tracker.domain.overview.run import open_gaps, overview
from tracker.domain.overview.standings import headline
from tracker.domain.records.types import Gap

RECORD = forgetting_run().records[3]
EVALUATED_AT = RECORD.finished_at
EARLIER, LATER = EVALUATED_AT - timedelta(hours=1), EVALUATED_AT + timedelta(hours=1)
GAP = Gap(
    run_id="run",
    step=RECORD.plan.checkpoint.step,
    source_uri="/out/checkpoint-400",
    code="E-CKPT-VANISHED",
    message="it was deleted",
    hint="keep more",
    seen_at=EARLIER,
)
INFERRED = replace(GAP, is_inferred=True)
OTHER = replace(GAP, code="E-CKPT-UNREADABLE")


def test_what_is_new_and_what_is_known_and_not_evaluated_stands() -> None:
    assert list(unsettled([GAP, INFERRED], (), ())) == [GAP, INFERRED]
    assert list(unsettled([GAP, INFERRED], [GAP], ())) == [GAP, INFERRED]


def test_a_gap_that_was_evaluated_after_all_is_settled() -> None:
    assert not list(unsettled([replace(GAP, seen_at=LATER)], [GAP], [RECORD]))


def test_a_step_that_is_saved_again_and_lost_is_a_gap_although_it_was_evaluated_before() -> None:
    assert list(unsettled([GAP], (), [RECORD])) == [GAP]
    lost_later = replace(GAP, seen_at=LATER)
    assert list(unsettled([lost_later], [lost_later], [RECORD])) == [lost_later]


def test_no_step_is_inferred_of_which_something_is_known() -> None:
    assert not list(unsettled([INFERRED], [OTHER], ()))
    assert not list(unsettled([INFERRED], (), [RECORD]))
    assert list(unsettled([GAP], [OTHER], ())) == [GAP]


SERIES = replace(INFERRED, step=100, last_step=900, count=9)


def spans(gaps: Iterable[Gap]) -> list[tuple[int, int | None, int]]:
    return [(gap.step, gap.last_step, gap.count) for gap in gaps]


def test_of_a_series_the_steps_stand_of_which_nothing_else_is_known() -> None:
    lost = replace(OTHER, step=600)
    assert spans(unsettled([SERIES], [lost], [RECORD])) == [(100, 300, 3), (500, None, 1), (700, 900, 3)]
    assert list(unsettled([SERIES], [SERIES, lost], [RECORD])) == [SERIES], "it is stored as it is"
    assert not list(unsettled([replace(SERIES, step=200, count=8)], [SERIES], ())), "a part of what is stored"
    assert not list(unsettled([replace(INFERRED, step=200)], [SERIES], ()))
    assert spans(unsettled([replace(SERIES, last_step=1100, count=11)], [SERIES], ())) == [(1000, 1100, 2)]


def test_a_series_is_shown_without_what_was_judged_and_without_what_has_another_gap() -> None:
    report = forgetting_run().reports[3]
    shown = open_gaps([report], [SERIES, replace(OTHER, step=500), replace(OTHER, step=750)])
    assert spans(shown) == [(100, 300, 3), (500, None, 1), (600, 900, 4), (750, None, 1)]
    view = overview([report], shown)
    assert "step 900 was not evaluated" in headline(view)
    found = {("run", 100), ("run", report.step)}
    totals = totals_of(found, [replace(report, run_id="run")], [SERIES])
    assert (totals.left_out, totals.evaluated) == (8, 1)


def test_one_missing_step_is_stored_as_before_and_a_series_can_be_read_again() -> None:
    single = json.loads(to_json(INFERRED))["value"]
    assert single.keys() == {field.name for field in fields(Gap)} - {"last_step", "count"}
    for gap in (INFERRED, SERIES):
        assert from_json(Gap, to_json(gap)) == gap


@dataclass(frozen=True, kw_only=True)
class Place:
    run_id: str = "run"
    step: int

    @property
    def uri(self) -> str:
        return f"/out/checkpoint-{self.step}"


def test_a_series_whose_first_step_has_another_gap_is_a_gap_and_what_comes_inside_makes_no_more() -> None:
    gaps = Gaps()
    for step in (10, 20):
        gaps.remember_step(Place(step=step), 10)
    gaps.add_missed(EARLIER)
    gaps.add_vanished(Place(step=30), "it was never read", EARLIER)
    gaps.remember_step(Place(step=10**6), 10)
    gaps.add_missed(EARLIER)
    lost = [(30, None, 1), (30, 10**6 - 10, (10**6 - 30) // 10)]
    assert spans(gaps.found()) == lost
    for step in range(500, 20_000, 30):
        gaps.remember_step(Place(step=step), 10)
        gaps.add_missed(EARLIER)
    assert spans(gaps.found()) == lost
