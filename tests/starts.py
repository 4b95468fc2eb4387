"""How often each real server was started in this run, by all its processes.

What tests start is noted by its starter; what the product starts is counted by the logs that it leaves.
"""

import os
import tempfile
from collections import Counter
from pathlib import Path

import pytest

VARIABLE = "TESTS_START_SERVERS"
BY_LOG = {
    "vllm": ("engine-*.log", b"Application startup complete"),
    "mlflow": ("mlflow-server.log", b"Application startup complete"),
    "evaluator": ("evaluator*.log", b""),
}
"""How a log is called that the product leaves at each start, and what stands in it."""


def begin(config: pytest.Config) -> None:
    """Have what follows in this process, and in those that it starts, note its starts in one file."""
    if VARIABLE not in os.environ:
        number, path = tempfile.mkstemp(prefix="tracker-starts-")
        os.close(number)
        os.environ[VARIABLE] = path
        config.add_cleanup(lambda: Path(path).unlink(missing_ok=True))


def note(server: str) -> None:
    """Note a start of `server`."""
    with Path(os.environ[VARIABLE]).open("a") as file:
        file.write(f"{server}\n")


def line(config: pytest.Config) -> str:
    """Return what was started, the name that comes first in the alphabet first."""
    counts = Counter(Path(os.environ[VARIABLE]).read_text().split())
    root: Path = config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
    for server, (pattern, words) in BY_LOG.items():
        counts[server] += sum(words in path.read_bytes() for path in root.rglob(pattern))
    return "starts: " + (", ".join(f"{name} {count}" for name, count in sorted(counts.items()) if count) or "none")
