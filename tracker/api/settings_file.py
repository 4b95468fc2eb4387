"""Changes of tracker.toml while a command runs."""

import logging
from collections.abc import Callable
from pathlib import Path

from eval_jobs.errors import TrackerError
from tracker.wiring.project import Project, channels_of

log = logging.getLogger(__name__)


class SettingsFile:
    """Opens the project again when its configuration has changed and is valid."""

    def __init__(self, path: Path, project: Project, reopen: Callable[[], Project]) -> None:
        """Take the file's present content as used by `project`; `reopen` opens the project again."""
        self.path = path
        self._project = project
        self._reopen = reopen
        self._seen = self._last = _content(path)
        self._is_refused = False
        """Whether the newest content is not used, because it is wrong."""

    def changed(self) -> Project | None:
        """Return the project with new settings; None: they are unchanged, still being written or not usable.

        Each content is examined once; the log says why it is not used.
        """
        content, last = _content(self.path), self._last
        self._last = content
        if content in (None, self._seen) or content != last:
            return None
        self._seen = content
        try:
            project = self._reopen()
            project.suite()
            project.agent_settings()
            channels_of(project.config)
        except TrackerError as error:
            log.warning("%s has changed, but the previous settings stay in use: %s", self.path, error)
            self._is_refused = True
            return None
        new, old = project.config, self._project.config
        if (new.run, new.store) != (old.run, old.store):
            log.warning("%s has changed: restart to apply settings in [run] and [store]", self.path)
            return None
        if new == old:
            if self._is_refused:
                log.warning("%s is valid again: its settings are in use", self.path)
            self._is_refused = False
            return None
        log.warning("%s has changed: the new settings are in use", self.path)
        self._is_refused = False
        self._project = project
        return project


def _content(path: Path) -> bytes | None:
    """Return the file's content; None: it cannot be read, as while an editor replaces it."""
    try:
        return path.read_bytes()
    except OSError:
        return None
