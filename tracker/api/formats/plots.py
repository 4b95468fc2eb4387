"""Plots of results: scores with their verdicts, what was forgotten, and latency. Nothing is shown or saved."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from numpy import nanmin

from eval_jobs.errors import ConfigError
from tracker.domain.overview.run import SYMBOLS
from tracker.domain.records.policy import Phase
from tracker.domain.records.types import WORSE, VerdictWord

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D
    from pandas import DataFrame

_MARKS = {
    VerdictWord.FORGOTTEN: "v",
    VerdictWord.REGRESSED: "v",
    VerdictWord.BELOW_GUESSING: "v",
    VerdictWord.SUSPECT: "1",
    VerdictWord.RECOVERED: "2",
    VerdictWord.TRANSIENT: "2",
    VerdictWord.IMPROVED: "^",
    VerdictWord.MISSING: "x",
    VerdictWord.INCOMPARABLE: "x",
}
"""Words that are more than "nothing was found"."""
_SERIES = 20
"""Lines that are still told apart."""


def scores_plot(scores: DataFrame, verdicts: DataFrame, phases: Iterable[Phase], ax: Axes | None) -> Axes:
    """Draw a line for each run and benchmark, with marks for verdicts and shaded phases."""
    axes = _axes(ax)
    found = [(names, one) for names, one in _lines(scores, ("run", "benchmark")) if one["score"].notna().any()]
    _demand_few(len(found), "choose runs and a benchmark: project[RUN].plot_scores(BENCHMARK)")
    shown: set[str] = set()
    for (run, benchmark), one in found:
        label = benchmark if scores["run"].nunique() == 1 else f"{run}: {benchmark}"
        (line,) = axes.plot(one["step"], one["score"], marker=".", linewidth=1, label=label)
        same = verdicts[(verdicts["run"] == run) & (verdicts["benchmark"] == benchmark)]
        for word in _MARKS:
            at = same[(same["word"] == word) & (same["subset"] == "") & (same["measure"] == "score")]
            if len(at):
                _mark(axes, at, word, line, is_new=word not in shown)
                shown.add(word)
    _shade(axes, phases)
    axes.set(xlabel="step", ylabel="score", title=_title("Scores", scores))
    axes.legend(fontsize="small", loc="upper center", bbox_to_anchor=(0.5, -0.13), ncols=4)
    return axes


def forgetting_plot(matrix: DataFrame, run: str, ax: Axes | None) -> Axes:
    """Draw the change from the best score so far, benchmarks by step."""
    axes = _axes(ax)
    changes = matrix.to_numpy(dtype="float64")
    lowest = min(-0.01, float(nanmin(changes)))
    image = axes.pcolormesh(changes, cmap="RdBu", vmin=lowest, vmax=-lowest)
    axes.set_yticks([row + 0.5 for row in range(len(matrix))], labels=list(matrix.index))
    every = max(1, len(matrix.columns) // 10)
    ticks = range(0, len(matrix.columns), every)
    axes.set_xticks([column + 0.5 for column in ticks], labels=[str(matrix.columns[column]) for column in ticks])
    axes.invert_yaxis()
    axes.set(xlabel="step", title=f"Change from the best score so far: {run}")
    axes.figure.colorbar(image, ax=axes, label="score")
    return axes


def latency_plot(latency: DataFrame, ax: Axes | None) -> Axes:
    """Draw median and 95th percentile of the time to the first token, for each run and load."""
    axes = _axes(ax)
    found = list(_lines(latency, ("run", "load")))
    _demand_few(len(found), "choose runs: project[RUN].plot_latency()")
    for (run, load), one in found:
        label = load if latency["run"].nunique() == 1 else f"{run}: {load}"
        (line,) = axes.plot(one["step"], one["ttft_p50_ms"], marker=".", linewidth=1, label=f"{label}, median")
        axes.plot(
            one["step"],
            one["ttft_p95_ms"],
            linestyle="--",
            linewidth=1,
            color=line.get_color(),
            label=f"{label}, 95th percentile",
        )
    axes.set(xlabel="step", ylabel="time to the first token, ms", title=_title("Latency", latency))
    axes.set_ylim(bottom=0)
    axes.legend(fontsize="small")
    return axes


def _axes(ax: Axes | None) -> Axes:
    if ax is not None:
        return ax
    from matplotlib import pyplot  # so that a notebook shows the figure at the end of its cell

    return pyplot.subplots(figsize=(8, 4.5), layout="constrained")[1]


def _lines(frame: DataFrame, names: tuple[str, str]) -> Iterator[tuple[tuple[str, str], DataFrame]]:
    for (first, second), one in frame.groupby(list(names), observed=True):
        yield (str(first), str(second)), one


def _demand_few(lines: int, hint: str) -> None:
    if lines == 0:
        raise ConfigError("there is nothing to plot yet", hint="evaluate checkpoints with `tracker watch`")
    if lines > _SERIES:
        raise ConfigError(f"{lines} lines cannot be told apart", hint=hint)


def _mark(axes: Axes, at: DataFrame, word: VerdictWord, line: Line2D, *, is_new: bool) -> None:
    """Mark verdicts on their line; those without a score at the bottom."""
    heights, where = at["score"], axes.transData
    if heights.isna().all():
        heights, where = heights.fillna(0.02), axes.get_xaxis_transform()
    axes.plot(
        at["step"],
        heights,
        linestyle="none",
        marker=_MARKS[word],
        fillstyle="none" if word is VerdictWord.REGRESSED else "full",
        markersize=8,
        color="tab:red" if word in WORSE else line.get_color(),
        label=f"{SYMBOLS[word]} {word}" if is_new else None,
        transform=where,
    )


def _shade(axes: Axes, phases: Iterable[Phase]) -> None:
    ordered = sorted(phases, key=lambda phase: phase.from_step)
    right = axes.get_xlim()[1]
    for number, phase in enumerate(ordered):
        end = ordered[number + 1].from_step if number + 1 < len(ordered) else right
        if number % 2:
            axes.axvspan(phase.from_step, end, alpha=0.12, color="tab:gray", linewidth=0)
        axes.annotate(
            f" {phase.name}", (phase.from_step, 1), xycoords=("data", "axes fraction"), va="top", fontsize="small"
        )


def _title(what: str, frame: DataFrame) -> str:
    runs = frame["run"].unique().tolist()
    return f"{what}: {runs[0]}" if len(runs) == 1 else f"{what} of {len(runs)} runs"
