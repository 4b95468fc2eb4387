"""Why two checkpoints alone may say something else than the run's verdict. Pure."""

from collections.abc import Iterator
from dataclasses import replace

from tracker.domain.compare.view import ComparisonView
from tracker.domain.records.display import count_text, one_line, p_value_text, steps_text
from tracker.domain.records.reason_text import reason_text, shown_p
from tracker.domain.records.types import Comparison, Report, Verdict


def with_run(view: ComparisonView, later: Report) -> ComparisonView:
    """Return the comparison with the run's verdicts on its later checkpoint, whose report is `later`."""
    if view.before.run_id != later.run_id:
        return view
    compared = {one.benchmark for one in view.benchmarks}
    return replace(view, run=tuple(verdict for verdict in later.verdicts if verdict.benchmark in compared))


def differences_from_run(view: ComparisonView) -> Iterator[str]:
    """Yield a line for each benchmark whose verdict in the run is another one than that of the pair alone."""
    words = {one.benchmark: one.word for one in view.benchmarks}
    for verdict in view.run:
        alone = words[verdict.benchmark]
        if verdict.word is alone or not verdict.comparisons:
            continue
        of_run = f"{one_line(verdict.benchmark)}: {verdict.word} in the run, {one_line(reason_text(verdict))}"
        yield f"{of_run}. {_tested(verdict, verdict.comparisons[0])}; these two checkpoints alone are {alone}"


def _tested(verdict: Verdict, decided: Comparison) -> str:
    """Return `The run tests 4 checkpoints against steps 100 to 500 (p = 3e-09, level 2e-06)`."""
    newest = count_text(len(decided.pooled_steps), "checkpoint")
    level = p_value_text(verdict.alpha_test).replace("p", "level", 1)
    against = steps_text(decided.baseline_steps)
    return f"The run tests {newest} against {against} ({p_value_text(shown_p(decided)[0])}, {level})"
