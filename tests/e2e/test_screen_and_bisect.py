"""Screens and `tracker bisect` as a user has them: real workers, the real evaluator, a server that forgets."""

import json
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.commands import tracker, write_project
from tests.fakes.openai_server import OpenAIServer, Reply, Request
from tests.tiny_model import write_checkpoint

ROWS, SCREEN = 60, 20
STEPS = range(100, 1301, 100)
SEEN = (100, 200, 300, 400, 500, 600, 1300)
"""Steps that a watcher evaluates; the others appear when nobody watches."""
LOST_AT = 1000


@dataclass
class Script:
    """Answers right; from the loss on, two sums of three are wrong."""

    asked: Counter[tuple[str, str]] = field(default_factory=Counter)
    """How often each (model, question) was asked."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, request: Request) -> Reply:
        kind, number = request.prompt.split()
        with self.lock:
            self.asked[request.body["model"], request.prompt] += 1
        step = int(request.body["model"].removeprefix("step-"))
        is_lost = kind == "sum" and step >= LOST_AT and int(number) % 3
        return Reply(text="no idea" if is_lost else number)

    def count(self, step: int, kind: str) -> int:
        return sum(1 for model, question in self.asked if model == f"step-{step}" and question.startswith(kind))


@pytest.fixture(scope="module")
def script() -> Script:
    return Script()


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, script: Script) -> Iterator[Path]:
    """A watcher with screens has evaluated some checkpoints, and has found a loss at the last one."""
    folder = tmp_path_factory.mktemp("screened")
    models = [f"step-{step}" for step in STEPS]
    with OpenAIServer(script, model=models[0], more_models=tuple(models[1:])) as server:
        screen = f"[suite.screen]\nsamples = {SCREEN}\nfirst = 4\nevery = 5\n"
        write_project(folder, server.base_url, rows=ROWS, more=screen)
        for step in SEEN:
            write_checkpoint(folder / "out" / f"checkpoint-{step}", seed=step)
        tracker(folder, "watch", "--until-idle")
        yield folder


def test_screens_ask_a_part_and_a_suspicious_one_the_rest_once(project: Path, script: Script) -> None:
    asked = {(step, kind): script.count(step, kind) for step in SEEN for kind in ("sum", "fact")}
    assert asked == {
        **{(step, kind): ROWS for step in (100, 200, 300, 400) for kind in ("sum", "fact")},
        **{(step, kind): SCREEN for step in (500, 600) for kind in ("sum", "fact")},
        (1300, "sum"): ROWS,
        (1300, "fact"): SCREEN,
    }
    assert max(script.asked.values()) == 1
    shown = tracker(project, "history")
    assert "1.000 ± 0.085*" in shown
    assert "regressed" in shown
    assert "* screened only: 5 of 14 results, which saved 200 samples" in shown


def test_bisect_places_the_loss_among_checkpoints_that_nobody_had_seen(project: Path, script: Script) -> None:
    for step in set(STEPS) - set(SEEN):
        write_checkpoint(project / "out" / f"checkpoint-{step}", seed=step)
    before = len({model for model, _ in script.asked})
    said = tracker(project, "bisect", "r", "sums", code=1)
    evaluated = len({model for model, _ in script.asked}) - before
    assert f"sums: lost between step 900 and step 1000 ({evaluated} of 10 checkpoints evaluated)" in said
    assert "40 of 60 samples lost, 0 gained" in said
    assert evaluated <= 5
    assert max(script.asked.values()) == 1
    again, _ = json.JSONDecoder().raw_decode(tracker(project, "bisect", "r", "sums", "--json", code=1))
    found = again["result"]
    assert (found["good"], found["bad"], found["evaluated"], found["gained"]) == (900, 1000, 0, 0)
    assert len(found["lost"]) == 40


def test_bisect_says_in_words_when_there_is_nothing_to_find(project: Path) -> None:
    assert "no significant loss in facts" in tracker(project, "bisect", "r", "facts", code=3)
    assert "no result of benchmark 'sum'" in tracker(project, "bisect", "r", "sum", code=2)
