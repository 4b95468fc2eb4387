"""Where evaluators keep what a plan needs for resuming: `<work_dir>/runs/<plan>/`, one folder for all of them."""

import logging
import shutil
from pathlib import Path

from eval_jobs.errors import StoreError
from eval_jobs.evaluate.common.task_config import plan_folder
from eval_jobs.host.plan_lock import held_if_free

log = logging.getLogger(__name__)


def lock_path(work_dir: Path, plan_id: str) -> Path:
    """Return a file beside the plan's folder, not in it: the folder is deleted under the lock."""
    return work_dir / "runs" / f"{plan_folder(plan_id)}.lock"


def kept_plans(work_dir: Path) -> tuple[str, ...]:
    """Return the plans that have a folder."""
    return tuple(sorted(path.name for path in (work_dir / "runs").glob("*") if path.is_dir()))


def forget_plan(work_dir: Path, plan_id: str) -> None:
    """Delete the half-done or finished evaluations of a plan, unless another process works on them.

    That one needs them, and forgets them itself when it is done.
    """
    if not (work_dir / "runs").is_dir():
        return
    try:
        with held_if_free(lock_path(work_dir, plan_id)) as is_ours:
            if is_ours:
                shutil.rmtree(work_dir / "runs" / plan_folder(plan_id), ignore_errors=True)
    except StoreError as error:  # the results are safe; a folder too many is no reason to stop
        log.warning("cannot delete the evaluation files of plan %s: %s", plan_id, error)
