"""Which parts are asked later, of this checkpoint and of those that it is held against: each at most once."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

from eval_jobs.identity import rest_plan
from eval_jobs.types import EvalRecord, EvalResult
from tests.comparisons import suspicious
from tests.unit.tracker.app.screening_bench import LOST_AT, RUN, Bench, kind_of, through
from tracker.app.steps.screening import Reports, plans_of_rest, whole_record
from tracker.domain.records.types import Report, Screened, Verdict, VerdictWord

PART = Screened(asked=100, left_out=300, tokens=None, seconds=1.0)


@cache
def records() -> tuple[EvalRecord, ...]:
    """Return a run in which the rest of `sums` was asked from `LOST_AT` on, and that of `facts` never."""
    bench = Bench(lost_at=LOST_AT)
    through(bench, LOST_AT + 300)
    assert f"{LOST_AT} rest sums" in bench.kinds()
    return bench.fakes.history.records(RUN)


def record_of(kind: str) -> EvalRecord:
    """Return a record by `50 whole`, `50 screen` or `50 joined`."""
    step, name = kind.split()
    found = {kind_of(r.plan).split()[1].replace("rest", "joined"): r for r in records() if at(r) == int(step)}
    return found[name]


def at(record: EvalRecord) -> int:
    return record.plan.checkpoint.step


def suspect(benchmark: str, *against: int, screened: Screened | None = None) -> Verdict:
    return Verdict(
        benchmark=benchmark,
        word=VerdictWord.SUSPECT,
        reason=None,
        score=0.6,
        stderr=0.02,
        coverage=1.0,
        alpha_test=0.0,
        comparisons=(suspicious(*against, pooled_steps=(1700,)),) if against else (),
        screened=screened,
    )


def asked(
    record: EvalRecord, *verdicts: Verdict, given_up: Sequence[str] = (), before: Sequence[Verdict] = ()
) -> list[str]:
    report = Report(
        run_id=RUN,
        step=at(record),
        plan_id=record.plan.id,
        verdicts=verdicts,
        checkpoint=record.plan.checkpoint,
        created_at=record.finished_at,
    )
    reports = Reports(newest=report, before=replace(report, verdicts=tuple(before)))
    return [kind_of(plan) for plan in plans_of_rest(record, reports, records(), given_up)]


def test_what_is_known_whole_by_then_is_not_asked_again() -> None:
    newest = record_of("1700 whole")
    before = LOST_AT - 100
    assert asked(newest, suspect("sums", before, LOST_AT), suspect("facts", before, LOST_AT)) == [
        f"{before} rest sums",
        f"{before} rest facts",
        f"{LOST_AT} rest facts",
    ]


def test_a_part_has_one_plan_whatever_else_is_asked_with_it() -> None:
    newest, before = record_of("1700 whole"), LOST_AT - 100
    first = asked(newest, suspect("sums", before))
    assert set(first) <= set(asked(newest, suspect("sums", before), suspect("facts", before)))


def test_a_screen_that_looks_suspicious_only_later_is_asked_whole_although_another_one_was() -> None:
    both = record_of(f"{LOST_AT} joined")
    assert asked(both, suspect("facts", screened=PART)) == [f"{LOST_AT} rest facts"]


def test_a_suspicious_screen_asks_one_of_its_references_unless_one_is_whole() -> None:
    screen = record_of("1900 screen")
    gone = [record_of("1600 screen").plan.checkpoint.uri]
    for base, given_up, references in (
        ((1500, 1600), [], ["1600 rest sums"]),
        ((1500, 1600), gone, ["1500 rest sums"]),
        ((1600,), gone, []),
        ((1600, 1700), [], []),
    ):
        plans = asked(screen, suspect("sums", *base, screened=PART), given_up=given_up)
        assert plans == ["1900 rest sums", *references]
    assert asked(screen, suspect("facts", 1500, 1600)) == []


def test_a_rest_that_an_earlier_report_asked_for_is_in_no_second_plan() -> None:
    sums, facts = suspect("sums", 1700, screened=PART), suspect("facts", 1700, screened=PART)
    assert asked(record_of("1900 screen"), sums, facts) == ["1900 rest sums facts"]
    assert asked(record_of("1900 screen"), sums, facts, before=[sums]) == ["1900 rest facts"]
    assert asked(record_of("1900 screen"), sums, before=[sums, facts]) == []


def test_nothing_is_asked_of_weights_that_were_given_up() -> None:
    screen = record_of(f"{LOST_AT - 100} screen")
    gone = [screen.plan.checkpoint.uri]
    assert asked(screen, suspect("sums", screened=PART)) == [f"{LOST_AT - 100} rest sums"]
    assert not asked(screen, suspect("sums", screened=PART), given_up=gone)
    assert not asked(record_of("1700 whole"), suspect("sums", LOST_AT - 100), given_up=gone)


def test_a_third_part_is_joined_to_the_record_that_holds_two_of_them() -> None:
    """Of two rests that were carried out at once the earlier one may be taken over last."""
    bench = Bench(lost_at=LOST_AT)
    through(bench, LOST_AT)
    history, screen = bench.fakes.history, next(p for p in bench.plans if kind_of(p) == f"{LOST_AT} screen")
    of_sums = history.records(RUN)[-1]
    of_facts = bench.record_of(rest_plan(screen, ("facts",)))
    both = whole_record(replace(of_facts, finished_at=of_sums.finished_at), history)
    assert both.finished_at == of_sums.finished_at
    history.append(replace(both, plan=replace(both.plan, id="z")))  # the history names it last
    third = whole_record(replace(of_facts, plan=rest_plan(screen, ("sums", "facts")), outcomes=()), history)
    assert [o.left_out for o in third.outcomes if isinstance(o, EvalResult)] == [0, 0]
