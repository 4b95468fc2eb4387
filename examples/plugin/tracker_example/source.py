"""A checkpoint source: a text file with one folder a line. A folder that is listed is complete.

[run]
name = "sft"
source = "list"
output_dir = "folders.txt"
"""

import threading
from datetime import datetime
from pathlib import Path

from eval_jobs.errors import CheckpointError, CheckpointNotFound
from eval_jobs.records.program import Program
from eval_jobs.types import Checkpoint
from tracker.adapters.checkpoints.folder.once import pin_folder
from tracker.adapters.checkpoints.pins.store import FolderOfPins
from tracker.domain.checkpoints.names import step_of
from tracker.domain.records.types import Gap


class ListOfFolders:
    """`tracker.ports.CheckpointSource` on a list."""

    def __init__(self, run: str, place: str, pins_dir: Path, program: Program) -> None:
        """Describe the run; nothing is read yet."""
        program.check_options()
        self._run, self._list, self._pins_dir = run, Path(place), pins_dir
        self._seen: dict[Path, object] = {}
        self._gaps: dict[Path, Gap] = {}
        self._returned: set[str] = set()
        self._woken = threading.Event()

    def ready(self, now: datetime) -> tuple[Checkpoint, ...]:
        """Pin what is listed and new; see the port."""
        held = [pin.checkpoint for pin in FolderOfPins(self._pins_dir).held() if pin.checkpoint.run_id == self._run]
        found = {checkpoint.uri: checkpoint for checkpoint in held}
        pinned = {checkpoint.source_uri for checkpoint in held}
        for folder in self._listed():
            files = sorted((f.name, f.stat().st_mtime_ns, f.stat().st_size) for f in folder.glob("*"))
            if self._seen.get(folder) == files or (not files and str(folder) in pinned):
                continue  # looked at before, or deleted since
            try:
                checkpoint = pin_folder(folder, run_id=self._run, pins_dir=self._pins_dir)
                found[checkpoint.uri] = checkpoint
                self._gaps.pop(folder, None)
            except CheckpointError as error:
                self._gaps[folder] = self._gap(folder, error, now)
            self._seen[folder] = files
        new = [checkpoint for uri, checkpoint in found.items() if uri not in self._returned]
        self._returned |= {checkpoint.uri for checkpoint in new}
        return tuple(sorted(new, key=lambda checkpoint: checkpoint.step))

    def gaps(self) -> tuple[Gap, ...]:
        """Return what is listed and cannot be evaluated."""
        return tuple(self._gaps.values())

    def is_behind(self) -> bool:
        """Return False: a list on a disk is read whole."""
        return False

    def give_up(self, now: datetime) -> None:
        """Nothing is waited for: what is listed is complete, or a gap."""

    def wait(self, timeout_s: float) -> None:
        """Sleep, unless somebody wakes us."""
        self._woken.wait(timeout_s)
        self._woken.clear()

    def wake(self) -> None:
        """End a wait."""
        self._woken.set()

    def close(self) -> None:
        """Nothing is open."""

    def _listed(self) -> list[Path]:
        lines = self._list.read_text(encoding="utf-8").splitlines() if self._list.exists() else []
        return [self._list.parent / line.strip() for line in lines if line.strip()]

    def _gap(self, folder: Path, error: CheckpointError, now: datetime) -> Gap:
        code = "E-CKPT-VANISHED" if isinstance(error, CheckpointNotFound) else error.code
        return Gap(
            run_id=self._run,
            step=step_of(folder.name) or 0,
            source_uri=str(folder),
            code=code,
            message=error.message,
            hint=error.hint,
            seen_at=now,
        )
