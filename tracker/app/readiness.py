"""Holds checkpoints back while every evaluation would fail; pinning continues."""

import logging
import math
from collections.abc import Callable, Collection
from dataclasses import dataclass

from eval_jobs.ports import Clock
from eval_jobs.types import Checkpoint
from tracker.domain.readiness.finding import Finding, demand_ready, errors_in

log = logging.getLogger(__name__)

RECHECK_S = 60.0


@dataclass
class ReadyGate:
    """Opens when a checkpoint was examined without errors, and then stays open."""

    examine: Callable[[Checkpoint], tuple[Finding, ...]]
    clock: Clock
    must_be_ready: bool
    """Errors are raised instead of waiting for other settings."""
    shown: Collection[Finding] = ()
    """Errors that the user has seen already."""
    _is_open: bool = False
    _due_s: float = -math.inf
    errors: tuple[Finding, ...] = ()
    """Errors that the last examination found: with any, workers should rest, because what waits would fail too."""

    def is_held(self, newest: Checkpoint) -> bool:
        """Return whether new checkpoints wait; `newest`: the last one found, since an old one may be broken.

        Raises:
            ConfigError: evaluations would fail, and `must_be_ready` is set.
        """
        if not self._is_open and self.clock.monotonic_s() >= self._due_s:
            self._due_s = self.clock.monotonic_s() + RECHECK_S
            self._take(errors_in(self.examine(newest)))
        return not self._is_open

    def _take(self, errors: tuple[Finding, ...]) -> None:
        if self.must_be_ready:
            demand_ready(errors)
        shown = set(map(_problem_of, self.shown))
        for one in errors:
            if _problem_of(one) not in shown:
                log.warning("%s", one)
        if errors and not self.errors:
            log.warning("evaluations wait until this is fixed; checkpoints are pinned meanwhile")
        elif self.errors and not errors:
            log.warning("evaluations begin: all checks passed")
        self.errors, self.shown, self._is_open = errors, errors, not errors


def _problem_of(error: Finding) -> tuple[str, str]:
    """Return what is equal for all checkpoints; messages name a checkpoint."""
    return error.subject, error.hint
