"""Where the texts of an old checkpoint were deleted to save space, whoever shows them says so, and scores stay."""

import io
from dataclasses import replace

from rich.console import Console

from dashboards.page.html import render_page
from dashboards.views.run import build_view
from eval_jobs.types import EvalRecord, EvalResult
from tests.records import RecordedRun, forgetting_run, scores_of_run
from tests.reports import run_data
from tracker.cli.tables.comparison import comparison_table
from tracker.cli.tables.forgetting import ledger_tables
from tracker.domain.compare.view import RunNoise, compare_parts
from tracker.domain.forgetting.ledger import run_ledger
from tracker.domain.forgetting.texts import with_texts
from tracker.domain.records.policy import Policy

RUN = forgetting_run()


def without_texts(record: EvalRecord) -> EvalRecord:
    """The record as a history reads it when its answers were deleted."""
    outcomes = tuple(
        replace(o, samples=tuple(replace(s, answer="", detail="") for s in o.samples), has_texts=False)
        if isinstance(o, EvalResult)
        else o
        for o in record.outcomes
    )
    return replace(record, outcomes=outcomes)


OLD = replace(RUN, records=(*map(without_texts, RUN.records[:-1]), RUN.records[-1]))


def shown(part: object) -> str:
    console = Console(width=120, file=io.StringIO())
    console.print(part)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_two_checkpoints_are_compared_as_before_and_the_missing_answers_are_said() -> None:
    views = [compare_parts([(run.records[5], run.records[-1])], Policy(), RunNoise()) for run in (RUN, OLD)]
    assert [b.comparison for b in views[0].benchmarks] == [b.comparison for b in views[1].benchmarks]
    lost = [example for benchmark in views[1].benchmarks for example in benchmark.lost]
    assert lost
    for example in lost:
        assert example.answer_before is None
        assert example.answer_after
        assert example.prompt
    assert shown(comparison_table(views[1])).count("(not kept)") == sum(
        len(b.lost) + len(b.gained) for b in views[1].benchmarks
    )


def ledger_text(run: RecordedRun) -> str:
    by_plan = {record.plan.id: record for record in run.records}
    ledger = run_ledger(scores_of_run(run), Policy(), details=2)
    return shown(ledger_tables(with_texts(ledger, lambda plan_id, _: by_plan.get(plan_id)), subsets=3))


def test_the_forgetting_ledger_tells_samples_whose_old_answers_are_gone() -> None:
    before, after = ledger_text(RUN), ledger_text(OLD)
    assert "(not kept)" not in before
    assert after.count("(not kept)") == after.count("✓ ") > 0
    assert after.count("prompt") == before.count("prompt")


def test_the_report_says_that_old_answers_are_gone() -> None:
    pages = [render_page(build_view(run_data(run)), version="1") for run in (RUN, OLD)]
    assert "(not kept)" not in pages[0]
    assert "(not kept)" in pages[1]
