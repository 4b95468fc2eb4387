"""What asking a part of each benchmark first costs in what is found, and what it saves: simulated runs, both ways.

    python -m benchmarks.screening [--null 100] [--power 40] [--samples 250 --share 0.08 --every 50 --first 14]

Every run is watched twice on the same answers, with everything asked and with screens. Prints one row for each kind of
run: healthy runs with a false alarm, losses found, and the share of the samples that was not asked. With `--out FILE`
runs are kept there, and those that are there already are not made again: `--seconds` cuts a long campaign into short
ones. What differs between both ways is printed with its standard error: by runs, each of which is watched both ways.
The last line is `power_full=... power_screen=... fwer_full=... fwer_screen=... saved=...`.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np
from scipy.special import betaincinv

from benchmarks.verdicts.campaign import Job, plan
from benchmarks.verdicts.scoring import score_run
from benchmarks.verdicts.screened import watch
from benchmarks.verdicts.series import CHECKPOINTS, PLANTS, simulate
from eval_jobs.types import Screen
from tracker.domain.verdicts.screening import Screening

SEED = 4_000_000
SIZES = (100, 500, 500, 1319, 1319, 14042)
"""Of the benchmarks of a run. Each size has its losses once."""
WAYS = ("full", "screen")


@dataclass(frozen=True, kw_only=True)
class Run:
    """One simulated run, watched both ways."""

    kind: str
    seed: int
    false: dict[str, bool]
    """By way: whether there was any false alarm."""
    delays: dict[str, dict[str, int | None]]
    """By way and size of the benchmark: checkpoints from the loss to the alarm; None: not found in time."""
    asked: float
    loads: int
    errors: list[float]
    """Of each benchmark: mean of estimated - full score over the screened results."""
    covered: float
    """Share of these with the full score inside the interval."""


def main() -> None:
    args = _arguments()
    screening = Screening(screen=Screen(samples=args.samples, share=args.share), every=args.every, first=args.first)
    known = {(run.kind, run.seed): run for run in _read(args.out)}
    jobs = plan(args.null, args.power, (), args.seed)
    missing = [job for job in jobs if (job.kind, job.seed) not in known]
    for run in _made(missing, screening, args.procs, time.monotonic() + args.seconds):
        known[run.kind, run.seed] = run
        if args.out is not None:
            with args.out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(run)) + "\n")
    runs = [known[job.kind, job.seed] for job in jobs if (job.kind, job.seed) in known]
    print(f"{len(runs)} of {len(jobs)} runs, {screening}\n")
    print(table(runs))
    print(summary(runs))


def one_run(job: Job, screening: Screening) -> Run:
    """Simulate one run and watch it both ways."""
    series = simulate(job.seed, job.case, SIZES)
    horizon = PLANTS[job.case.plant].horizon if job.case.plant else 0
    onsets = series.onset[series.onset < CHECKPOINTS]
    # The first checkpoints are whole in both ways, and nothing is found after the last horizon.
    end = min(CHECKPOINTS, int(onsets.max()) + horizon) if onsets.size else CHECKPOINTS
    begin = int(onsets.min()) if onsets.size else screening.first
    watched = {
        "full": watch(series, None, range(begin, end)),
        "screen": watch(series, screening, range(screening.first, end)),
    }
    scores = {way: score_run(w.flags, series.onset, np.array(SIZES), horizon) for way, w in watched.items()}
    return Run(
        kind=job.kind,
        seed=job.seed,
        false={way: score.false_flags > 0 for way, score in scores.items()},
        delays={way: {str(n): delay for n, delay in score.delays.items()} for way, score in scores.items()},
        asked=watched["screen"].asked,
        loads=watched["screen"].loads,
        errors=[one.error for one in watched["screen"].estimates],
        covered=float(np.mean([one.covered for one in watched["screen"].estimates])),
    )


def table(runs: Sequence[Run]) -> str:
    """Return one Markdown row for each kind of run, and of loss and size."""
    lines = ["| | full | screen | difference, 95 % | not asked | loaded again |", "|---|---|---|---|---|---|"]
    for kind in dict.fromkeys(sorted((run.kind for run in runs), key=lambda kind: (kind in PLANTS, kind))):
        own = [run for run in runs if run.kind == kind]
        saved, loads = 1 - np.mean([run.asked for run in own]), np.mean([run.loads for run in own])
        cells = {f"FWER {kind}": [(run.false["full"], run.false["screen"]) for run in own]}
        if kind in PLANTS:
            sizes = own[0].delays["full"]
            cells = {f"{kind} n={n}": [_found(run, n) for run in own] for n in sizes}
        for name, pairs in cells.items():
            lines.append(f"| {name} | {_row(pairs)} | {100 * saved:.0f} % | {loads:.0f} |")
    return "\n".join(lines)


def summary(runs: Sequence[Run]) -> str:
    """Return the last line: means over all losses and sizes, and over all healthy runs."""
    losses = [pair for run in runs if run.kind in PLANTS for pair in _of_sizes(run)]
    healthy = [(run.false["full"], run.false["screen"]) for run in runs if run.kind not in PLANTS]
    by_run = [[a - b for a, b in _of_sizes(run)] for run in runs if run.kind in PLANTS]
    power, fwer = (np.mean(pairs, axis=0) if pairs else np.full(2, math.nan) for pairs in (losses, healthy))
    saved = 1 - np.mean([run.asked for run in runs if run.kind not in PLANTS])
    print(f"\npower lost: {_change([float(np.mean(differences)) for differences in by_run])}")
    print(f"FWER gained: {_change([float(b) - float(a) for a, b in healthy])}")
    print(f"FWER {_share([a for a, _ in healthy])} full, {_share([b for _, b in healthy])} screen")
    errors = [100 * error for run in runs if run.kind not in PLANTS for error in run.errors]
    covered = np.mean([run.covered for run in runs if run.kind not in PLANTS])
    print(
        f"estimated - full score in points, mean of {len(errors)} benchmarks: {_change(errors)}; {covered:.3f} covered"
    )
    return (
        f"power_full={power[0]:.3f} power_screen={power[1]:.3f} fwer_full={fwer[0]:.3f} fwer_screen={fwer[1]:.3f} "
        f"saved={saved:.3f}"
    )


# --- private


def _of_sizes(run: Run) -> list[tuple[bool, bool]]:
    return [_found(run, n) for n in run.delays["full"]]


def _found(run: Run, size: str) -> tuple[bool, bool]:
    full, screen = (run.delays[way][size] is not None for way in WAYS)
    return full, screen


def _row(pairs: Sequence[tuple[bool, bool]]) -> str:
    full, screen = (100 * share for share in np.mean(pairs, axis=0))
    low, high = _interval([float(b) - float(a) for a, b in pairs])
    return f"{full:.0f} | {screen:.0f} | {screen - full:+.0f} ({100 * low:+.0f} to {100 * high:+.0f})"


def _interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % interval of a mean by the normal distribution."""
    if len(values) < 2:
        return math.nan, math.nan
    half = 1.96 * float(np.std(values, ddof=1)) / math.sqrt(len(values))
    return float(np.mean(values)) - half, float(np.mean(values)) + half


