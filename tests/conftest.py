"""What all tests share: which of them run in one process, and one line at the end that names what was missing."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections import Counter
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

VLLM_CACHE = "VLLM_CACHE_ROOT"


def pytest_configure(config: pytest.Config) -> None:
    """Let tests interrupt what they start, bear a busy machine, and start vLLM with what it found out before.

    `&` makes a shell's children, and theirs, ignore Ctrl-C, `nohup` SIGHUP.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    # Hypothesis would fail an example that takes 200 ms, which any can where other work holds the processor.
    settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("patient")
    if VLLM_CACHE not in os.environ:  # else vLLM starts a Python more to inspect the model's class, each time anew
        folder = tempfile.mkdtemp(prefix="vllm-cache-")
        os.environ[VLLM_CACHE] = folder
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    """Say how tests are dealt to processes under `-n`."""
    config.option.loadscopereorder = False  # as collected: whole programs come before units, which then fill the rest
    return FileByFile(config, log)


class FileByFile(LoadScopeScheduling):  # type: ignore[misc]
    """Gives a process whole files, whose tests share what they start; all that start a real vLLM go to one process.

    Two vLLM servers at once would need twice the memory.
    """

    def _split_scope(self, nodeid: str) -> str:
        return "vllm" if (file := nodeid.partition("::")[0]) in _files_with_vllm(self.config.rootpath) else file


@cache
def _files_with_vllm(root: Path) -> frozenset[str]:
    files = (root / "tests").rglob("test_*.py")
    return frozenset(path.relative_to(root).as_posix() for path in files if "pytest.mark.vllm" in path.read_text())


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
