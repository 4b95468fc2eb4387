"""Two or more runs side by side -> texts, for terminals and reports. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from eval_jobs.types import Cost
from tracker.domain.compare.run_pairs import PairedDifference, ScoreAt
from tracker.domain.compare.runs import BenchmarkOfRuns, By, RunComparison, RunSummary, SideBySide, position_of
from tracker.domain.records import display
from tracker.domain.records.reason_text import neutral_lines

SCOPE = (
    "Each difference is paired over the same samples; up is better. Its 95 % CI covers the choice of the samples, not "
    "the noise of training: another seed gives another curve."
)


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A score or a difference."""

    text: str
    note: str = ""
    """Step of the score if the row does not have it, or the interval of the difference."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """All runs at one checkpoint."""

    name: str
    cells: tuple[Cell, ...]
    """Score of the first run, then of every other run its score and its difference from the first."""


def summary_rows(runs: Sequence[RunSummary]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return steps, best checkpoint, latency and cost: the name of each, and a cell for each run."""
    rows: dict[str, list[str]] = {}
    for at, run in enumerate(runs):
        for name, text in _facts(run):
            rows.setdefault(name, [display.NOTHING] * len(runs))[at] = text
    return tuple((name, tuple(cells)) for name, cells in rows.items())


def checkpoint_rows(pairs: Sequence[BenchmarkOfRuns], by: By = By.STEP) -> tuple[Row, ...]:
    """Return the rows of one benchmark of runs that were compared with the same run, ascending."""
    rows: dict[float, list[SideBySide]] = {}
    for at, pair in enumerate(pairs):
        for row in pair.rows:
            rows.setdefault(_place(row, by), [_NO_SCORES] * len(pairs))[at] = row
    if by is By.TOKENS:
        return tuple(_row(display.tokens_text(round(place)), rows[place], has_steps=False) for place in sorted(rows))
    return tuple(_row(str(place), rows[place]) for place in sorted(rows))


def total_rows(pairs: Sequence[BenchmarkOfRuns]) -> tuple[Row, Row]:
    """Return the mean difference over all checkpoints, and the best checkpoint of each run."""
    means = [_EMPTY]
    for pair in pairs:
        means += [_EMPTY, _difference(pair.mean)]
    best = _row("best", [pair.best for pair in pairs], has_steps=False)
    return Row(name="mean", cells=tuple(means)), best


def remarks(found: RunComparison) -> Iterator[str]:
    """Yield what cannot be compared, and why, and what differs without effect."""
    b = display.one_line(found.b.run_id)
    for refused in found.refused:
        yield f"cannot compare {display.one_line(refused.benchmark)}: {display.one_line('; '.join(refused.reasons))}"
    for one in found.benchmarks:
        if one.mean is None:
            yield f"cannot pair {display.one_line(one.benchmark)}: no equal checkpoints by {found.by} in {b}"
    for line in neutral_lines(found.neutral):
        yield f"{display.one_line(line)} ({b}, {display.one_line(found.a.run_id)})"
    if not found.is_latency_alike:
        runs = f"{display.one_line(found.a.run_id)} and {b}"
        yield f"cannot compare latency: {runs} differ in loads, machine, engine or serving settings"


_EMPTY = Cell(text="")
_NO_SCORES = SideBySide(a=None, b=None, difference=None)


def _facts(run: RunSummary) -> Iterator[tuple[str, str]]:
    yield "checkpoints", str(len(run.steps))
    if run.steps:
        yield "steps", display.span_text(run.steps)
    if run.best_step is not None:
        yield "best checkpoint", f"step {run.best_step}"
    for one in run.latency:
        for name, time_ms in (("TTFT", one.ttft_ms), ("TPOT", one.tpot_ms)):
            if time_ms is not None:
                yield f"{name} median, load {display.one_line(one.load)}", f"{time_ms:.1f} ms"
    if run.cost is not None:
        yield from _cost_facts(run.cost)


def _cost_facts(cost: Cost) -> Iterator[tuple[str, str]]:
    for name, seconds in (("evaluation time", cost.wall_s), ("GPU time", cost.gpu_s), ("CPU time", cost.cpu_s)):
        if seconds is not None:
            yield name, display.duration_text(seconds)
    for name, count in (("tokens in", cost.input_tokens), ("tokens out", cost.output_tokens)):
        if count is not None:
            yield name, display.tokens_text(count)


def _place(row: SideBySide, by: By) -> float:
    known = row.a or row.b
    return 0 if known is None else position_of(known, by)


def _row(name: str, at: Sequence[SideBySide], *, has_steps: bool = True) -> Row:
    first: ScoreAt | None = None
    others: list[Cell] = []
    for row in at:
        first = first or row.a
        others += [_score(row.b, has_step=has_steps), _difference(row.difference)]
    return Row(name=name, cells=(_score(first, has_step=has_steps), *others))


def _score(one: ScoreAt | None, *, has_step: bool) -> Cell:
    if one is None:
        return Cell(text=display.NOTHING)
    if has_step:
        return Cell(text=display.score_text(one.score))
    return Cell(text=display.score_text(one.score), note=f"step {one.step}")


def _difference(found: PairedDifference | None) -> Cell:
    if found is None:
        return Cell(text=display.NOTHING)
    interval = f"{display.signed_text(found.ci_low)} to {display.signed_text(found.ci_high)}"
    return Cell(text=display.signed_text(found.delta), note=interval)
