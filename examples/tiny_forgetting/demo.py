"""The demo: train a tiny model, watch it with the tracker, and see what it forgot.

    python examples/tiny_forgetting/demo.py [--dir .demo] [--crash-at STEP]        or: make demo

Starts two processes side by side: `train.py`, an ordinary training run that knows nothing of the tracker, and
`tracker watch`, which evaluates every checkpoint. When both are done it shows the result and how to look further.
Exit codes: 0 the tracker found what was to be found, 3 it did not, 2 unusable folder, 4 something broke, 130 Ctrl-C.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from data import PHASE_1_STEPS, PHASE_2_STEPS, SAVE_EVERY_STEPS, write_test_files
from demo_folder import FolderUnusable, fresh_folder
from findings import check
from rich.console import Console

HERE = Path(__file__).parent
TRACKER = Path(sys.executable).parent / "tracker"
POLL_S = 0.5
STOP_TIMEOUT_S = 60.0
"""How long the tracker may take to stop its engine."""
LOG_TAIL_LINES = 15

Process = subprocess.Popen[bytes]
console = Console(highlight=False, markup=False, soft_wrap=True)


class DemoFailed(Exception):
    """A process failed. The message says which, and where to look."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """The files of one demo."""

    folder: Path
    crash_at: int | None = None
    """Step at which the training runs out of memory; None: it does not."""

    @property
    def config(self) -> Path:
        """What the tracker watches and measures."""
        return self.folder / "tracker.toml"

    @property
    def checkpoints(self) -> Path:
        """The trainer's output folder."""
        return self.folder / "out"

    @property
    def log(self) -> Path:
        """What the trainer prints."""
        return self.folder / "train.log"

    def tracker(self, *arguments: str) -> list[str]:
        """Return a `tracker` command on this demo."""
        return [str(TRACKER), *arguments, "--config", str(self.config)]


