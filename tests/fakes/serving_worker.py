"""A worker process that serves one checkpoint until it is killed.

    python -m tests.fakes.serving_worker WORK_DIR CHECKPOINT [--base DIR] [--python PATH] [--args ...]

Writes `starting`, then `serving BASE_URL MODEL` to standard output, one line each.
"""

import argparse
import subprocess
import sys
import threading
from pathlib import Path

from eval_jobs.host.clock import SystemClock
from eval_jobs.serve.resident.vllm import VllmEngine
from eval_jobs.types import ServeSpec
from tests.requires import PROJECT
from tests.tiny_model import checkpoint_record


def start_worker(*arguments: str) -> subprocess.Popen[str]:
    """Start such a worker; read its lines from `.stdout`."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.fakes.serving_worker", *arguments], cwd=PROJECT, stdout=subprocess.PIPE, text=True
    )


def wait_for_line(worker: subprocess.Popen[str], start: str) -> str:
    """Return the worker's next line that begins with `start`."""
    assert worker.stdout is not None
    line = next((line for line in worker.stdout if line.startswith(start)), "")
    assert line, f"the worker ended before it said {start!r}"
    return line


# --- private


def _main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("work_dir", type=Path)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--base", type=Path)
    parser.add_argument("--python", default="")
    parser.add_argument("--args", nargs=argparse.REMAINDER, default=[])
    options = parser.parse_args()
    spec = ServeSpec(python=options.python, max_model_len=256, args=tuple(options.args))
    checkpoint = checkpoint_record(options.checkpoint, base=options.base)
    with VllmEngine(options.work_dir, SystemClock()).serving(checkpoint, spec, progress=_Once()) as endpoint:
        _say(f"serving {endpoint.base_url} {endpoint.model}")
        threading.Event().wait()


class _Once:
    """Says `starting` at the first progress line: by then the engine's process exists."""

    def __init__(self) -> None:
        self._said = False

    def __call__(self, line: str) -> None:  # noqa: ARG002
        if not self._said:
            self._said = True
            _say("starting")


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    _main()
