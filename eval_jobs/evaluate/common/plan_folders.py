"""Evaluators that run a child, and their folders for resuming a plan: `<work_dir>/runs/<plan>/`."""

import logging
import shutil
from pathlib import Path

from eval_jobs.errors import StoreError
from eval_jobs.evaluate.common.child_process import ChildProcess
from eval_jobs.evaluate.common.task_config import plan_folder
from eval_jobs.host.plan_lock import held_if_free

log = logging.getLogger(__name__)


def lock_path(work_dir: Path, plan_id: str) -> Path:
    """Return the lock file, next to the plan's folder: the folder is deleted while the lock is held."""
    return work_dir / "runs" / f"{plan_folder(plan_id)}.lock"


class ChildEvaluator:
    """Base of the evaluators that run a child process: its folders below `work_dir`, and its end."""

    def __init__(self, work_dir: Path) -> None:
        self.work_dir = work_dir.absolute()
        self._child: ChildProcess | None = None

    def kept(self) -> tuple[str, ...]:
        """Return the plans that have a folder; see the port."""
        return tuple(sorted(path.name for path in (self.work_dir / "runs").glob("*") if path.is_dir()))

    def forget(self, plan_id: str) -> None:
        """Delete the files of a plan, unless another process works on it and deletes them itself; see the port."""
        if not (self.work_dir / "runs").is_dir():
            return
        try:
            with held_if_free(lock_path(self.work_dir, plan_id)) as is_ours:
                if is_ours:
                    shutil.rmtree(self.work_dir / "runs" / plan_folder(plan_id), ignore_errors=True)
        except StoreError as error:  # the results are stored elsewhere; a leftover folder is no reason to stop
            log.warning("cannot delete the evaluation files of plan %s: %s", plan_id, error)

    def close(self) -> None:
        """Stop the child and everything it started. Calling it twice is harmless; evaluating again starts a new one."""
        child, self._child = self._child, None
        if child is not None:
            child.stop()
