import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from eval_jobs.execute.worker.heartbeat import Heartbeat
from eval_jobs.ports import Note
from eval_jobs.records.progress import Progress, Stage, Unit, progress_text
from eval_jobs.run import Tools, run_plan
from eval_jobs.types import Checkpoint, Endpoint, EngineInfo, ServeSpec
from tests.fakes.clock import FakeClock
from tests.fakes.engine import FakeEngine
from tests.fakes.evaluator import FakeEvaluator
from tests.fakes.prober import FakeProber
from tests.records import forgetting_run

PLAN = forgetting_run(checkpoints=1, samples=2, trouble=False).records[0].plan
INFO = EngineInfo(name="fake", version="1", load_method="remote", load_s=0.0, log="")
ENDPOINT = Endpoint(base_url="http://127.0.0.1:9/v1", model="fake", api_key_env="", info=INFO)


def counted(*said: Progress) -> int:
    """Return how many answered samples the next beat tells after these."""
    beats: list[int] = []
    is_over = threading.Event()

    def extend(_: Progress | None, answered: int) -> bool:
        beats.append(answered)
        is_over.set()
        return False

    heartbeat = Heartbeat(extend, on_lost=lambda: None, lease_s=0.04)
    for one in said:
        heartbeat.show(one)
    with heartbeat:
        is_over.wait()
    return beats[0]


class ShardCounting(FakeEngine):
    """An engine as a plugin may bring it."""

    @contextmanager
    def serving(self, checkpoint: Checkpoint, spec: ServeSpec, *, progress: Note) -> Iterator[Endpoint]:
        progress("shards 7/10")
        with super().serving(checkpoint, spec, progress=progress) as endpoint:
            yield endpoint


def test_an_engine_that_counts_shards_is_loading_and_no_sample_is_answered_by_it() -> None:
    shown: list[Progress] = []
    tools = Tools(
        engine=ShardCounting(ENDPOINT), evaluator=FakeEvaluator(str), prober=FakeProber(), clock=FakeClock()
    )  # fmt: skip
    run_plan(PLAN, tools=tools, progress=shown.append)
    (shards,) = [now for now in shown if "shards" in progress_text(now)]
    assert (shards.stage, progress_text(shards)) == (Stage.LOADING, "shards 7/10")
    assert counted(shards) == 0


def sums(done: int, **fields: object) -> Progress:
    return Progress(**{"stage": Stage.EVALUATING, "benchmarks": ("sums",), "done": done, "total": 9} | fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("said", "answered"),
    [
        ((), 0),
        ((sums(3), sums(2)), 3),
        ((sums(3), sums(4, benchmarks=("facts",))), 7),
        ((sums(9, pass_number=1), sums(1, pass_number=2)), 10),
        ((sums(5, unit=Unit.REQUESTS, total=None), sums(5, stage=Stage.LOADING)), 0),
        ((sums(3), Progress(stage=Stage.EVALUATING, note="facts 8/9")), 3),
    ],
)
def test_answered_samples_are_added_up_over_passes_and_benchmarks(said: tuple[Progress, ...], answered: int) -> None:
    assert counted(*said) == answered


@pytest.mark.parametrize(
    ("progress", "text"),
    [
        (None, ""),
        (sums(3), "sums 3/9"),
        (sums(3, total=None), "sums 3"),
        (sums(3, pass_number=2), "second pass: sums 3/9"),
        (Progress(stage=Stage.EVALUATING, benchmarks=("a" * 100,), note="loading"), f"{'a' * 100}: loading"),
        (sums(3, benchmarks=tuple(f"benchmark {n}" for n in range(12))), "12 benchmarks 3/9"),
        (Progress(stage=Stage.LOADING, note="a\x1eb\n" + "c" * 400), "a b " + "c" * 296),
    ],
)
def test_progress_is_one_short_line(progress: Progress | None, text: str) -> None:
    assert progress_text(progress) == text
