"""Many runs of many cases, each shown to all detectors at once, on several processes."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from benchmarks.verdicts import detector
from benchmarks.verdicts.peers import peers
from benchmarks.verdicts.scoring import RunScore, score_run
from benchmarks.verdicts.series import CHECKPOINTS, PLANTS, SIZES, TRENDS, Case, simulate
from benchmarks.verdicts.view import Detector, View

NULLS = {
    "pure": tuple(Case(world="pure", trend=trend) for trend in TRENDS),
    "real_plateau": (Case(world="real", trend="plateau"),),
    "real_improve": (Case(world="real", trend="improve"),),
    "rough": tuple(Case(world="rough", trend=trend) for trend in TRENDS),
}
"""Kinds of healthy runs; where there are two cases, runs take turns."""

Results = dict[str, dict[str, list[RunScore]]]
"""Of each kind of run (a key of NULLS or PLANTS) and detector: one score a run."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """One run to simulate."""

    kind: str
    case: Case
    seed: int
    detectors: tuple[str, ...]
    sizes: tuple[int, ...] = SIZES


def detectors() -> list[Detector]:
    """Return all detectors, fresh, ours first."""
    return [*detector.make(), *peers()]


def plan(null: int, power: int, names: tuple[str, ...], first_seed: int) -> list[Job]:
    """Return the jobs of `null` healthy runs of each kind and `power` runs of each plant, in mixed order.

    No two kinds share a seed: what is rare in one must not be rare in all.
    """
    kinds = [(kind, cases, null) for kind, cases in NULLS.items()]
    kinds += [(name, (Case(world="real", trend="improve", plant=name),), power) for name in PLANTS]
    jobs = [
        Job(kind=kind, case=cases[i % len(cases)], seed=first_seed + 1_000_000 * number + i, detectors=names)
        for number, (kind, cases, runs) in enumerate(kinds)
        for i in range(runs)
    ]
    order = np.random.default_rng(0).permutation(len(jobs))
    return [jobs[i] for i in order]  # the time left is foreseeable when quick and slow ones are mixed


def run_job(job: Job) -> dict[str, RunScore]:
    """Simulate one run and return the score of each of its detectors."""
    series = simulate(job.seed, job.case, job.sizes)
    view = View(series)
    chosen = [d for d in detectors() if d.name in job.detectors]
    flags = {d.name: np.zeros((CHECKPOINTS, view.K), dtype=bool) for d in chosen}
    for d in chosen:
        d.reset(view.meta())
    for t in range(CHECKPOINTS):
        view.at(t)
        for d in chosen:
            flags[d.name][t] = d.step(view)
    horizon = PLANTS[job.case.plant].horizon if job.case.plant else 0
    return {name: score_run(f, series.onset, view.n, horizon) for name, f in flags.items()}


def run_all(jobs: list[Job], procs: int) -> Iterator[tuple[Job, dict[str, RunScore]]]:
    """Run all jobs on `procs` processes and yield each as it is done."""
    os.environ |= dict.fromkeys(
        ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"
    )  # the processes share the cores already
    with multiprocessing.get_context("spawn").Pool(procs) as pool:
        yield from pool.imap_unordered(_numbered, jobs)


# --- private


def _numbered(job: Job) -> tuple[Job, dict[str, RunScore]]:
    return job, run_job(job)
