"""Two made-up runs to compare: `slower` learns every skill one checkpoint later than `forgetting_run`."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from eval_jobs.types import Cost, EvalRecord
from tests.records import FORGETTING_TOML, RUN, forgetting_run
from tests.unit.tracker.domain.judging import scores_of
from tracker.api.opening import open_project
from tracker.domain.compare.runs import RunToCompare

SLOWER = "slower"
COST = Cost(loading_s=2.0, evaluating_s=30.0, probing_s=8.0, input_tokens=4000, output_tokens=900, gpu_s=40.0)


def two_runs(*, samples: int = 40, checkpoints: int = 7) -> tuple[tuple[EvalRecord, ...], tuple[EvalRecord, ...]]:
    """Return the records of both runs; the second one has no first checkpoint and no costs."""
    quick = forgetting_run(samples=samples, checkpoints=checkpoints).records
    slow = forgetting_run(run_id=SLOWER, samples=samples, checkpoints=checkpoints, trouble=False).records
    later = (replace(now, outcomes=before.outcomes) for before, now in pairwise(slow))
    return tuple(replace(record, cost=COST) for record in quick), tuple(later)


def to_compare(records: Sequence[EvalRecord]) -> RunToCompare:
    """Return a run as `run_to_compare` reads it."""
    return RunToCompare(scores=scores_of(records), records=tuple(records))


def project_of_two_runs(folder: Path) -> Path:
    """Store both runs, `tiny-forgetting` and `slower`, in a project in `folder`, and return its configuration."""
    config = folder / "tracker.toml"
    config.write_text(FORGETTING_TOML)
    history = open_project(config).history
    for record in (record for run in two_runs() for record in run):
        history.append(record)
    assert history.runs() == (SLOWER, RUN)
    return config
