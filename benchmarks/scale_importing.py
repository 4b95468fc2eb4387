"""Imports a run of many checkpoints of which only means are known, and tells what the first and the last ones took."""

from __future__ import annotations

import itertools
import json
import random
import statistics
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.scale_data import STEPS, write_project
from eval_jobs.host.clock import SystemClock
from tracker.adapters.result_files import ImportRequest, read_results
from tracker.app.commands.importing import JudgedImport, import_results
from tracker.config import load_config
from tracker.domain.imports.records import checkpoints_of
from tracker.wiring.project import Project

BENCHMARKS = 5
_SHARE = 10
"""The first and the last of so many parts of the run are compared."""


@dataclass(frozen=True, kw_only=True)
class ImportTimes:
    """Processor time a checkpoint, in seconds."""

    reading_s: float
    """Of its file."""
    first_s: float
    """To judge and store one of the first tenth of the run; the median."""
    last_s: float
    """One of the last tenth."""


def import_times(folder: Path, *, checkpoints: int) -> ImportTimes:
    """Import so many made-up result files of lm-evaluation-harness into a new project in `folder`."""
    folder.mkdir()
    for index in range(checkpoints):
        _write(folder / "evals", STEPS * (index + 1), ability=0.3 + 0.4 * index / checkpoints)
    project = Project(load_config(write_project(folder)))
    begun = time.process_time()
    found = read_results([folder / "evals"], ImportRequest(), progress=lambda _: None)
    known = checkpoints_of(found.sheets, run_id=project.config.run.name, suite="scale")
    ends = [time.process_time()]

    def taken(_: JudgedImport) -> None:
        ends.append(time.process_time())

    world = project.world()
    try:
        import_results(world, known, clock=SystemClock(), show=taken)
    finally:
        world.source.close()
        world.tracking.close()
    each = [after - before for before, after in itertools.pairwise(ends)]
    part = max(1, checkpoints // _SHARE)
    return ImportTimes(
        reading_s=(ends[0] - begun) / checkpoints,
        first_s=statistics.median(each[:part]),
        last_s=statistics.median(each[-part:]),
    )


# --- private


def _write(folder: Path, step: int, *, ability: float) -> None:
    rng = random.Random(step)  # noqa: S311 - made-up scores
    tasks = [f"task{k}" for k in range(BENCHMARKS)]
    means = {task: min(1.0, max(0.0, rng.gauss(ability, 0.01))) for task in tasks}
    document = {
        "results": {task: {"acc,none": means[task], "acc_stderr,none": 0.01} for task in tasks},
        "configs": {task: {"task": task, "num_fewshot": 0} for task in tasks},
        "versions": dict.fromkeys(tasks, 1.0),
        "n-samples": {task: {"original": 2000, "effective": 2000} for task in tasks},
        "config": {"model": "hf", "model_args": f"pretrained=org/model,revision=step{step}"},
        "date": 1_772_359_200.0 + step,
    }
    place = folder / f"step{step}"
    place.mkdir(parents=True)
    (place / "results.json").write_text(json.dumps(document))
