"""Evaluators that run a child, and their folders for resuming a plan: `<work_dir>/runs/<plan>/`."""

import logging
import os
import shutil
from contextlib import AbstractContextManager
from pathlib import Path

from eval_jobs.errors import StoreError
from eval_jobs.evaluate.common.child_process import ChildProcess
from eval_jobs.evaluate.common.protocol import RetryPolicy
from eval_jobs.evaluate.common.task_config import folder_name
from eval_jobs.host.plan_lock import WAITS, held, held_if_free
from eval_jobs.ports import ShowProgress
from eval_jobs.records.progress import Progress, Stage

log = logging.getLogger(__name__)


class ChildEvaluator:
    """Base of the evaluators that run a child process: its folders below `work_dir`, and its end."""

    def __init__(self, work_dir: Path, *, log_name: str = "", retry_policy: RetryPolicy | None = None) -> None:
        """Set the folder without writing to it.

        `log_name`: of the child's log, which identifies orphans; by default with the PID of this process.
        """
        self.work_dir = work_dir.absolute()
        self.log_path = self.work_dir / "logs" / (log_name or f"evaluator-{os.getpid()}.log")
        self.retry_policy = retry_policy or RetryPolicy()
        self._child: ChildProcess | None = None

    def held(self, plan_id: str, progress: ShowProgress) -> AbstractContextManager[None]:
        """Hold the lock of a plan's folder for the block; show the wait if another process has it."""
        waiting = Progress(stage=Stage.EVALUATING, note=WAITS)
        return held(self._lock_path(plan_id), on_wait=lambda: progress(waiting))

    def kept(self) -> tuple[str, ...]:
        """Return the plans that have a folder; see the port."""
        return tuple(sorted(path.name for path in (self.work_dir / "runs").glob("*") if path.is_dir()))

    def forget(self, plan_id: str) -> None:
        """Delete the files of a plan, unless another process works on it and deletes them itself; see the port."""
        if not (self.work_dir / "runs").is_dir():
            return
        try:
            with held_if_free(self._lock_path(plan_id)) as is_ours:
                if is_ours:
                    shutil.rmtree(self.work_dir / "runs" / folder_name(plan_id), ignore_errors=True)
        except StoreError as error:  # the results are stored elsewhere; a leftover folder is no reason to stop
            log.warning("cannot delete the evaluation files of plan %s: %s", plan_id, error)

    def close(self) -> None:
        """Stop the child and everything it started. Calling it twice is harmless; evaluating again starts a new one."""
        child, self._child = self._child, None
        if child is not None:
            child.stop()

    def _lock_path(self, plan_id: str) -> Path:
        """Return the lock file, next to the plan's folder: the folder is deleted while the lock is held."""
        return self.work_dir / "runs" / f"{folder_name(plan_id)}.lock"
