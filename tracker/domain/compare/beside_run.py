"""Why two checkpoints alone may say something else than the run's verdict. Pure."""

from collections.abc import Iterator
from dataclasses import replace

from tracker.domain.compare.view import ComparisonView
from tracker.domain.records.display import change_interval_text, count_text, one_line, p_text, p_value_text, steps_text
from tracker.domain.records.reason_text import reason_text, shown_p
from tracker.domain.records.types import WORSE, Comparison, Report, Verdict, VerdictWord


def with_run(view: ComparisonView, later: Report) -> ComparisonView:
    """Return the comparison with the run's verdicts on its later checkpoint, whose report is `later`."""
    if view.before.run_id != later.run_id:
        return view
    compared = {one.benchmark for one in view.benchmarks}
    return replace(view, run=tuple(verdict for verdict in later.verdicts if verdict.benchmark in compared))


def differences_from_run(view: ComparisonView) -> Iterator[str]:
    """Yield a line for each benchmark that is worse or better in the run and not by the pair alone, or the reverse.

    And for each whose loss in the run is that of the pair: its interval is another one.
    """
    words = {one.benchmark: one.word for one in view.benchmarks}
    for verdict in view.run:
        alone, name = words[verdict.benchmark], one_line(verdict.benchmark)
        if _direction(verdict.word) == _direction(alone) or not verdict.comparisons:
            yield from _of_same_pair(view, verdict, name)
            continue
        of_run = f"{name}: {verdict.word} in the run, {one_line(reason_text(verdict))}"
        yield f"{of_run}. {_tested(verdict, verdict.comparisons[0])}; these two checkpoints alone are {alone}"


def _of_same_pair(view: ComparisonView, verdict: Verdict, name: str) -> Iterator[str]:
    drop = verdict.open_drop
    if drop is None or (drop.baseline_steps, drop.newest_steps) != ((view.before.step,), (view.after.step,)):
        return
    interval = f"95 % CI {change_interval_text(drop.ci_low, drop.ci_high)}"
    yield f"{name}: {interval} in the run, which estimates the noise from all its checkpoints"


def _direction(word: VerdictWord) -> int:
    if word in WORSE:
        return -1
    return int(word is VerdictWord.IMPROVED)


def _tested(verdict: Verdict, decided: Comparison) -> str:
    """Return `The run tests 4 checkpoints against steps 100 to 500 (p = 3e-09, level 2e-06)`."""
    newest = count_text(len(decided.pooled_steps), "checkpoint")
    against = steps_text(decided.baseline_steps)
    p, level = p_value_text(shown_p(decided)[0]), p_text(verdict.alpha_test)
    return f"The run tests {newest} against {against} ({p}, level {level})"
