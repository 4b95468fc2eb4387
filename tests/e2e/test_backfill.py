"""`tracker backfill` as a user calls it: checkpoints that nobody trains any more, a scripted server, real workers."""

import json
import re
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from eval_jobs.host.clock import SystemClock
from tests.commands import RunningTracker, tracker, write_project
from tests.fakes.openai_server import OpenAIServer, Reply, Request
from tests.tiny_model import write_checkpoint
from tracker.api.opening import open_project

ROWS = 12
STEPS = (100, 200, 300, 400, 500)


@dataclass
class Script:
    """Answers everything rightly and remembers it; `slow` models wait until they may go on."""

    asked: Counter[tuple[int, str]] = field(default_factory=Counter)
    order: list[int] = field(default_factory=list)
    """Steps by their first question."""
    slow: frozenset[int] = frozenset()
    may_go_on: threading.Event = field(default_factory=threading.Event)
    has_begun: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, request: Request) -> Reply:
        step = int(request.body["model"].removeprefix("step-"))
        with self.lock:
            self.asked[step, request.prompt] += 1
            if step not in self.order:
                self.order.append(step)
            if step in self.slow:
                self.has_begun.set()
        if step in self.slow:
            self.may_go_on.wait()
        return Reply(text=request.prompt.split()[1])


@contextmanager
def project(folder: Path, script: Script, *, more: str = "") -> Iterator[Path]:
    models = [f"step-{step}" for step in STEPS]
    with OpenAIServer(script, model=models[0], more_models=tuple(models[1:])) as server:
        write_project(folder, server.base_url, rows=ROWS, more=more)
        for step in STEPS:
            write_checkpoint(folder / "out" / f"checkpoint-{step}", seed=step)
        yield folder


def reported(folder: Path, *run: str) -> list[int]:
    document = json.loads(tracker(folder, "history", *run, "--json"))["result"]
    return [report["step"] for report in document["reports"]]


def test_the_ends_come_first_and_every_question_is_asked_once(tmp_path: Path) -> None:
    script = Script()
    with project(tmp_path, script):
        said = tracker(tmp_path, "backfill", "--order", "bisect")
        assert script.order == [100, 500, 300, 200, 400]
        assert reported(tmp_path) == list(STEPS)
        assert max(script.asked.values()) == 1
        assert re.search(r"backfill 5 checkpoints in .*out; bisection order", said)
        assert re.search(r"progress [1-4] of 5 done, about \S+ \S+ left", said)
        assert "5 of 5 done" in said
        again = tracker(tmp_path, "backfill", "--order", "bisect")
        assert ", 5 already evaluated; bisection order" in again
        assert script.asked.total() == 2 * ROWS * len(STEPS)


def test_what_is_killed_goes_on_where_it_was(tmp_path: Path) -> None:
    script = Script(slow=frozenset([400]))
    with project(tmp_path, script):
        backfill = RunningTracker(tmp_path, "backfill", output=tmp_path / "said")
        try:
            while not script.has_begun.wait(0.2) or 300 not in reported(tmp_path):
                assert backfill.poll() is None
        finally:
            workers = psutil.Process(backfill.pid).children(recursive=True)
            backfill.stop(signal.SIGKILL)
            psutil.wait_procs(workers)  # else step 500 may begin before they notice
        assert 400 not in reported(tmp_path)
        script.may_go_on.set()
        said = tracker(tmp_path, "backfill")
        assert ", 3 already evaluated; oldest first" in said
        assert reported(tmp_path) == list(STEPS)
        twice = {step for (step, _), count in script.asked.items() if count > 1}
        assert twice <= {400}, "only what was in flight may be asked again"


