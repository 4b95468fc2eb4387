"""The table of a campaign, as Markdown that also reads well in a terminal: one column a detector."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.verdicts.campaign import NULLS, Results
from benchmarks.verdicts.scoring import RunScore, detection, false_alarms, false_flags
from benchmarks.verdicts.series import PLANTS

Row = tuple[str, ...]


def markdown(results: Results, names: Sequence[str]) -> str:
    """Return healthy runs with a false alarm in % (95 % interval), and losses found in % (median delay)."""
    rows = [("", *names)]
    rows += [(f"FWER {kind}", *(_fwer(results[kind][name]) for name in names)) for kind in NULLS]
    rows.append(("flags per 1000, real", *(_flags(results, name) for name in names)))
    for plant in PLANTS:
        rows += _plant_rows(plant, results, names)
    return aligned(rows)


def summary(results: Results, name: str) -> str:
    """Return the last line: one detector's false alarm rate in each kind of healthy run."""
    return " ".join(f"fwer_{kind}={false_alarms(results[kind][name]).share:.3f}" for kind in NULLS)


def aligned(rows: Sequence[Row]) -> str:
    """Return a Markdown table with columns of one width; the first row is its head."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["| " + " | ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) + " |" for row in rows]
    lines.insert(1, "|" + "|".join("-" * (w + 2) for w in widths) + "|")
    return "\n".join(lines)


# --- private


def _plant_rows(plant: str, results: Results, names: Sequence[str]) -> list[Row]:
    by_name = results.get(plant, {})
    scores = next(iter(by_name.values()), [])
    sizes = sorted(scores[0].delays) if scores else []
    return [(f"{plant} n={n}", *(_power(by_name[name], n) for name in names)) for n in sizes]


def _fwer(scores: Sequence[RunScore]) -> str:
    rate = false_alarms(scores)
    share, low, high = (round(100 * x, 1) for x in (rate.share, *rate.interval()))
    return f"{share:g} ({low:g}-{high:g})"


def _flags(results: Results, name: str) -> str:
    rate = false_flags(results["real_plateau"][name] + results["real_improve"][name])
    return f"{1000 * rate.share:.2f}"


def _power(scores: Sequence[RunScore], size: int) -> str:
    found = detection(scores, size)
    delay = "" if found.median_delay is None else f" ({found.median_delay:.0f})"
    return f"{100 * found.power.share:.0f}{delay}"
