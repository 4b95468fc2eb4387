"""One trainer, watched as a user would: `tracker init`, `tracker watch`, a kill in the middle of a save, a resume."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from benchmarks.trainers.material import write_material
from benchmarks.trainers.setups import RECIPES, Setup
from benchmarks.versions.environments import interpreter, versions_in
from eval_jobs.types import EngineInfo, EvalRecord
from tests.requires import PROJECT
from tracker.api.opening import open_project
from tracker.domain.checkpoints.names import step_of
from tracker.wiring.project import Project

FOLDER = PROJECT / "build" / "trainers"
TRACKER = Path(sys.executable).with_name("tracker")
COLUMNS = (
    "Saved",
    "Evaluated",
    "Weights loaded",
    "Curves",
    "Parameters",
    "MLflow run",
    "Ended with training",
    "Killed in a save",
    "Incidents",
    "Processes at the end",
)
KILL_AT = 3
"""Number of the save that the trainer is killed in."""
POLL_S = 0.0005
LONGEST_S = 1200.0


@dataclass(kw_only=True)
class Result:
    """The cells of one row."""

    name: str
    cells: list[str] = field(default_factory=list)
    is_good: bool

    def row(self) -> str:
        """Return the row as Markdown."""
        return f"| {self.name} | {' | '.join(self.cells)} |"


def folder_of(setup: Setup) -> Path:
    """Return the folder in which a trainer runs."""
    return FOLDER / setup.name.replace(" ", "-").replace(",", "").replace("=", "-").lower()


def watched_run(setup: Setup) -> Result:
    """Train and evaluate in a new folder, and return what became of it.

    Raises:
        CannotInstall: the environment cannot be made here.
    """
    python = interpreter(setup.environment, *setup.requirements, overrides=setup.overrides)
    folder = folder_of(setup)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    write_material(folder)
    return _Run(setup, python, folder).result()


class _Run:
    def __init__(self, setup: Setup, python: Path, folder: Path) -> None:
        self._setup, self._python, self._folder = setup, python, folder
        self._saved: set[int] = set()
        """Steps that were seen in the output folder."""
        self._done = threading.Event()
        self._environment = os.environ | {"HOME": str(folder / "home"), "OMP_NUM_THREADS": "1"} | setup.variables
        (folder / "home").mkdir()

    def result(self) -> Result:
        out = self._folder / self._setup.output
        self._tracker("init", str(out), "--data", "exam/sums.jsonl", "--yes")
        if self._setup.convert:
            self._convert()
        watching = subprocess.Popen([TRACKER, "watch"], **self._output("watch.log"))
        self._wait_for("watch.log", "watching")
        first = self._trainer()
        was_killed = self._kill_in_a_save(first, out)
        first.wait()
        if self._setup.clean:
            shutil.rmtree(max(self._folder.glob(self._setup.clean), key=_number))
        second = self._trainer(*self._setup.resume)
        seeing = threading.Thread(target=self._see, args=(out,))
        seeing.start()
        watching.send_signal(signal.SIGINT)
        watching.wait()
        log = self._output("exit.log")
        ended = subprocess.run(
            [TRACKER, "watch", "--until-exit-of", str(second.pid)], timeout=LONGEST_S, check=False, **log
        )
        trained = second.wait()
        self._done.set()
        seeing.join()
        return self._summary(ended.returncode, trained, was_killed=was_killed)

    def _convert(self) -> None:
        config = self._folder / "tracker.toml"
        command = [self._filled(part) for part in self._setup.convert]
        text = config.read_text()
        config.write_text(text.replace("[watch]\n", f"[watch]\nconvert = {json.dumps(command)}\n", 1))

    def _tracker(self, *arguments: str) -> None:
        subprocess.run([TRACKER, *arguments], check=True, stdin=subprocess.DEVNULL, **self._output("init.log"))

    def _trainer(self, *more: str) -> subprocess.Popen[bytes]:
        command = [self._filled(part) for part in self._setup.command]
        started: subprocess.Popen[bytes] = subprocess.Popen(
            [*command, *map(self._filled, more)], start_new_session=True, **self._output("train.log")
        )
        return started

    def _filled(self, part: str) -> str:
        places = {"{python}": self._python, "{bin}": self._python.parent, "{recipes}": RECIPES}
        places["{examples}"] = PROJECT / "examples"
        places["{folder}"] = self._folder
        states = (self._folder / self._setup.output).glob("**/checkpoint-*/trainer_state.json")
        places["{newest}"] = max((state.parent for state in states), key=_number, default=Path())
        for name, path in places.items():
            part = part.replace(name, str(path))
        return part

    def _output(self, name: str) -> dict[str, Any]:
        file = (self._folder / name).open("ab")
        return {"cwd": self._folder, "env": self._environment, "stdout": file, "stderr": subprocess.STDOUT}

    def _wait_for(self, log: str, word: str) -> None:
        while word not in (self._folder / log).read_text():
            self._done.wait(POLL_S)

    def _kill_in_a_save(self, trainer: subprocess.Popen[bytes], out: Path) -> bool:
        """Kill the trainer and its processes when a later checkpoint appears; return whether that came to pass."""
        while trainer.poll() is None:
            self._look(out)
            if len(self._saved) >= KILL_AT:
                _kill(trainer.pid)
                return True
            self._done.wait(POLL_S)
        return False

    def _see(self, out: Path) -> None:
        while not self._done.wait(POLL_S):
            self._look(out)

    def _look(self, out: Path) -> None:
        for place in (out, *out.glob("v*/")):
            names = [entry.name for entry in place.iterdir()] if place.is_dir() else []
            self._saved |= {step for step in map(step_of, names) if step is not None}

    def _summary(self, ended: int, trained: int, *, was_killed: bool) -> Result:
        project = open_project(self._folder / "tracker.toml")
        runs = project.history.runs()
        records = [record for run in runs for record in project.history.records(run)]
        steps = sorted({record.plan.checkpoint.step for record in records})
        gaps = sorted({step for run in runs for gap in project.history.gaps(run) for step in gap.steps} - set(steps))
        loads = [_load(record.engine) for record in sorted(records, key=_step) if record.engine is not None]
        points, params, is_joined = _tracked(project)
        found = zip(self._setup.versions, versions_in(self._python, *self._setup.versions), strict=True)
        name = f"{self._setup.name} ({', '.join(' '.join(one) for one in found)})"
        missing = sorted(self._saved - set(steps) - set(gaps))
        cells = [
            f"{len(self._saved)}",
            f"{len(steps)}" + (f", gaps {gaps}" if gaps else "") + (f", passed over {missing}" if missing else ""),
            _counted(loads),
            f"{points} points" if points else "no",
            str(params) if params else "no",
            "joined" if is_joined else "own",
            "yes" if ended in (0, 3) else f"exit code {ended}",
            "yes, resumed" if was_killed and trained == 0 else f"killed {was_killed}, then {trained}",
            *_health(project),
        ]
        is_good = not missing and bool(steps) and trained == 0 and is_joined == self._setup.joins
        return Result(name=name, cells=cells, is_good=is_good)


def _health(project: Project) -> tuple[str, str]:
    """Return which incidents the tracker reported, and what the processes of the training did last."""
    history, found, states = project.history, [], []
    for run in history.followed_runs():
        found += [f"{one.name} at {one.cause.step}" for one in history.training_incidents(run) if one.is_alert]
        states += [progress.state for progress in history.progress(run) if progress.run_id == run]
    return ", ".join(found) or "none", ", ".join(filter(None, states)) or "not seen"


def _kill(pid: int) -> None:
    """Kill a process and all that it started: the ranks of torchrun have sessions of their own."""
    parent = psutil.Process(pid)
    parent.suspend()  # finding the others takes longer than a small save
    for process in (parent, *parent.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            process.kill()


def _number(folder: Path) -> int:
    return step_of(folder.name) or 0


def _step(record: EvalRecord) -> int:
    return record.plan.checkpoint.step


def _load(engine: EngineInfo) -> str:
    return "kept" if engine.load_reason == "already loaded" else engine.load_method


def _counted(loads: list[str]) -> str:
    return ", ".join(f"{loads.count(method)} {method}" for method in dict.fromkeys(loads))


def _tracked(project: Project) -> tuple[int, int, bool]:
    """Return how many points of curves and parameters MLflow has, and whether a run of the trainer was joined."""
    from mlflow import MlflowClient

    client = MlflowClient(
        tracking_uri=project.config.tracking.uri or f"sqlite:///{project.config.run.state_dir}/mlflow.db"
    )
    experiments = [experiment.experiment_id for experiment in client.search_experiments()]
    points = params = 0
    is_joined = False
    for run in client.search_runs(experiments):
        losses = [key for key in run.data.metrics if key in {"train/loss", "loss", "train/train_loss"}]
        points += sum(len(client.get_metric_history(run.info.run_id, key)) for key in losses)
        params = max(params, len(run.data.params))
        is_joined |= (
            bool(losses) and "train/loss" not in losses and any(key.startswith("bench/") for key in run.data.metrics)
        )
    return points, params, is_joined
