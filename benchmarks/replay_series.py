"""The verdicts on published training runs of which only means and standard errors exist: Pythia and BigScience.

    python -m benchmarks.replay_series [--data ../shared/data/checkpoint_evals]

Replays every series checkpoint by checkpoint and prints one table: the standard deviation of z of the newest checkpoint
against the recent ones and against a line through them (1 where the noise model is right), the benchmarks with an
alarm, and the verdicts on LAMBADA and wsc. The last line is `sd_z=...` over the healthy benchmarks of six runs from
step 3,000 on. Words are printed uncapped; without samples the product says `suspect` of a loss at most.
benchmarks/REPLAY.md discusses the table.
"""

from __future__ import annotations

import argparse
import csv
import math
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from eval_jobs.errors import BadData
from eval_jobs.harness.known_tasks import chance_of_task
from tracker.domain.records.types import Baseline, VerdictWord
from tracker.domain.regression.aggregates import AggregateSeries, aggregate_evidence
from tracker.domain.regression.budget import SCORE_SHARE, SUITE, SUITE_SHARE
from tracker.domain.regression.detector import ErrorBudget, Evidence
from tracker.domain.regression.suite import shared_variance, suite_tests
from tracker.domain.scores.matrix import FloatArray
from tracker.domain.verdicts.aggregate_judge import had_something_to_lose
from tracker.domain.verdicts.hypothesis import Thresholds, losses, word_of
from tracker.domain.verdicts.losses.stages import FORGOTTEN_AFTER

FILES = (
    "pythia/pythia_v1_open.csv",
    "bigscience/tr12a-1B3-oscar-en-filtered_agg.csv",
    "bigscience/tr3d-1B3-oscar-checkpoints_agg.csv",
)
DATA = Path(__file__).parent.parent.parent / "shared" / "data" / "checkpoint_evals"

TRAINED_FROM = 3000
"""Pythia's checkpoints at steps 0 to 512 are next to untrained, and nine of ten are closer than all later ones."""

HEADLINE = (
    *(f"pythia-{size}/zero-shot" for size in ("70m", "160m", "410m", "1.4b")),
    "tr12a",
    "tr3d",
)
"""Runs that the last line pools: long ones with many benchmarks, no two of the same model."""

ALPHA = 0.05
THRESHOLDS = Thresholds(min_effect=0.01, equivalence_margin=0.01)

KNOWN_LOSSES = {
    ("pythia-70m/zero-shot", "lambada_openai"),
    ("pythia-70m/zero-shot", "sciq"),
    ("pythia-70m/five-shot", "lambada_openai"),
    ("pythia-70m/five-shot", "sciq"),
    ("pythia-160m/zero-shot", "lambada_openai"),
}
"""By the description of the data: final score more than three reported standard errors below the best one, after step
3,000. All other benchmarks count as healthy, those at chance level and the two broken checkpoints of tr3d included."""

BROKEN = {"tr3d": (19500, 42000)}
"""Checkpoints at which everything that was learned is far below its neighbours (LAMBADA 8, 36, 34 and 39, 27, 39 %)."""

FORGOTTEN_POOLED = 4
"""Newest checkpoints whose mean must show a forgetting too."""

GRAVE = (VerdictWord.FORGOTTEN, VerdictWord.REGRESSED)

COLUMNS = (
    *("run", "checkpoints", "planned", "benchmarks", "sd of z", "without trend"),
    *("alarms", "alarms where nothing was learned", "LAMBADA", "wsc", "all together"),
)

_OF_LINE = 3
"""Checkpoints that show a line."""

Run = Mapping[str, AggregateSeries]
"""Benchmarks of one run, by name."""


@dataclass(frozen=True, kw_only=True)
class Said:
    """The gravest word on a loss of one benchmark, at the first checkpoint at which it was said."""

    word: VerdictWord
    step: int
    p: float
    """The smallest p of "worse" there."""
    learned: bool

    def __str__(self) -> str:
        return f"{self.word} @{self.step}, p {self.p:.0e}" + ("" if self.learned else ", never learned")


@dataclass(frozen=True, kw_only=True)
class Replayed:
    """One run, replayed."""

    benchmarks: int
    checkpoints: int
    z: FloatArray
    """Of the newest checkpoint against the recent ones, healthy benchmarks."""
    z_without_trend: FloatArray
    """The same against a line through the recent ones: a benchmark that is still learned rises."""
    losses: dict[str, Said]
    """Benchmarks with an alarm."""
    together: tuple[int, ...]
    """Steps at which all learned benchmarks together have lost something."""


