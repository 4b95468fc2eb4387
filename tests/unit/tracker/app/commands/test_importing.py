import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import event

from eval_jobs.errors import BadData
from eval_jobs.queue.database_sql import open_database
from eval_jobs.types import EvalRecord
from tests.fakes.clock import FakeClock
from tests.imported import fields, given, lm_eval, lm_eval_rows
from tests.unit.tracker.app.fake_world import FakeWorld
from tracker.adapters.history.store_sql import SqlHistory
from tracker.app.commands.importing import JudgedImport, import_results, policy_of, publish_all
from tracker.domain.imports.lm_eval import sheets_of_lm_eval
from tracker.domain.imports.records import ImportedCheckpoint, checkpoints_of
from tracker.domain.imports.types import Sheet
from tracker.domain.records.policy import Policy
from tracker.domain.records.reason_text import reason_text
from tracker.domain.records.types import Report, VerdictWord
from tracker.domain.scores.mean_series import means_of
from tracker.domain.scores.run_scores import RunScores
from tracker.domain.verdicts.context import RunContext
from tracker.domain.verdicts.judge import judge

N = 200


def imported(*counts: int, first: int = 1000, samples: bool = True) -> tuple[ImportedCheckpoint, ...]:
    """One checkpoint every 1000 steps, with so many right answers of `N`."""
    sheets: list[Sheet] = []
    for index, count in enumerate(counts):
        scores = [1.0] * count + [0.0] * (N - count)
        document = fields(lm_eval({"copa": count / N}, n=N, step=first + 1000 * index))
        sheets += sheets_of_lm_eval(document, {"copa": lm_eval_rows(scores)} if samples else {}, given())
    return checkpoints_of(sheets, run_id="others", suite="s")


def take(fakes: FakeWorld, checkpoints: Sequence[ImportedCheckpoint]) -> tuple[JudgedImport, ...]:
    taken = import_results(fakes.world(), checkpoints, clock=fakes.clock, show=lambda _: None)
    assert publish_all(fakes.tracking) == 0
    return taken


def words(taken: Sequence[JudgedImport]) -> Mapping[int, VerdictWord]:
    return {one.report.step: one.report.verdicts[0].word for one in taken}


def test_a_run_is_judged_in_the_order_of_its_steps() -> None:
    fakes = FakeWorld()
    taken = take(fakes, imported(180, 181, 180, 60, 60, 60))
    assert words(taken)[1000] is VerdictWord.FIRST
    assert words(taken)[6000] is VerdictWord.REGRESSED
    assert [e.onset_step for e in fakes.history.incidents("others")] == [4000]
    assert [report.step for report in fakes.history.reports("others")] == [1000, 2000, 3000, 4000, 5000, 6000]


def test_a_record_that_could_not_be_read_again_is_refused_before_it_is_stored() -> None:
    fakes = FakeWorld()
    (one,) = imported(180)
    suite = one.record.plan.suite
    odd = replace(suite, benchmarks=(replace(suite.benchmarks[0], few_shot=-5),))
    record = replace(one.record, plan=replace(one.record.plan, suite=odd))
    with pytest.raises(BadData, match=r"step 1000 contain an impossible value(?s:.*)few_shot"):
        take(fakes, [replace(one, record=record)])
    assert fakes.history.records("others") == ()


def test_nobody_is_alerted_of_the_past() -> None:
    fakes = FakeWorld()
    take(fakes, imported(180, 181, 180, 60, 60, 60))
    assert not fakes.history.open_alerts("others")
    assert not fakes.alerting.alerts


def test_importing_twice_changes_nothing() -> None:
    fakes = FakeWorld()
    take(fakes, imported(180, 60))
    before = (fakes.history.records("others"), fakes.history.reports("others"), tuple(fakes.tracking.records))
    again = take(fakes, imported(180, 60))
    assert [one.is_new for one in again] == [False, False]
    assert (fakes.history.records("others"), fakes.history.reports("others"), tuple(fakes.tracking.records)) == before


def test_in_two_goes_it_comes_to_the_same_as_in_one() -> None:
    once, parts = FakeWorld(), FakeWorld()
    whole = imported(180, 181, 180, 60, 60, 60)
    take(once, whole)
    take(parts, whole[:3])
    take(parts, whole)
    assert words(take(parts, whole)) == words(take(once, whole))
    assert parts.history.incidents("others") == once.history.incidents("others")


def test_a_checkpoint_that_is_imported_late_is_judged_by_its_own_past() -> None:
    fakes = FakeWorld()
    whole = imported(180, 181, 180, 60, 60, 60)
    take(fakes, (*whole[:3], *whole[4:]))
    (late,) = (one for one in take(fakes, whole) if one.is_new)
    assert late.report.step == 4000
    assert late.report.verdicts[0].comparisons[0].baseline_steps == (1000, 2000, 3000)


class _Killed(Exception):
    """Stands for a kill -9."""


