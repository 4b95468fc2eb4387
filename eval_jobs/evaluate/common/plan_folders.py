"""Folders for resuming a plan: `<work_dir>/runs/<plan>/`, shared by all evaluators."""

import logging
import shutil
from pathlib import Path

from eval_jobs.errors import StoreError
from eval_jobs.evaluate.common.task_config import plan_folder
from eval_jobs.host.plan_lock import held_if_free

log = logging.getLogger(__name__)


def lock_path(work_dir: Path, plan_id: str) -> Path:
    """Return the lock file, next to the plan's folder: the folder is deleted while the lock is held."""
    return work_dir / "runs" / f"{plan_folder(plan_id)}.lock"


def kept_plans(work_dir: Path) -> tuple[str, ...]:
    """Return the plans that have a folder."""
    return tuple(sorted(path.name for path in (work_dir / "runs").glob("*") if path.is_dir()))


def forget_plan(work_dir: Path, plan_id: str) -> None:
    """Delete the unfinished or finished evaluations of a plan, unless another process works on them.

    That process needs them, and deletes them itself when it is done.
    """
    if not (work_dir / "runs").is_dir():
        return
    try:
        with held_if_free(lock_path(work_dir, plan_id)) as is_ours:
            if is_ours:
                shutil.rmtree(work_dir / "runs" / plan_folder(plan_id), ignore_errors=True)
    except StoreError as error:  # the results are stored elsewhere; a leftover folder is no reason to stop
        log.warning("cannot delete the evaluation files of plan %s: %s", plan_id, error)
