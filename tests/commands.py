"""`tracker` as a user calls it, and a project whose checkpoints a scripted server answers for.

    said = tracker(tmp_path, "history", "--json")

Each call is a process of its own, forked from one that has imported what commands import: that takes seconds.
"""

import atexit
import importlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.forking import FRESH
from tracker.cli import main
from tracker.cli.main import COMMANDS, REPORT, module_of

TRACKER = Path(sys.executable).parent / "tracker"

for known in COMMANDS.keys() - {REPORT}:
    importlib.import_module(module_of(known))
importlib.import_module("tracker.adapters.mlflow.store")


def tracker(project: Path, *arguments: str, code: int = 0) -> str:
    """Run `tracker` in a project; return all that it says, having checked its exit code."""
    done = run_tracker(project, *arguments)
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout + done.stderr


def run_tracker(
    project: Path, *arguments: str, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run `tracker` in a project, with another environment if one is given, and return what became of it."""
    with TemporaryDirectory() as folder:
        output, errors = (Path(folder) / name for name in ("output", "errors"))
        running = RunningTracker(project, *arguments, output=output, errors=errors, environment=environment)
        try:
            code = running.wait()
        finally:  # a test that is interrupted leaves nothing behind
            running.kill_all()
        return subprocess.CompletedProcess(arguments, code, stdout=output.read_text(), stderr=errors.read_text())


class RunningTracker:
    """A `tracker` that runs in a session of its own: `kill_all` ends it with its children, and not the tests."""

    def __init__(
        self,
        project: Path,
        *arguments: str,
        output: Path,
        errors: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        variables = dict(os.environ if environment is None else environment)
        self._output = output
        output.touch()
        self._process = FRESH.Process(
            target=_be_tracker, args=(project, arguments, variables, output, errors or output)
        )
        self._process.start()
        assert self._process.pid is not None
        self.pid: int = self._process.pid

    def said(self) -> str:
        """Return what it has said so far."""
        return self._output.read_text()

    def poll(self) -> int | None:
        """Return its exit code, None as long as it runs."""
        return self._process.exitcode

    def wait(self, timeout_s: float | None = None) -> int:
        """Return its exit code when it has ended."""
        self._process.join(timeout_s)
        assert self._process.exitcode is not None, self.said()
        return self._process.exitcode

    def until_said(self, words: str) -> None:
        """Return when it has said `words`."""
        pause = threading.Event()
        while words not in self.said():
            assert self.poll() is None, self.said()
            pause.wait(0.05)

    def send_signal(self, number: signal.Signals) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def stop(self, number: signal.Signals = signal.SIGINT) -> int:
        """Send it a signal and return its exit code."""
        self.send_signal(number)
        return self.wait()

    def kill_all(self) -> None:
        """Kill it with what it has started, if it runs."""
        if self.poll() is None:
            os.killpg(self.pid, signal.SIGKILL)
        self.wait()


def _be_tracker(
    project: Path, arguments: tuple[str, ...], environment: Mapping[str, str], output: Path, errors: Path
) -> None:
    os.setsid()
    os.chdir(project)
    os.environ.clear()
    os.environ.update(environment)
    for number, path in ((1, output), (2, errors)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)
    encoding, _, failing = environment.get("PYTHONIOENCODING", "utf-8").partition(":")
    sys.stdout = open(1, "w", encoding=encoding, errors=failing or "strict", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding=encoding, errors="backslashreplace", closefd=False, buffering=1)  # noqa: SIM115
    sys.argv = [str(TRACKER), *arguments]
    try:
        main.main()
    finally:  # as at the end of an interpreter
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()


def write_project(folder: Path, base_url: str, *, rows: int, more: str = "") -> None:
    """Write a project of two benchmarks, `sums` and `facts`, with so many questions `sum 0`, `fact 0` and so on.

    The model of step 100 is called `step-100` at `base_url`; `more` goes into tracker.toml.
    """
    for kind in ("sum", "fact"):
        questions = [{"question": f"{kind} {i}", "answer": str(i)} for i in range(rows)]
        (folder / f"{kind}s.jsonl").write_text("".join(json.dumps(row) + "\n" for row in questions))
    (folder / "tracker.toml").write_text(
        f'[run]\nname = "r"\noutput_dir = "out"\n[serve]\nengine = "remote"\nbase_url = "{base_url}"\n'
        'model = "step-{step}"\n[probe]\nenabled = false\n[tracking]\nenabled = false\n[watch]\nsettle_s = 0.1\n'
        f'{more}[[benchmark]]\nbenchmark = "exact"\ndata = "sums.jsonl"\n'
        '[[benchmark]]\nbenchmark = "exact"\ndata = "facts.jsonl"\n'
    )
