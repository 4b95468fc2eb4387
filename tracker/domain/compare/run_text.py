"""Two or more runs side by side -> texts, for terminals and reports. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tracker.domain.compare.run_pairs import PairedDifference, ScoreAt
from tracker.domain.compare.runs import BenchmarkOfRuns, By, LoadLatency, RunComparison, RunSummary, SideBySide
from tracker.domain.records.display import NOTHING, one_line, score_text, signed_text, span_text, tokens_text

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


def summary_rows(runs: Sequence[RunSummary]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the evaluated steps, best checkpoint and latency of each run."""
    yield "checkpoints", tuple(str(len(run.steps)) for run in runs)
    yield "steps", tuple(span_text(run.steps) if run.steps else NOTHING for run in runs)
    yield "best checkpoint", tuple(NOTHING if run.best_step is None else f"step {run.best_step}" for run in runs)
    for load in dict.fromkeys(one.load for run in runs for one in run.latency):
        known = [{one.load: one for one in run.latency}.get(load, _UNKNOWN) for run in runs]
        yield f"TTFT median, load {one_line(load)}", tuple(_ms(one.ttft_ms) for one in known)
        yield f"TPOT median, load {one_line(load)}", tuple(_ms(one.tpot_ms) for one in known)


def checkpoint_rows(pairs: Sequence[BenchmarkOfRuns], by: By = By.STEP) -> tuple[Row, ...]:
    """Return the rows of one benchmark of runs that were compared with the same run, ascending."""
    of_pairs = [{_place(row, by): row for row in pair.rows} for pair in pairs]
    rows = []
    for place in sorted({place for of_pair in of_pairs for place in of_pair}):
        name = str(place) if by is By.STEP else tokens_text(round(place))
        rows.append(_row(name, [of_pair.get(place, _NO_SCORES) for of_pair in of_pairs], has_steps=by is By.STEP))
    return tuple(rows)


def total_rows(pairs: Sequence[BenchmarkOfRuns]) -> tuple[Row, Row]:
    """Return the mean difference over all checkpoints, and the best checkpoint of each run."""
    means = [cell for pair in pairs for cell in (_EMPTY, _difference(pair.mean))]
    best = _row("best", [pair.best for pair in pairs], has_steps=False)
    return Row(name="mean", cells=(_EMPTY, *means)), best


def remarks(found: RunComparison) -> Iterator[str]:
    """Yield what cannot be compared, and why."""
    for refused in found.refused:
        yield f"cannot compare {one_line(refused.benchmark)}: {one_line('; '.join(refused.reasons))}"
    for one in found.benchmarks:
        if one.mean is None:
            what = "steps" if found.by is By.STEP else "numbers of tokens"
            yield f"cannot pair {one_line(one.benchmark)}: no results at equal {what} in {one_line(found.b.run_id)}"
    if not found.is_latency_alike:
        runs = f"{one_line(found.a.run_id)} and {one_line(found.b.run_id)}"
        yield f"cannot compare latency: {runs} differ in loads, machine, engine or serving settings"


# --- private

_EMPTY = Cell(text="")
_NO_SCORES = SideBySide(a=None, b=None, difference=None)
_UNKNOWN = LoadLatency(load="", ttft_ms=None, tpot_ms=None)


def _place(row: SideBySide, by: By) -> float:
    known = row.a or row.b
    if known is None:
        return 0
    if by is By.STEP:
        return known.step
    return known.tokens or 0


def _row(name: str, at: Sequence[SideBySide], *, has_steps: bool) -> Row:
    first = next((row.a for row in at if row.a is not None), None)
    others = [cell for row in at for cell in (_score(row.b, has_step=has_steps), _difference(row.difference))]
    return Row(name=name, cells=(_score(first, has_step=has_steps), *others))


def _score(one: ScoreAt | None, *, has_step: bool) -> Cell:
    if one is None:
        return Cell(text=NOTHING)
    return Cell(text=score_text(one.score), note="" if has_step else f"step {one.step}")


def _difference(found: PairedDifference | None) -> Cell:
    if found is None:
        return Cell(text=NOTHING)
    interval = f"{signed_text(found.ci_low)} to {signed_text(found.ci_high)}"
    return Cell(text=signed_text(found.delta), note=interval)


def _ms(time_ms: float | None) -> str:
    if time_ms is None:
        return NOTHING
    return f"{time_ms:.1f} ms"