def main() -> int:
    """Run the demo and return its exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--dir", type=Path, default=Path(".demo"), help="folder to work in, created again (default: .demo)"
    )
    parser.add_argument("--crash-at", type=int, metavar="STEP", help="have the training run out of memory at STEP")
    given = parser.parse_args()
    place = Place(folder=given.dir, crash_at=given.crash_at)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _as_interrupt)
    try:
        return run(place)
    except KeyboardInterrupt:
        console.print("\nstopped; the next demo starts from the beginning", style="bold")
        return 130
    except FolderUnusable as error:
        console.print(str(error), style="red")
        return error.exit_code
    except (DemoFailed, OSError) as error:
        console.print(str(error), style="red")
        return 4


def run(place: Place) -> int:
    """Train and watch, then show what came out."""
    started = time.monotonic()
    with fresh_folder(place.folder) as marker:
        write_test_files(place.folder / "data")
        place.checkpoints.mkdir()
        shutil.copy(HERE / "tracker.toml", place.config)
        welcome(place)
        children: list[Process] = []
        try:
            trainer = start_training(place, marker.fileno())
            children.append(trainer)
            watcher = start_watching(place, trainer, marker.fileno())
            children.append(watcher)
            marker.write(f"train.py, pid {trainer.pid}\ntracker watch, pid {watcher.pid}\n")
            marker.flush()
            follow(trainer, watcher, place)
        except KeyboardInterrupt:
            console.print("\nstopping the trainer and the tracker; press Ctrl-C again to kill them")
            raise
        finally:
            stop(children)
        if place.crash_at is not None:
            return show_crash(place)
        return show_result(place, time.monotonic() - started)


def welcome(place: Place) -> None:
    """Say what is going to happen."""
    console.print("A tiny model learns facts and sums, then only reversal. What does it forget?\n", style="bold")
    console.print(
        f"  trainer  {PHASE_1_STEPS} + {PHASE_2_STEPS} steps of the stock Hugging Face Trainer on the CPU, as"
    )
    console.print(f"           an ordinary process (log: {place.log})")
    console.print("  tracker  serves each checkpoint through vLLM and scores it on three benchmarks")
    console.print("  time     about 3 minutes on two cores, mostly for the training; vLLM starts twice\n")


def start_training(place: Place, lock: int) -> Process:
    """Start the trainer, its output in a file."""
    # One thread leaves the second core to vLLM; threads that wait for a core slow a model this small down.
    environment = {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", **os.environ}
    command = [sys.executable, str(HERE / "train.py"), "--output-dir", str(place.checkpoints)]
    command += [] if place.crash_at is None else ["--crash-at", str(place.crash_at)]
    with place.log.open("wb") as log:
        return subprocess.Popen(
            command, stdout=log, stderr=subprocess.STDOUT, env=environment, pass_fds=[lock], start_new_session=True
        )


def start_watching(place: Place, trainer: Process, lock: int) -> Process:
    """Start the tracker; it ends when the trainer has ended and every checkpoint is judged."""
    # A session of its own, so that Ctrl-C comes to this process only, which then stops both children in order.
    command = place.tracker("watch", "--until-exit-of", str(trainer.pid))
    return subprocess.Popen(command, pass_fds=[lock], start_new_session=True)


def follow(trainer: Process, watcher: Process, place: Place) -> None:
    """Wait for the tracker to end; it shows its own progress.

    Raises:
        DemoFailed: the trainer or the tracker failed.
    """
    while watcher.poll() is None and (place.crash_at is not None or not trainer.poll()):
        try:
            watcher.wait(timeout=POLL_S)
        except subprocess.TimeoutExpired:
            continue
    if trainer.poll() and place.crash_at is None:
        stop([watcher])
        raise DemoFailed(f"\nthe trainer {_ending(trainer)}; the end of {place.log}:\n\n{_tail(place.log)}")
    if watcher.returncode not in (0, 3):  # 3: a checkpoint has no result, which the tables show
        raise DemoFailed(f"\n`tracker watch` {_ending(watcher)}; see its message above")


def stop(children: Sequence[Process]) -> None:
    """End what still runs. A second Ctrl-C does not wait for it."""
    running = [child for child in children if child.poll() is None]
    for child in running:
        child.terminate()
    try:
        for child in running:
            child.wait(timeout=STOP_TIMEOUT_S)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        for child in running:
            child.kill()
            child.wait()


def show_result(place: Place, duration_s: float) -> int:
    """Show the table, what was found, and how to look further. Return the exit code."""
    console.print()
    subprocess.run(place.tracker("history"), check=False)
    reports = json.loads(_output(place.tracker("history", "--json")))["result"]["reports"]
    passed = [_show_checkpoints(place, {report["step"] for report in reports})]
    for finding in check(reports):
        _show_check(finding.sentence(), passed=finding.as_expected)
        passed.append(finding.as_expected)
    _show_next_steps(place)
    console.print(f"\n{duration_s // 60:.0f} min {duration_s % 60:.0f} s; results are in {place.folder}")
    return 0 if all(passed) else 3


def show_crash(place: Place) -> int:
    """Show what is known of a training that ran out of memory. Return the exit code."""
    console.print()
    subprocess.run(place.tracker("incidents"), check=False)
    incidents = json.loads(_output(place.tracker("incidents", "--json")))["result"]["incidents"]
    classes = [incident["cause"]["trouble"]["name"] for incident in incidents]
    is_found = classes == ["host_oom"]
    _show_check(f"one incident: {', '.join(classes) or 'none'}", passed=is_found)
    _show_next_steps(place)
    return 0 if is_found else 3


# --- private


def _show_checkpoints(place: Place, evaluated: set[int]) -> bool:
    written = set(range(SAVE_EVERY_STEPS, PHASE_1_STEPS + PHASE_2_STEPS + 1, SAVE_EVERY_STEPS))
    missed = sorted(written - evaluated)
    left = len(list(place.checkpoints.glob("checkpoint-*")))
    text = f"{len(written)} checkpoints written, of which the trainer deleted {len(written) - left}; "
    text += f"NOT evaluated: {', '.join(map(str, missed))}" if missed else "every one was evaluated"
    _show_check(text, passed=not missed)
    return not missed


def _show_check(text: str, *, passed: bool) -> None:
    console.print(f"  {'as expected' if passed else 'UNEXPECTED '}  {text}", style="green" if passed else "bold red")


def _show_next_steps(place: Place) -> None:
    report = _from_here(_output(place.tracker("report")).strip())
    steps = (
        (place.tracker("ui"), "training loss and all benchmarks on one MLflow page"),
        (place.tracker("compare", "600", "latest"), "which questions were lost, and what the model says now"),
        (place.tracker("report", "--open"), f"the HTML report, {report}"),
    )
    console.print("\nLook further:", style="bold")
    for command, what in steps:
        console.print(f"  {_from_here(command[0])} {' '.join(command[1:])}\n      {what}")


def _from_here(path: str) -> str:
    """Return a path the way one would type it."""
    relative = os.path.relpath(path)
    return path if relative.startswith("..") else relative


def _output(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise DemoFailed(f"`{' '.join(command)}` failed:\n{done.stderr.strip()}")
    return done.stdout


def _ending(process: Process) -> str:
    if process.returncode == -signal.SIGKILL:
        return "was killed by SIGKILL, possibly by the out-of-memory killer"
    if process.returncode < 0:
        return f"was terminated by {signal.Signals(-process.returncode).name}"
    return f"failed with exit code {process.returncode}"


def _tail(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return "\n".join(lines[-LOG_TAIL_LINES:])


def _as_interrupt(signum: int, frame: FrameType | None) -> None:
    """End on SIGTERM and on a closed terminal as on Ctrl-C: with both children stopped."""
    del signum, frame
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
