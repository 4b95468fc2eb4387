"""The rules of four ports, over the parts of examples/plugin as `tracker` opens them: installed, by entry point.

Whoever makes a part of his own does the same: import the rules, and bring the fixture that they take.
"""

import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from eval_jobs.evaluate.plugin_evaluator import PluginEvaluator
from eval_jobs.host.clock import SystemClock
from eval_jobs.records.program import Program
from eval_jobs.serve.plugin_engine import PluginEngine
from eval_jobs.types import Benchmark, EngineKind, ServeSpec
from tests import trainer
from tests.contract.test_engine import *  # noqa: F403
from tests.contract.test_engine import Case
from tests.contract.test_evaluator import (
    ServedBench,
    test_a_question_keeps_its_id_whatever_the_order_of_the_file_and_the_limit,
    test_a_question_that_is_refused_is_an_error_and_the_others_are_scored,
    test_a_question_that_occurs_twice_is_two_samples,
    test_changed_data_is_asked_again_under_the_same_plan,
    test_every_planned_sample_comes_out_scored_by_its_answer,
    test_preparing_changes_nothing_but_the_time,
    test_what_is_forgotten_is_asked_again_and_forgetting_twice_is_harmless,
    test_when_the_server_goes_away_the_next_call_asks_only_what_is_missing,
)
from tests.contract.test_notifier import (
    MESSAGES,
    Line,
    test_a_channel_has_the_name_that_a_person_gave_it,
    test_every_message_is_taken_by_the_service_itself_and_its_answer_is_one_line,
)
from tests.contract.test_source import *  # noqa: F403
from tests.contract.test_source import Run
from tests.evaluating import endpoint_of, evaluate_one, suite_of
from tests.fakes.openai_server import OpenAIServer, Reply
from tests.plugins import EXAMPLE, SERVER, environment, installed
from tests.tiny_model import checkpoint_record, write_checkpoint
from tracker.adapters.alerts.channels.plugin_channel import PluginChannel
from tracker.adapters.checkpoints.plugin_source import PluginSource
from tracker.ports import CheckpointSource

__all__ = [
    "MESSAGES",
    "test_a_channel_has_the_name_that_a_person_gave_it",
    "test_a_question_keeps_its_id_whatever_the_order_of_the_file_and_the_limit",
    "test_a_question_that_is_refused_is_an_error_and_the_others_are_scored",
    "test_a_question_that_occurs_twice_is_two_samples",
    "test_changed_data_is_asked_again_under_the_same_plan",
    "test_every_message_is_taken_by_the_service_itself_and_its_answer_is_one_line",
    "test_every_planned_sample_comes_out_scored_by_its_answer",
    "test_preparing_changes_nothing_but_the_time",
    "test_what_is_forgotten_is_asked_again_and_forgetting_twice_is_harmless",
    "test_when_the_server_goes_away_the_next_call_asks_only_what_is_missing",
]

VERSION = "tracker-example 1.0"


@pytest.fixture(scope="session")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return installed(EXAMPLE, tmp_path_factory.mktemp("installed"))


@pytest.fixture(autouse=True)
def _is_found(example: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(example))
    monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])


@pytest.fixture  # type: ignore[no-redef]
def case(tmp_path: Path) -> Iterator[Case]:
    engine = PluginEngine("command", tmp_path / "work", SystemClock())
    program = Program(name="command", version=VERSION, options=(("command", SERVER),))
    spec = ServeSpec(engine=EngineKind.PLUGIN, program=program)
    dies = replace(program, options=(("command", f"{sys.executable} -c exit(3)"),))
    folder = write_checkpoint(tmp_path / "checkpoint")
    other = write_checkpoint(tmp_path / "another", seed=1)
    yield Case(
        engine=engine,
        spec=spec,
        broken=replace(spec, program=dies),
        checkpoint=checkpoint_record(folder, step=100),
        another=checkpoint_record(other, step=200),
        failing=checkpoint_record(folder, step=666),
    )
    engine.close()


@pytest.fixture
def bench(tmp_path: Path) -> ServedBench:
    return ServedBench(PluginEvaluator("first-line", tmp_path / "kept", SystemClock()))


def test_an_answer_that_was_cut_off_with_its_server_is_an_error(tmp_path: Path) -> None:
    """No rule of the suite says so: who asks by a library of his own must see to it himself."""
    data = tmp_path / "sums.jsonl"
    data.write_text('{"question": "1+1=", "answer": "2"}\n{"question": "2+1=", "answer": "3"}\n')
    program = Program(name="first-line", version=VERSION)
    benchmark = Benchmark(name="sums", adapter="sums", data=str(data), program=program)
    cut = Reply(text="2", finish_reason="abort")
    with OpenAIServer(lambda request: cut if request.prompt == "1+1=" else Reply(text="3")) as server:
        evaluator = PluginEvaluator("first-line", tmp_path / "kept", SystemClock())
        result = evaluate_one(evaluator, suite_of(benchmark), endpoint_of(server), plan_id="p")
    assert [s.score for s in result.samples] == [None, 1.0]
    assert "abort" in result.samples[0].detail


@pytest.fixture(params=MESSAGES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def line(tmp_path: Path) -> Line:
    path = tmp_path / "alerts.jsonl"
    program = Program(name="append", options=(("path", str(path)),))
    return Line(PluginChannel("team", program, patience_s=25.0), lambda: len(path.read_text().splitlines()))


class Listed:
    """A run whose trainer notes every checkpoint in a list."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.now = datetime.now(UTC)
        self.source = self._open()

    def save(self, step: int, *, seed: int) -> None:
        self._list(trainer.save(self._folder / "out", step, seed=seed))

    def save_half(self, step: int) -> None:
        folder = trainer.save(self._folder / "out", step)
        (folder / "model.safetensors").write_bytes(b"half")
        self._list(folder)

    def delete(self, step: int) -> None:
        for path in (self._folder / "out" / f"checkpoint-{step}").iterdir():
            path.unlink()

    def restart(self) -> None:
        self.source.close()
        self.source = self._open()

    def _list(self, folder: Path) -> None:
        with (self._folder / "folders.txt").open("a") as file:
            file.write(f"{folder}\n")

    def _open(self) -> CheckpointSource:
        place = str(self._folder / "folders.txt")
        return PluginSource("run", place, self._folder / "pins", Program(name="list"))


@pytest.fixture  # type: ignore[no-redef]
def run(tmp_path: Path) -> Iterator[Run]:
    world = Listed(tmp_path)
    yield world
    world.source.close()
