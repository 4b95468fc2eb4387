"""What all tests share: who runs in one process and in which order, and what is said at the end.

At the end stands how often each real server was started, and what was missing.
"""

from __future__ import annotations

import gc
import os
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from tests import shared_servers, starts
from tests.deep import DEEP, sized

if TYPE_CHECKING:
    from tests.vllm_series import Series

VLLM_CACHE, INDUCTOR_CACHE = "VLLM_CACHE_ROOT", "TORCHINDUCTOR_CACHE_DIR"
TOGETHER = {"vllm": ("pytest.mark.vllm",), "mlflow": ("shared(MlflowServer)",)}
"""Groups of files that run in one process, and what stands in a file of each.

Those of vLLM share an engine, those of MLflow the registry of models, whose names no experiment keeps apart.
"""


def pytest_configure(config: pytest.Config) -> None:
    """Let tests interrupt what they start, bear a busy machine, and start vLLM with what it found out before.

    `&` makes a shell's children, and theirs, ignore Ctrl-C, `nohup` SIGHUP.
    """
    gc.disable()  # while all tests are imported: there is nothing to collect
    # Where bytecode is switched off, each process compiles everything again, and pytest rewrites every test.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    # Hypothesis would fail an example that takes 200 ms, which any can where other work holds the processor.
    settings.register_profile(
        "patient", max_examples=sized(8, 100), deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )
    settings.load_profile("patient")
    starts.begin(config)
    shared_servers.begin(config)
    if VLLM_CACHE not in os.environ:  # else vLLM starts a Python more to inspect the model's class, each time anew
        folder = tempfile.mkdtemp(prefix="vllm-cache-")
        os.environ[VLLM_CACHE] = folder
        os.environ[INDUCTOR_CACHE] = f"{folder}/inductor"
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put files and groups that take long first, so that no process has much to do when the other is done.

    A deep run has only tests that do less in an ordinary one.
    """
    if DEEP in os.environ:
        items[:] = [item for item in items if _is_sampled(item.path)]
    seconds = _measured_seconds(config.rootpath)
    items.sort(key=lambda item: -seconds.get(_group(config.rootpath, item.nodeid), 0.0))


def pytest_collection_finish() -> None:
    """Exempt all that is imported by now from garbage collection, which would look through it again and again."""
    gc.collect()
    gc.freeze()
    gc.enable()


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    """Say how tests are dealt to processes under `-n`."""
    config.option.loadscopereorder = False  # as sorted above
    return FileByFile(config, log)


class FileByFile(LoadScopeScheduling):  # type: ignore[misc]
    """Gives a process whole files, whose tests share what they start, and all files that share a server."""

    def _split_scope(self, nodeid: str) -> str:
        return _group(self.config.rootpath, nodeid)


@pytest.fixture(scope="session")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Series]:
    """The only real vLLM on plain full weights: checkpoints of seeds 1, 0, 3, 1 and 0 went through it; 1, 0 cold."""
    from tests.vllm_series import plain_series

    with plain_series(tmp_path_factory.mktemp("plain")) as series:
        yield series


@cache
def _is_sampled(file: Path) -> bool:
    text = file.read_text()
    return any(words in text for words in ("tests.deep", "hypothesis"))


def _group(root: Path, nodeid: str) -> str:
    file = nodeid.partition("::")[0]
    return _groups(root).get(file, file)


@cache
def _groups(root: Path) -> Mapping[str, str]:
    found = {}
    for path in (root / "tests").rglob("test_*.py"):
        text = path.read_text()
        names = [name for name, words in TOGETHER.items() if any(word in text for word in words)]
        if names and "unit" not in path.parts:
            found[path.relative_to(root).as_posix()] = names[0]
    return found


@cache
def _measured_seconds(root: Path) -> Mapping[str, float]:
    seconds: Counter[str] = Counter()
    for line in (root / "tests" / "seconds.tsv").read_text().splitlines():
        took, file = line.split("\t")
        seconds[_group(root, file)] += int(took)
    return seconds


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how often servers were started, and which system packages or data the skipped tests need."""
    terminalreporter.write_line(starts.line(terminalreporter.config))
    line = skipped_line(report.longrepr[2] for report in terminalreporter.stats.get("skipped", []))
    if line:
        terminalreporter.write_line(line, yellow=True)


def skipped_line(reasons: Iterable[str]) -> str:
    """Return one sentence over all skips, empty when there were none."""
    counts = Counter(reason.removeprefix("Skipped: ") for reason in reasons)
    parts = [f"{reason} ({count} test{'s' if count > 1 else ''})" for reason, count in sorted(counts.items())]
    return f"not run here: {'; '.join(parts)}" if parts else ""
