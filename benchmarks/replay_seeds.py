"""How far runs of one configuration differ from seed to seed, beside what one run alone shows of its noise.

    python -m benchmarks.replay_seeds [--data ../shared/data/seed_repeats]

One row per configuration that was run ten times or more (modded-nanogpt, MLPerf 4.0). All are evaluation losses, on
which no test of a score can be replayed; what the engine rests on can: the second differences of a curve. The last line
is `seed_over_jitter=...`, the median over the rows with ten evaluations or more.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tracker.domain.scores.matrix import FloatArray

FILES = ("modded_nanogpt/val_loss.csv.gz", "mlperf_v4.0/series.csv.gz")
DATA = Path(__file__).parent.parent.parent / "shared" / "data" / "seed_repeats"

MIN_RUNS, MIN_EVALUATIONS, MANY_EVALUATIONS = 10, 5, 10

Curves = dict[str, dict[int, float]]
"""Loss by step, of each run of one configuration."""


@dataclass(frozen=True, kw_only=True)
class SeedNoise:
    """Standard deviations in units of the loss, over the last two thirds of the evaluations."""

    runs: int
    evaluations: int
    seeds: float
    """Between runs, at one step; median over steps."""
    jitter: float
    """From evaluation to evaluation within a run, the mean curve of all runs removed: sqrt(mean c^2 / 6)."""
    jitter_of_one: float
    """The same with the curve left in: all that one run can know."""
    persistence: float
    """Correlation of a run's distance from the mean curve with that at the evaluation before."""


def seed_noise(losses: FloatArray) -> SeedNoise:
    """Return the noise of `losses`, shape (runs, evaluations), in order of steps; at least 2 runs, 5 evaluations."""
    runs, evaluations = losses.shape
    late = losses[:, evaluations // 3 :]
    distance = late - late.mean(axis=0)
    jitter2 = _jitter2(distance) * runs / (runs - 1)
    return SeedNoise(
        runs=runs,
        evaluations=evaluations,
        seeds=float(np.median(late.std(axis=0, ddof=1))),
        jitter=float(np.sqrt(jitter2)),
        jitter_of_one=float(np.sqrt(_jitter2(late))),
        persistence=float(np.corrcoef(distance[:, :-1].ravel(), distance[:, 1:].ravel())[0, 1]),
    )


def configurations(data: Path) -> Iterator[tuple[str, FloatArray]]:
    """Yield name and losses, shape (runs, evaluations), of every configuration that was run often enough."""
    for name, curves in {**_nanogpt(data / FILES[0]), **_mlperf(data / FILES[1])}.items():
        usual = Counter(tuple(sorted(curve)) for curve in curves.values()).most_common(1)[0][0]
        together = [curve for curve in curves.values() if set(usual) <= set(curve)]
        steps = sorted(set.intersection(*(set(curve) for curve in together)))
        if len(together) >= MIN_RUNS and len(steps) >= MIN_EVALUATIONS:
            yield name, np.array([[curve[step] for step in steps] for curve in together])


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.replay_seeds",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--data", type=Path, default=DATA)
    data = parser.parse_args().data
    missing = [str(data / file) for file in FILES if not (data / file).exists()]
    if missing:
        sys.exit(f"no repeated runs to read: {', '.join(missing)} missing; --data FOLDER says where they are")
    print("| configuration | runs | evaluations | sd of seeds | jitter | jitter as one run shows it | persistence |")
    print("|---|---|---|---|---|---|---|")
    ratios = []
    for name, losses in configurations(data):
        n = seed_noise(losses)
        cells = f"{n.seeds:.4f} | {n.jitter:.4f} | {n.jitter_of_one:.4f} | {n.persistence:.2f}"
        print(f"| {name} | {n.runs} | {n.evaluations} | {cells} |")
        if n.evaluations >= MANY_EVALUATIONS:
            ratios.append(n.seeds / n.jitter)
    print(f"\nseed_over_jitter={np.median(ratios):.1f}")


# --- private


def _jitter2(curves: FloatArray) -> float:
    bends = curves[:, :-2] - 2 * curves[:, 1:-1] + curves[:, 2:]
    return float((bends**2).mean() / 6)


def _nanogpt(path: Path) -> dict[str, Curves]:
    found: dict[str, Curves] = defaultdict(lambda: defaultdict(dict))
    with gzip.open(path, "rt", newline="") as lines:
        for row in csv.DictReader(lines):
            found[row["record"]][row["run_id"]][int(row["step"])] = float(row["value"])
    return found


def _mlperf(path: Path) -> dict[str, Curves]:
    found: dict[str, Curves] = defaultdict(lambda: defaultdict(dict))
    with gzip.open(path, "rt", newline="") as lines:
        for row in csv.DictReader(lines):
            if row["key"] == "eval_accuracy":  # its name; it is a loss
                name = f"MLPerf {row['benchmark']}, {row['submitter']} {row['system']}"
                found[name][row["run"]][int(float(row["samples_or_step"]))] = float(row["value"])
    return found


if __name__ == "__main__":
    main()
