"""Our verdicts beside the peers' on simulated training runs.

    python -m benchmarks.verdicts [--null 100] [--power 40] [--only tracker,bh] [--sizes 100,500] [--procs 2]
        [--seed N]

Prints one table: the share of healthy runs with a false alarm (%, 95 % interval) in each world, then for each planted
loss and benchmark size the share found (%) and the median delay in checkpoints. The last line is
`fwer_pure=... fwer_real_plateau=... fwer_real_improve=... fwer_rough=...` of the shipped engine. The default seeds
belong to the table in benchmarks/verdicts/RESULTS.md: tune a detector on others.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace

from rich.console import Console
from rich.progress import track

from benchmarks.verdicts.campaign import Results, detectors, plan, run_all
from benchmarks.verdicts.detector import DEFAULT
from benchmarks.verdicts.series import SIZES
from benchmarks.verdicts.table import markdown, summary

PUBLISHED_SEED = 12_000


def main() -> None:
    args = _arguments()
    names = tuple(d.name for d in detectors())
    if args.only:
        unknown = sorted(set(args.only) - set(names))
        if unknown:
            sys.exit(f"--only: no detector {', '.join(unknown)}; there are {', '.join(names)}")
        names = tuple(name for name in names if name in args.only)
    planned = plan(args.null, args.power, names, args.seed)
    jobs = [replace(job, sizes=args.sizes) for job in planned]
    started = time.monotonic()
    results: Results = {}
    done = track(run_all(jobs, args.procs), "simulated runs", len(jobs), console=Console(stderr=True))
    for job, scores in done:
        for name, score in scores.items():
            results.setdefault(job.kind, {}).setdefault(name, []).append(score)
    print(markdown(results, names))
    print(f"\n{args.null} healthy runs a world, {args.power} runs a loss, {time.monotonic() - started:.0f} s")
    if DEFAULT in names:
        print(summary(results, DEFAULT))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.verdicts", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--null", type=int, default=100, help="healthy runs of each kind")
    parser.add_argument("--power", type=int, default=40, help="runs with each planted loss")
    parser.add_argument("--only", type=lambda text: text.split(","), help="these detectors, separated by commas")
    parser.add_argument("--sizes", type=_numbers, default=SIZES, help="samples of each benchmark, separated by commas")
    parser.add_argument("--procs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=PUBLISHED_SEED)
    args = parser.parse_args()
    if args.null < 1 or args.power < 0 or args.procs < 1:
        parser.error("--null and --procs are at least 1, --power at least 0")
    return args


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))


if __name__ == "__main__":
    main()