@pytest.mark.parametrize("method", ["append", "append_reports", "scores", "publish"])
def test_an_import_that_was_killed_is_finished_by_the_next(monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    whole, fakes, once = imported(180, 181, 180, 60, 60, 60), FakeWorld(), FakeWorld()
    take(once, whole)
    broken = fakes.tracking if method == "publish" else fakes.history
    real, calls = getattr(broken, method), []

    def killed(*args: object, **more: object) -> object:
        calls.append(args)
        if len(calls) == 5:
            raise _Killed
        return real(*args, **more)

    with monkeypatch.context() as patch:
        patch.setattr(broken, method, killed)
        with pytest.raises(_Killed):
            take(fakes, whole)
    take(fakes, whole)
    assert [_said(r) for r in fakes.history.reports("others")] == [_said(r) for r in once.history.reports("others")]
    assert fakes.history.incidents("others") == once.history.incidents("others")
    assert [_plan(p) for p in fakes.tracking.records] == [_plan(p) for p in once.tracking.records]


def test_what_mlflow_does_not_take_waits() -> None:
    fakes = FakeWorld()
    fakes.tracking.is_down = True
    import_results(fakes.world(), imported(180, 60), clock=fakes.clock, show=lambda _: None)
    assert publish_all(fakes.tracking) == 2
    fakes.tracking.is_down = False
    assert publish_all(fakes.tracking) == 0


def test_the_length_of_an_imported_run_is_the_planned_one() -> None:
    fakes = FakeWorld()
    world = fakes.world()
    assert policy_of(world, imported(1, 1, 1)).planned_checkpoints == 3
    take(fakes, imported(1, 1, 1))
    assert policy_of(world, imported(1, first=9000)).planned_checkpoints == 4
    decided = replace(world, policy=replace(world.policy, planned_checkpoints=50))
    assert policy_of(decided, imported(1)).planned_checkpoints == 50


def test_means_alone_are_judged_too() -> None:
    found = words(take(FakeWorld(), imported(180, 181, 180, 180, 181, 180, 60, 60, 60, samples=False)))
    assert found[1000] is VerdictWord.FIRST
    assert found[9000] is VerdictWord.SUSPECT


def test_an_import_reads_its_run_once_however_many_checkpoints_it_brings(tmp_path: Path) -> None:
    asked: dict[int, Counter[str]] = {}
    for length in (5, 25):
        engine = open_database(f"sqlite:///{tmp_path}/{length}.db")
        fakes = FakeWorld()
        world = replace(fakes.world(), history=SqlHistory(engine, tmp_path / f"samples-{length}"))
        counted: Counter[str] = Counter()
        asked[length] = counted
        event.listen(engine, "before_cursor_execute", lambda *call, counted=counted: counted.update([_kind(call[2])]))
        import_results(world, imported(*[180] * length, samples=False), clock=fakes.clock, show=lambda _: None)
        engine.dispose()
        assert not (tmp_path / f"samples-{length}").exists(), "means need no files"
    small, large = asked[5], asked[25]
    whole_run = "SELECT history_records"
    assert small[whole_run] == large[whole_run] > 0
    by_checkpoint = {kind: (large[kind] - small[kind]) / 20 for kind in large}
    assert by_checkpoint.pop("INSERT ") == 4, "the number of the change of a record, and of a report"
    assert set(by_checkpoint.values()) == {0, 1, 2}, "others once a checkpoint, or once for its record and its report"


def test_means_that_are_known_need_no_look_at_the_records_that_hold_them() -> None:
    records = [one.record for one in imported(180, 181, 180, 180, 181, 180, 60, 60, 60, samples=False)]
    run_context = RunContext(records=tuple(records))
    known = replace(
        run_context, means=means_of(records), records=tuple(replace(record, outcomes=()) for record in records)
    )
    scores, now = RunScores(run_id="others"), FakeClock().now()
    found = [judge(records[-1], scores, one, Policy(), now=now) for one in (run_context, known)]
    assert found[0].verdicts[0].word is VerdictWord.SUSPECT
    assert found[0] == found[1]


def test_of_means_that_are_imported_again_for_a_step_the_newest_count_in_whatever_order_they_come() -> None:
    old, new = (one.record for of in (180, 60) for one in imported(of, samples=False))
    new = replace(new, finished_at=new.finished_at + timedelta(days=1))
    for records in ([old, new], [new, old]):
        (series,) = means_of(records).values()
        assert series.means.tolist() == [60 / N]


def _kind(statement: str) -> str:
    """The verb and the first table of a statement."""
    table = next((word for word in re.split(r"[\s.,]+", statement) if word.startswith(("history_", "outbox"))), "")
    return f"{statement.split(maxsplit=1)[0]} {table}"


def _said(report: Report) -> tuple[int, VerdictWord, str]:
    return report.step, report.verdicts[0].word, reason_text(report.verdicts[0])


def _plan(published: tuple[EvalRecord, Report]) -> str:
    return published[0].plan.id