def _change(values: Sequence[float]) -> str:
    """Return a mean over runs with its standard error and its 95 % interval."""
    low, high = _interval(values)
    return (
        f"{np.mean(values):.4f}, standard error {(high - low) / 3.92:.4f} ({low:.4f} to {high:.4f}), {len(values)} runs"
    )


def _share(flags: Sequence[bool]) -> str:
    k, n = sum(flags), len(flags)
    low = float(betaincinv(k, n - k + 1, 0.025)) if k else 0.0
    high = float(betaincinv(k + 1, n - k, 0.975)) if k < n else 1.0
    return f"{k}/{n} ({100 * low:.1f} to {100 * high:.1f} %)"


def _made(jobs: Sequence[Job], screening: Screening, procs: int, until_s: float) -> Iterable[Run]:
    os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    with multiprocessing.get_context("spawn").Pool(procs) as pool:
        for run in pool.imap_unordered(partial(one_run, screening=screening), jobs):
            yield run
            if time.monotonic() > until_s:
                return


def _read(path: Path | None) -> Iterable[Run]:
    if path is not None and path.is_file():
        with path.open(encoding="utf-8") as lines:
            yield from (Run(**json.loads(line)) for line in lines)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.screening", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--null", type=int, default=100, help="healthy runs of each kind")
    parser.add_argument("--power", type=int, default=40, help="runs with each planted loss")
    parser.add_argument("--samples", type=int, default=250)
    parser.add_argument("--share", type=float, default=0.08)
    parser.add_argument("--every", type=int, default=50)
    parser.add_argument("--first", type=int, default=14)
    parser.add_argument("--procs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--seconds", type=float, default=math.inf, help="stop after so long")
    parser.add_argument("--out", type=Path, help="file of finished runs, of one setting")
    return parser.parse_args()


if __name__ == "__main__":
    main()
