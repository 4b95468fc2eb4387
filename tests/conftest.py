"""What all tests share: one line at the end that names what was missing."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterable

import pytest


def pytest_configure() -> None:
    """Let tests interrupt what they start: `&` makes a shell's children, and theirs, ignore Ctrl-C, `nohup` SIGHUP."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say in one line which system packages or data the skipped tests need."""
    line = skipped_line(report.longrepr[2] for report in terminalreporter.stats.get("skipped", []))
    if line:
        terminalreporter.write_line(line, yellow=True)


def skipped_line(reasons: Iterable[str]) -> str:
    """Return one sentence over all skips, empty when there were none."""
    counts = Counter(reason.removeprefix("Skipped: ") for reason in reasons)
    parts = [f"{reason} ({count} test{'s' if count > 1 else ''})" for reason, count in sorted(counts.items())]
    return f"not run here: {'; '.join(parts)}" if parts else ""
