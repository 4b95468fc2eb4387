"""`tracker bisect` beside a running `tracker watch`: both want the same checkpoints; nothing is asked twice or lost."""

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Set
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from eval_jobs.host.clock import SystemClock
from eval_jobs.queue.database_sql import open_database
from eval_jobs.queue.sql_queue import SqlQueue
from tests.commands import RunningTracker, tracker, write_project
from tests.fakes.openai_server import OpenAIServer, Reply, Request
from tests.tiny_model import write_checkpoint
from tracker.api.opening import open_project
from tracker.wiring.checkpoints import pin_named

ROWS = 36
STEPS = range(100, 1501, 100)
SEEN = (100, 200, 300, 1500)
"""Evaluated when the search begins; the watcher finds the others at that moment."""
LOST_AT = 900


@dataclass
class Script:
    """Answers right; from the loss on, two sums of three are wrong. What nobody had seen may have to wait."""

    asked: Counter[tuple[str, str]] = field(default_factory=Counter)
    """How often each (model, question) was asked."""
    may_go_on: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, request: Request) -> Reply:
        kind, number = request.prompt.split()
        step = int(request.body["model"].removeprefix("step-"))
        with self.lock:
            self.asked[request.body["model"], request.prompt] += 1
        if step not in SEEN:
            self.may_go_on.wait()
        is_lost = kind == "sum" and step >= LOST_AT and int(number) % 3
        return Reply(text="no idea" if is_lost else number)


@pytest.fixture
def script() -> Iterator[Script]:
    script = Script()
    yield script
    script.may_go_on.set()


def test_both_together_ask_every_question_once_and_judge_every_checkpoint(script: Script, tmp_path: Path) -> None:
    """With screens: then even what is asked of one checkpoint comes in parts, and either may ask the second one."""
    screen = "[suite.screen]\nsamples = 20\nfirst = 3\nevery = 50\n"
    models = [f"step-{step}" for step in STEPS]
    with OpenAIServer(script, model=models[0], more_models=tuple(models[1:])) as server:
        write_project(tmp_path, server.base_url, rows=ROWS, more=f'backlog = "all"\n{screen}')
        for step in SEEN:
            write_checkpoint(tmp_path / "out" / f"checkpoint-{step}", seed=step)
        tracker(tmp_path, "watch", "--until-idle")
        for step in set(STEPS) - set(SEEN):
            write_checkpoint(tmp_path / "out" / f"checkpoint-{step}", seed=step)
        with started(tmp_path, "watch") as watch:
            wait_for(watch, lambda: open_steps(tmp_path) == set(STEPS) - set(SEEN))
            with started(tmp_path, "bisect", "r", "sums") as search:
                threading.Timer(3.0, script.may_go_on.set).start()  # by then both want something, on most machines
                code, found = search.wait(), search.said()
                assert code == 1, found
            wait_for(watch, lambda: judged_steps(tmp_path) == set(STEPS) and not open_steps(tmp_path))
        assert f"sums: lost between step {LOST_AT - 100} and step {LOST_AT}" in found
        assert max(script.asked.values()) == 1
        document = json.loads(tracker(tmp_path, "history", "--json"))["result"]
        assert {report["step"] for report in document["reports"]} == set(STEPS)
        # Nothing was left for another watcher, and another search asks nothing.
        before = script.asked.total()
        tracker(tmp_path, "watch", "--until-idle")
        again, _ = json.JSONDecoder().raw_decode(tracker(tmp_path, "bisect", "r", "sums", "--json", code=1))
        found = again["result"]
        assert (found["good"], found["bad"], found["evaluated"]) == (LOST_AT - 100, LOST_AT, 0)
        assert script.asked.total() == before


def test_a_search_whose_watcher_ends_says_so_and_the_next_one_goes_on(script: Script, tmp_path: Path) -> None:
    script.may_go_on.set()
    models = [f"step-{step}" for step in STEPS]
    with OpenAIServer(script, model=models[0], more_models=tuple(models[1:])) as server:
        write_project(tmp_path, server.base_url, rows=ROWS)
        for step in SEEN:
            write_checkpoint(tmp_path / "out" / f"checkpoint-{step}", seed=step)
        tracker(tmp_path, "watch", "--until-idle")
        project = open_project(tmp_path / "tracker.toml")
        for step in set(STEPS) - set(SEEN):
            pin_named(project.config, str(write_checkpoint(tmp_path / "out" / f"checkpoint-{step}", seed=step)))
        lead = project.lead()
        assert lead.take(SystemClock().now()), "as a watcher does that has no workers"
        with started(tmp_path, "bisect", "r", "sums") as search:
            wait_for(search, lambda: bool(open_steps(tmp_path)))
            lead.release()
            code, said = search.wait(), search.said()
        assert code == 4, said
        assert "the watcher stopped before step " in said
        assert "run the same command again to continue" in said
        again = tracker(tmp_path, "bisect", "r", "sums", code=1)
        assert f"sums: lost between step {LOST_AT - 100} and step {LOST_AT}" in again
        assert max(script.asked.values()) == 1


# --- private


@contextmanager
def started(project: Path, *arguments: str) -> Iterator[RunningTracker]:
    """Start a command in a project; it is stopped when the context is left."""
    process = RunningTracker(project, *arguments, output=project / f"{arguments[0]}.out")
    try:
        yield process
    finally:
        process.stop()


def wait_for(process: RunningTracker, is_so: Callable[[], bool]) -> None:
    """Return when something has happened that a process has to do with."""
    while not is_so():
        assert process.poll() is None, process.said()
        threading.Event().wait(0.5)


def open_steps(project: Path) -> Set[int]:
    """Return the steps of which something is asked, or not judged yet."""
    engine = open_database(f"sqlite:///{project}/.tracker/tracker.db")
    try:
        return SqlQueue(engine).open_steps("r")
    finally:
        engine.dispose()


def judged_steps(project: Path) -> Set[int]:
    return {report.step for report in open_project(project / "tracker.toml").history.outlines("r")}