def read_runs(data: Path) -> dict[str, dict[str, AggregateSeries]]:
    """Return the accuracies of every run by benchmark; what has no standard errors is left out."""
    rows: dict[str, dict[str, list[tuple[int, float, float]]]] = defaultdict(lambda: defaultdict(list))
    for file in FILES:
        with (data / file).open(newline="") as lines:
            for row in csv.DictReader(lines):
                if row["metric"] == "acc":
                    found = rows[row.get("series") or Path(file).name.split("-")[0]][row["task"]]
                    found.append((int(row["step"]), float(row["value"]), float(row["stderr"] or "nan")))
    return {name: dict(_usable(benchmarks)) for name, benchmarks in rows.items()}


def since(run: Run, step: int) -> Run:
    """Return the run as if it had begun at `step`."""
    return {name: _part(series, series.steps >= step) for name, series in run.items()}


def without(run: Run, *steps: int) -> Run:
    """Return the run without some checkpoints."""
    return {name: _part(series, ~np.isin(series.steps, steps)) for name, series in run.items()}


def aggregate_word(newest: Sequence[Sequence[Evidence]], thresholds: Thresholds, *, learned: bool) -> VerdictWord:
    """Return the word by the evidence of the newest checkpoints, oldest first; the last one is not empty."""
    word = word_of(newest[-1], thresholds)
    if word is VerdictWord.REGRESSED and learned and _is_below_peak(newest, thresholds):
        return VerdictWord.FORGOTTEN
    return word


def replay(name: str, run: Run, *, planned: bool = True) -> Replayed:
    """Judge every checkpoint of `run` by what was known at it."""
    steps = sorted({int(step) for series in run.values() for step in series.steps})
    alpha, length = ALPHA * SCORE_SHARE, len(steps) if planned else None
    level = ErrorBudget(alpha=alpha * (1 - SUITE_SHARE), planned=length, benchmarks=len(run))
    of_suite = ErrorBudget(alpha=alpha * SUITE_SHARE, planned=length, benchmarks=1, design=SUITE)
    found = [aggregate_evidence(tuple(run.values()), step, level) for step in steps]
    by_benchmark = dict(zip(run, zip(*found, strict=True), strict=True))
    healthy = [(run[b], e) for b, e in _newest_against_recent(by_benchmark) if (name, b) not in KNOWN_LOSSES]
    said = {b: _said(run[b], steps, tests) for b, tests in by_benchmark.items()}
    return Replayed(
        benchmarks=len(run),
        checkpoints=len(steps),
        z=np.array([e.test.delta / math.sqrt(e.test.variance) for _, e in healthy]),
        z_without_trend=np.array([_against_line(series, e) for series, e in healthy if e.blocks.base.size >= _OF_LINE]),
        losses={b: s for b, s in said.items() if s is not None},
        together=tuple(
            step for t, step in enumerate(steps) if _is_lost_together(run, found[t], of_suite, position=t, step=step)
        ),
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.replay_series",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--data", type=Path, default=DATA)
    data = parser.parse_args().data
    missing = [str(data / file) for file in FILES if not (data / file).exists()]
    if missing:
        sys.exit(f"no published series to replay: {', '.join(missing)} missing; --data FOLDER says where they are")
    print(f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}")
    every_z = []
    for name, run in read_runs(data).items():
        for label, part in _parts(name, run):
            for planned in (True, False):
                found = replay(name, part, planned=planned)
                print(_row(label, found, planned=planned))
                if planned and name in HEADLINE and label == name:
                    every_z.append(found.z)
    print(f"\nsd_z={np.concatenate(every_z).std():.2f}")


# --- private


def _is_below_peak(newest: Sequence[Sequence[Evidence]], thresholds: Thresholds) -> bool:
    below = [
        [e for e in losses(found, thresholds) if e.blocks.baseline is Baseline.PEAK]
        for found in newest[-FORGOTTEN_AFTER:]
    ]
    return len(below) == FORGOTTEN_AFTER and all(below) and any(e.m == FORGOTTEN_POOLED for e in below[-1])


