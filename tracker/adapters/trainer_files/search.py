"""Finds the logs of a training: in its folder, beside it, by patterns, and where its processes print to."""

import logging
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from glob import iglob
from itertools import islice
from pathlib import Path

from eval_jobs.host.paths import canonical
from tracker.adapters.trainer_files.folders import MAX_NAMES, entries, events_in, is_folder, is_link, is_run, of_ranks
from tracker.adapters.trainer_files.log_lines import begins_with_step
from tracker.domain.checkpoints.names import steps_in
from tracker.domain.health.logs.streams import (
    glob_of,
    is_event_file,
    is_log,
    training_folder,
)

log = logging.getLogger(__name__)

MAX_FILES = 500
"""Newest logs of a run that are followed."""
NO_FILE_HINT = "let the training print to a file, as with tee, and name that in [health] logs"
EVENT_FOLDERS = frozenset(("runs", "logs", "tensorboard"))
"""In which trainers make a folder of event files for each start."""


@dataclass(frozen=True, kw_only=True)
class LogPlaces:
    """Where a run's logs are."""

    run: str
    output_dir: Path | None
    """Folder of the checkpoints; None: it is no folder."""
    patterns: tuple[str, ...] = ()
    """Absolute glob patterns of further logs; `%t` is the rank."""
    skip: tuple[Path, ...] = ()
    """Folders below `output_dir` in which no training saves."""
    outputs: frozenset[str] = frozenset()
    """Paths of files that processes of the training print to now."""


@dataclass(frozen=True, kw_only=True)
class FoundLog:
    """A log of a run."""

    path: str
    sub_folder: str
    """Name of the run below the run, as whose log it counts; empty: it is the run's own."""
    inode: int
    is_output: bool
    """Whether only a process that prints to it names it."""


@dataclass(kw_only=True)
class LogSearch:
    """Finds the logs of one run."""

    places: LogPlaces
    _begin_as_logs: dict[str, bool] = field(default_factory=dict)
    """Whether a file of JSON lines is a log, by path."""
    _warned: set[str] = field(default_factory=set)

    def newest(self) -> Iterator[FoundLog]:
        """Yield each log once, the newest first; by the name of a link only if it has no other."""
        found: dict[tuple[int, int], tuple[float, FoundLog]] = {}
        named = sorted(self._all(), key=lambda one: is_link(one[0]))
        places = [(path, sub_folder, False) for path, sub_folder in named]
        if self.places.outputs:
            newest = self._newest_run()
            places += [(path, newest, True) for path in self.places.outputs]
        for path, sub_folder, is_output in places:
            with suppress(OSError):
                facts = Path(path).stat()
                if not stat.S_ISREG(facts.st_mode):
                    self.warn(path, f"it is not a regular file; hint: {NO_FILE_HINT}")
                    continue
                one = FoundLog(path=path, sub_folder=sub_folder, inode=facts.st_ino, is_output=is_output)
                found.setdefault((facts.st_dev, facts.st_ino), (facts.st_mtime, one))
        if len(found) > MAX_FILES:
            self.warn(str(self.places.output_dir), f"it has {len(found):,} logs; the newest {MAX_FILES} are followed")
        for _, one in sorted(found.values(), key=lambda item: (item[0], item[1].path), reverse=True):
            yield one

    def _newest_run(self) -> str:
        """Return the newest folder of a run below the run: what prints now belongs to it. Empty: there is none."""
        begun: dict[str, float] = {}
        inside = [] if self.places.output_dir is None else entries(self.places.output_dir)
        checkpoints = steps_in(entry.name for entry in inside)
        for entry in inside:
            if entry.name not in checkpoints and is_folder(entry) and is_run(entry.name, entries(Path(entry.path))):
                with suppress(OSError):
                    begun[entry.name] = entry.stat().st_mtime
        return max(begun, key=lambda name: begun[name], default="")

    def _all(self) -> Iterator[tuple[str, str]]:
        if self.places.output_dir is not None:
            yield from self._inside(self.places.output_dir)
            yield from self._beside(self.places.output_dir)
        for pattern in self.places.patterns:
            for path in islice(iglob(glob_of(pattern), recursive=True), MAX_NAMES):  # noqa: PTH207 - absolute ones
                yield path, ""

    def _beside(self, output_dir: Path) -> Iterator[tuple[str, str]]:
        folder = Path(training_folder(str(output_dir)))
        for entry in entries(folder) if folder != output_dir else ():
            if self._is_log(entry):
                yield entry.path, ""

    def _inside(self, folder: Path) -> Iterator[tuple[str, str]]:
        inside = entries(folder)
        checkpoints = steps_in(entry.name for entry in inside)
        for entry in inside:
            if self._is_log(entry):
                yield entry.path, ""
            elif entry.name not in checkpoints and is_folder(entry):
                yield from self._below(entry)

    def _below(self, folder: os.DirEntry[str]) -> Iterator[tuple[str, str]]:
        inside = entries(Path(folder.path))
        sub_folder = folder.name if is_run(folder.name, inside) else ""
        for entry in (*inside, *of_ranks(inside, folder.name)):
            if self._is_log(entry):
                yield entry.path, sub_folder
            elif folder.name in EVENT_FOLDERS and is_folder(entry):
                yield from events_in(entry)

    def _is_log(self, entry: os.DirEntry[str]) -> bool:
        try:
            return self._is_followed(entry)
        except OSError:  # of a file server; the next scan asks again
            return False

    def _is_followed(self, entry: os.DirEntry[str]) -> bool:
        if not (is_log(entry.name) or is_event_file(entry.name) or self._has_steps(entry)):
            return False
        if not entry.is_symlink():
            return True
        folder = self.places.output_dir
        inside = folder is not None and Path(canonical(entry.path)).is_relative_to(canonical(str(folder)))
        if not inside:
            self.warn(entry.path, "it is a link out of the folder: name it in [health] logs to follow it")
        return inside

    def _has_steps(self, entry: os.DirEntry[str]) -> bool:
        """Return whether a file of JSON lines that no name marks as a log begins as one: data sets lie there too."""
        if not entry.name.endswith(".jsonl") or not entry.is_file(follow_symlinks=False):
            return False
        known = self._begin_as_logs.get(entry.path)
        if known is None:
            known = begins_with_step(Path(entry.path))
            if known is not None and len(self._begin_as_logs) < MAX_NAMES:
                self._begin_as_logs[entry.path] = known
        return bool(known)

    def shown(self, path: str) -> str:
        """Return the path as shown to users, within the folder of the checkpoints."""
        folder = self.places.output_dir
        if folder is not None and Path(path).is_relative_to(folder):
            return str(Path(path).relative_to(folder))
        return path

    def warn(self, path: str, why: str) -> None:
        """Log once why a file is not followed."""
        if path not in self._warned:
            self._warned.add(path)
            log.warning("not followed: %s: %s", path, why)
