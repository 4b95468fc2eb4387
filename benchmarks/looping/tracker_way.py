"""A real `tracker watch` beside a trainer that saves; when what happened to each checkpoint, seen from outside."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psutil

from benchmarks.looping.material import MAX_MODEL_LEN, Workload, write_questions
from eval_jobs.types import EvalRecord
from tracker.config import load_config
from tracker.wiring.project import Project

RUN = "loop"
POLL_S = 0.01
"""What is seen from outside is at most so much later than it was; about one per cent of a core."""
LONGEST_S = 300.0
"""Of one checkpoint, the engine's cold start included."""

MOMENTS = ("held", "pinned", "queued", "claimed", "answered", "finished", "judged", "sent")
"""Of a checkpoint, in their order. `answered`: the first whole answer of an evaluation lies on the disk."""


@dataclass(frozen=True, kw_only=True)
class Passage:
    """When what happened to one checkpoint, in seconds since its last byte was written."""

    step: int
    at_s: dict[str, float] = field(default_factory=dict)

    @property
    def is_over(self) -> bool:
        """Whether it is judged and everything about it is in MLflow."""
        return "sent" in self.at_s


@dataclass(frozen=True, kw_only=True)
class Watched:
    """A training run that is watched."""

    home: Path
    process: subprocess.Popen[bytes]

    @property
    def output_dir(self) -> Path:
        """Where the trainer saves."""
        return self.home / "out"

    @property
    def state_dir(self) -> Path:
        """Where the tracker keeps everything."""
        return self.home / ".tracker"

    def follow(self, step: int, saved_at_s: float) -> Passage:
        """Wait until the checkpoint is judged and published."""
        passage = Passage(step=step)
        look = _Look(self, step)
        while not passage.is_over:
            now_s = time.time() - saved_at_s
            for moment in look.seen() - passage.at_s.keys():
                passage.at_s[moment] = now_s
            if self.process.poll() is not None or now_s > LONGEST_S:
                sys.exit(f"step {step} was not judged: {self.home / 'watch.log'}")
            time.sleep(POLL_S)
        look.close()
        return passage

    def records(self) -> dict[int, EvalRecord]:
        """Return what came out, by step."""
        history = Project(load_config(self.home / "tracker.toml")).history
        return {record.plan.checkpoint.step: record for record in history.records(RUN)}

    def engine(self) -> tuple[str, str, list[int]]:
        """Return base URL and model of the engine, which is idle now, and the cores that its clients may use."""
        for process in self.tree():
            try:
                words = process.cmdline()
            except psutil.Error:
                continue
            if "--served-model-name" in words:
                base_url = f"http://127.0.0.1:{words[words.index('--port') + 1]}/v1"
                models = httpx.get(f"{base_url}/models", trust_env=False).json()["data"]
                return base_url, models[0]["id"], process.cpu_affinity()
        sys.exit("the engine has ended")

    def tree(self) -> list[psutil.Process]:
        """Return the watcher and everything that it started."""
        watcher = psutil.Process(self.process.pid)
        return [watcher, *watcher.children(recursive=True)]


@contextmanager
def watched(home: Path, workload: Workload, *, python: Path | None = None) -> Iterator[Watched]:
    """Prepare a project in `home` and watch it until the block ends; `python`: interpreter of the engine."""
    write_questions(home)
    (home / "out").mkdir()
    serve = f"[serve]\nmax_model_len = {MAX_MODEL_LEN}\n" + (f'python = "{python}"\n' if python else "")
    text = f'[run]\nname = "{RUN}"\noutput_dir = "out"\n{serve}{workload.toml()}'
    (home / "tracker.toml").write_text(text)
    command = [str(Path(sys.executable).with_name("tracker")), "watch", "--config", str(home / "tracker.toml")]
    with (home / "watch.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    try:
        yield Watched(home=home, process=process)
    finally:
        process.terminate()  # SIGINT is ignored by what a shell runs in the background
        process.wait()


# --- private


class _Look:
    """Looks at the tracker's files and tables without changing anything."""

    def __init__(self, run: Watched, step: int) -> None:
        self._step = step
        self._pins = run.state_dir / "pins" / RUN
        self._answers = run.state_dir / "work" / "runs"
        self._database = run.state_dir / "tracker.db"
        self._connection: sqlite3.Connection | None = None

    def seen(self) -> set[str]:
        """Return which moments lie behind us."""
        names = [path.name for path in self._pins.iterdir()] if self._pins.is_dir() else []
        found = {"held"} if any(name.startswith(".held-") for name in names) else set()
        if any(name.startswith(f"step-{self._step:08d}-") for name in names):
            found |= {"held", "pinned"}
        state, unsent = self._rows()
        if state:
            found |= {"queued"}
        if state not in ("", "waiting"):
            found |= {"claimed"}
        if state in ("finished", "acknowledged"):
            found |= {"answered", "finished"}
        elif self._is_answered():
            found |= {"answered"}
        if state == "acknowledged":
            found |= {"judged"} if unsent else {"judged", "sent"}
        return found

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()

    # --- private

    def _is_answered(self) -> bool:
        try:
            return next(self._answers.glob("*/*/predictions/*/*.jsonl"), None) is not None
        except FileNotFoundError:  # being deleted: it is over
            return True

    def _rows(self) -> tuple[str, bool]:
        """Return the state of the step's plan, and whether anything waits for MLflow."""
        try:
            if self._connection is None:
                self._connection = sqlite3.connect(f"file:{self._database}?mode=ro", uri=True)
            plan = self._connection.execute("SELECT state FROM eval_plans WHERE step = ?", (self._step,)).fetchone()
            unsent = self._connection.execute("SELECT 1 FROM outbox_items WHERE NOT sent LIMIT 1").fetchone()
        except sqlite3.Error:  # not made yet, or just being made
            self.close()
            self._connection = None
            return "", True
        return (plan[0] if plan else ""), unsent is not None