def _usable(benchmarks: Mapping[str, list[tuple[int, float, float]]]) -> Iterator[tuple[str, AggregateSeries]]:
    for name, rows in benchmarks.items():
        steps, means, stderrs = zip(*sorted(rows), strict=True)
        chance = chance_of_task(name)
        try:
            yield (
                name,
                AggregateSeries(steps=np.array(steps), means=np.array(means), stderrs=np.array(stderrs), chance=chance),
            )
        except BadData as problem:
            print(f"{name} is left out: {problem}", file=sys.stderr)


def _parts(name: str, run: Run) -> Iterator[tuple[str, Run]]:
    """Yield the run from step 3,000 on under its own name, and what else of it is worth a row."""
    yield name, since(run, TRAINED_FROM)
    if any(series.steps[0] < TRAINED_FROM for series in run.values()):
        yield f"{name} from step 0", run
    if name in BROKEN:
        yield f"{name} without {BROKEN[name]}", without(run, *BROKEN[name])


def _part(series: AggregateSeries, keep: np.typing.NDArray[np.bool_]) -> AggregateSeries:
    return AggregateSeries(
        steps=series.steps[keep], means=series.means[keep], stderrs=series.stderrs[keep], chance=series.chance
    )


def _is_lost_together(
    run: Run, found: Sequence[tuple[Evidence, ...]], level: ErrorBudget, *, position: int, step: int
) -> bool:
    tests = {name: own for (name, series), own in zip(run.items(), found, strict=True) if own}
    learned = {name: own for name, own in tests.items() if had_something_to_lose(run[name], own)}
    if not learned:
        return False
    earlier = sorted(set.intersection(*({s for s in run[name].steps.tolist() if s < step} for name in learned)))
    means = np.array([run[name].means[np.isin(run[name].steps, earlier)] for name in learned])
    return any(test.is_loss for test in suite_tests(learned, shared_variance(means), level, position))


def _newest_against_recent(
    tests: Mapping[str, Sequence[tuple[Evidence, ...]]],
) -> Iterator[tuple[str, Evidence]]:
    for name, by_step in tests.items():
        for found in by_step:
            for e in found:
                if e.m == 1 and e.blocks.baseline is Baseline.RECENT:
                    yield name, e


def _against_line(series: AggregateSeries, e: Evidence) -> float:
    """Return z of the newest checkpoint against a line over log(1 + step) through those of the recent block."""
    when, newest, base = np.log1p(series.steps.astype(np.float64)), int(e.blocks.new[0]), e.blocks.base
    points = np.column_stack([np.ones(base.size), when[base] - when[newest]])
    weights = np.zeros(series.steps.size)
    weights[newest], weights[base] = 1.0, -np.linalg.pinv(points)[0]  # the line's value at the newest
    (contrast,) = series.contrasts(weights[np.newaxis])
    by_jitter = e.jitter.tau2 * float((weights**2).sum())
    return contrast.delta / math.sqrt(contrast.item_variance + by_jitter)


def _said(series: AggregateSeries, steps: list[int], tests: tuple[tuple[Evidence, ...], ...]) -> Said | None:
    found = []
    for t, step in enumerate(steps):
        newest = tests[max(0, t - FORGOTTEN_AFTER + 1) : t + 1]
        learned = had_something_to_lose(series, tests[t])
        word = aggregate_word(newest, THRESHOLDS, learned=learned) if tests[t] else VerdictWord.FIRST
        if word in GRAVE:
            found.append(Said(word=word, step=step, p=min(e.p_worse for e in tests[t]), learned=learned))
    return min(found, key=lambda said: GRAVE.index(said.word), default=None)


def _row(label: str, found: Replayed, *, planned: bool) -> str:
    def said(*names: str) -> str:
        return next((str(found.losses[name]) for name in names if name in found.losses), "-")

    learned = ", ".join(name for name, s in found.losses.items() if s.learned)
    guessed = ", ".join(name for name, s in found.losses.items() if not s.learned)
    cells = (
        label,
        str(found.checkpoints),
        "yes" if planned else "no",
        str(found.benchmarks),
        f"{found.z.std():.2f}",
        f"{found.z_without_trend.std():.2f}",
        learned or "-",
        guessed or "-",
        said("lambada_openai", "lambada"),
        said("wsc"),
        ", ".join(map(str, found.together)) or "-",
    )
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