def test_beside_a_watcher_its_workers_evaluate_the_rest_of_its_run_and_other_folders(tmp_path: Path) -> None:
    script = Script()
    with project(tmp_path, script, more="max_waiting = 1\n"):
        write_checkpoint(tmp_path / "old" / "checkpoint-200", seed=7)
        watch = RunningTracker(tmp_path, "watch", output=tmp_path / "watched")
        try:
            watch.until_said("skipped")
            said = tracker(tmp_path, "backfill", "--order", "bisect")
            other = tracker(tmp_path, "backfill", "old")
            assert watch.stop() == 130
        finally:
            watch.kill_all()
        for text in (said, other):
            assert "workers evaluated by the workers of the running `tracker watch`" in text
        assert re.search(r"progress \d of 5 done", said)
        assert (reported(tmp_path, "r"), reported(tmp_path, "old")) == (list(STEPS), [200])
        asked = {step: {n for (of, _), n in script.asked.items() if of == step} for step in STEPS}
        assert asked == {step: {1} for step in STEPS} | {200: {2}}, "two checkpoints have this step"
        assert len([*(tmp_path / ".tracker" / "work").glob("worker-[0-9]*.log")]) == 1, "of the watcher"


def test_a_backfill_whose_watcher_stops_says_so_and_the_next_one_goes_on(tmp_path: Path) -> None:
    script = Script()
    with project(tmp_path, script):
        opened = open_project(tmp_path / "tracker.toml")
        lead = opened.lead()
        assert lead.take(SystemClock().now()), "as a watcher does that has no workers"
        backfill = RunningTracker(tmp_path, "backfill", output=tmp_path / "said")
        try:
            backfill.until_said("no worker is running: start `tracker worker ")
            assert opened.queue.open_steps("r") == {100}
            lead.release()
            assert backfill.wait() == 4
        finally:
            backfill.kill_all()
        assert "the watcher of run r stopped" in backfill.said()
        assert "run the same command again to continue" in backfill.said()
        tracker(tmp_path, "backfill")
        assert reported(tmp_path) == list(STEPS)


def test_another_folder_is_another_run_and_steps_may_be_chosen(tmp_path: Path) -> None:
    script = Script()
    with project(tmp_path, script):
        (tmp_path / "out").rename(tmp_path / "old-run")
        for step in STEPS:  # names that are learned
            (tmp_path / "old-run" / f"checkpoint-{step}").rename(tmp_path / "old-run" / f"save_{step}")
        tracker(tmp_path, "backfill", "old-run", "--steps", "200:", "--every", "2", "--order", "newest")
        assert script.order == [400, 200]
        assert reported(tmp_path, "old-run") == [200, 400]


def test_a_checkpoint_that_cannot_be_read_is_a_gap(tmp_path: Path) -> None:
    script = Script()
    with project(tmp_path, script):
        (tmp_path / "out" / "checkpoint-300" / "model.safetensors").write_bytes(b"torn")
        said = tracker(tmp_path, "backfill", code=3)
        assert "gap step 300" in said
        assert "4 checkpoints evaluated, 1 not evaluated (hint: `tracker history` shows the reasons)" in said
        assert "1 not evaluated" in tracker(tmp_path, "backfill", code=3), "it is still there, and still not evaluated"
        assert reported(tmp_path) == [100, 200, 400, 500]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere"], "nowhere not found"),
        (["empty"], "no checkpoint in "),
        (["--steps", "9000:"], "no checkpoint with these steps in "),
        (["--steps", "a:b"], "invalid range --steps a:b"),
    ],
)
def test_what_cannot_be_done_is_said_with_what_to_do(tmp_path: Path, arguments: list[str], said: str) -> None:
    write_project(tmp_path, "http://localhost:9/v1", rows=1)
    for folder in ("empty", "out/checkpoint-100"):
        (tmp_path / folder).mkdir(parents=True)
    assert said in tracker(tmp_path, "backfill", *arguments, code=2)


def test_a_folder_of_which_nothing_can_be_evaluated_ends_with_the_reasons(tmp_path: Path) -> None:
    write_project(tmp_path, "http://localhost:9/v1", rows=1)
    for step in (100, 200):
        (tmp_path / "old" / f"checkpoint-{step}").mkdir(parents=True)
    said = " ".join(tracker(tmp_path, "backfill", "old", code=3).split())
    assert "checkpoint-100 is empty" in said
    assert "0 checkpoints evaluated, 2 not evaluated" in said
