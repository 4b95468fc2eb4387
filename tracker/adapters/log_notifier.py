"""Alerts as log lines: what is there without any channel configured."""

from __future__ import annotations

import logging

from tracker.domain.types import Alert, AlertState

log = logging.getLogger(__name__)


class LogNotifier:
    """`tracker.ports.Notifier` that writes to the log: a firing alert as a warning, a resolved one as information."""

    def notify(self, alert: Alert) -> None:
        """Log the alert."""
        level = logging.WARNING if alert.state is AlertState.FIRING else logging.INFO
        log.log(level, "%s: %s: %s", alert.state, alert.run_id, alert.message)
