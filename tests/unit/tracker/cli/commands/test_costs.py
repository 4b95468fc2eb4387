import io
from collections.abc import Iterable
from dataclasses import replace

from rich.console import Console

from eval_jobs.identity import rest_plan, screen_plan
from eval_jobs.types import Cost, EvalRecord, Screen
from tests.records import forgetting_run
from tracker.cli.commands.to_inspect.costs import run_costs_table
from tracker.domain.overview.costs import run_costs

RUN = forgetting_run(checkpoints=3, samples=10)
COST = Cost(loading_s=0.4, evaluating_s=12, probing_s=3, input_tokens=45_000, output_tokens=200, cpu_s=28)


def shown(records: Iterable[EvalRecord]) -> str:
    console = Console(file=io.StringIO(), width=80)
    console.print(run_costs_table(run_costs(RUN.run_id, records), last=2))
    text: str = console.file.getvalue()  # type: ignore[attr-defined]
    return "\n".join(line.rstrip() for line in text.splitlines())


def test_a_line_for_each_checkpoint_fits_a_terminal_of_80_columns() -> None:
    assert (
        shown(replace(record, cost=COST) for record in RUN.records)
        == """\
                           latency   tokens   tokens
step   loading   scoring      test       in      out   GPU      CPU
───────────────────────────────────────────────────────────────────
 200     0.4 s    12.0 s     3.0 s   45.0 k      200     -   28.0 s
 300     0.4 s    12.0 s     3.0 s   45.0 k      200     -   28.0 s"""
    )


def test_a_screen_and_its_rest_are_told_apart_in_80_columns() -> None:
    whole = replace(RUN.records[1], cost=COST)
    screen = replace(whole, plan=screen_plan(whole.plan, Screen(samples=2)))
    rest = replace(whole, plan=rest_plan(screen.plan, ("sums",)))
    assert (
        shown((replace(RUN.records[0], cost=COST), screen, rest))
        == """\
                                    latency   tokens   tokens
step   part     loading   scoring      test       in      out   GPU      CPU
────────────────────────────────────────────────────────────────────────────
 200   screen     0.4 s    12.0 s     3.0 s   45.0 k      200     -   28.0 s
 200   rest       0.4 s    12.0 s     3.0 s   45.0 k      200     -   28.0 s"""
    )
