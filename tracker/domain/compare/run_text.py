"""Two or more runs side by side -> texts, for terminals and reports. Pure."""

from collections.abc import Iterator, Sequence

from tracker.domain.compare.runs import By, LoadLatency, RunComparison, RunSummary
from tracker.domain.records.display import NOTHING, one_line, span_text

SCOPE = (
    "Each difference is paired over the same samples; up is better. Its 95 % CI covers the choice of the samples, not "
    "the noise of training: another seed gives another curve."
)

Row = tuple[str, tuple[str, ...]]
"""A name, and a cell for each run."""


def summary_rows(runs: Sequence[RunSummary]) -> Iterator[Row]:
    """Yield the evaluated steps, best checkpoint and latency of each run."""
    yield "checkpoints", tuple(str(len(run.steps)) for run in runs)
    yield "steps", tuple(span_text(run.steps) if run.steps else NOTHING for run in runs)
    yield "best checkpoint", tuple(NOTHING if run.best_step is None else f"step {run.best_step}" for run in runs)
    for load in dict.fromkeys(one.load for run in runs for one in run.latency):
        known = [{one.load: one for one in run.latency}.get(load, _UNKNOWN) for run in runs]
        yield f"TTFT median, load {one_line(load)}", tuple(_ms(one.ttft_ms) for one in known)
        yield f"TPOT median, load {one_line(load)}", tuple(_ms(one.tpot_ms) for one in known)


def remarks(found: RunComparison) -> Iterator[str]:
    """Yield what cannot be compared, and why."""
    for refused in found.refused:
        yield f"cannot compare {one_line(refused.benchmark)}: {one_line('; '.join(refused.reasons))}"
    for one in found.benchmarks:
        if one.mean is None:
            what = "equal steps" if found.by is By.STEP else "equal numbers of tokens"
            yield f"cannot pair {one_line(one.benchmark)}: no results at {what}"
    if not found.is_latency_alike:
        runs = f"{one_line(found.a.run_id)} and {one_line(found.b.run_id)}"
        yield f"cannot compare latency: {runs} differ in loads, machine, engine or serving settings"


# --- private

_UNKNOWN = LoadLatency(load="", ttft_ms=None, tpot_ms=None)


def _ms(time_ms: float | None) -> str:
    if time_ms is None:
        return NOTHING
    return f"{time_ms:.1f} ms"
