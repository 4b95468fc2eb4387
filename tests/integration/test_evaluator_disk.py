"""The real evaluator on a disk that is full, or that it may not write on: never a wrong answer, and nothing lost."""

import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from eval_jobs.errors import DiskFull, StoreError
from eval_jobs.evaluate.evalscope.evaluator import EvalScopeEvaluator
from tests.evaluating import AT_ONCE, ask, number_of, right, sums
from tests.fakes.openai_server import OpenAIServer, Reply, Request
from tests.requires import small_disk

COUNT = 60
FREE_ANSWERS = 12
"""About so many fit on the disk before it is full."""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small disk of its own."""
    folder = tmp_path / "disk"
    with small_disk(folder, size="8m"):
        yield folder


@pytest.fixture
def evaluator(disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EvalScopeEvaluator]:
    """One whose caches do not lie on the small disk."""
    for name in ("HF_HOME", "HF_DATASETS_CACHE", "MODELSCOPE_CACHE", "EVALSCOPE_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "caches" / name))
    evaluator = EvalScopeEvaluator(disk / "work", retry_policy=AT_ONCE)
    yield evaluator
    evaluator.close()


def fill(disk: Path, *, leave_bytes: int) -> Path:
    """Write a file that leaves so much room; return it."""
    filler = disk / "filler"
    free = int(subprocess.check_output(["stat", "-f", "-c", "%f", str(disk)])) * 4096
    with suppress(OSError), filler.open("wb") as file:  # others may have filled it meanwhile
        file.write(b"\0" * (free - leave_bytes))
    return filler


def test_a_disk_that_is_full_in_the_middle_is_an_infrastructure_failure_and_is_resumed(
    evaluator: EvalScopeEvaluator, disk: Path, tmp_path: Path
) -> None:
    benchmark = sums(tmp_path, COUNT)

    def answer(request: Request) -> Reply:
        if request.number == FREE_ANSWERS:
            fill(disk, leave_bytes=4096)
        return right(request)

    with OpenAIServer(answer) as server, pytest.raises(DiskFull, match="No space left") as caught:
        ask(evaluator, server, benchmark, plan_id="p")
    assert caught.value.retryable
    with OpenAIServer(right) as server, pytest.raises(DiskFull):
        ask(evaluator, server, benchmark, plan_id="p")
    (disk / "filler").unlink()
    with OpenAIServer(right) as server:
        result = ask(evaluator, server, benchmark, plan_id="p")
        again = [number_of(request) for request in server.requests]
    assert [sample.score for sample in result.samples] == [1.0] * COUNT
    assert len(again) == len(set(again)) <= COUNT - FREE_ANSWERS + 6, "each thread may lose one"


def test_space_that_comes_back_in_the_middle_does_not_make_two_torn_answers_one(
    evaluator: EvalScopeEvaluator, disk: Path, tmp_path: Path
) -> None:
    """A line that is written behind a torn one is lost with it; both questions are asked again."""
    benchmark = sums(tmp_path, COUNT)
    with OpenAIServer(right) as server:
        ask(evaluator, server, benchmark, plan_id="p")
        (answers,) = disk.glob("work/runs/p/*/predictions/model/*.jsonl")
        lines = answers.read_bytes().splitlines(keepends=True)
        answers.write_bytes(b"".join([*lines[:10], lines[10][:-40], *lines[11:]]))
        server.requests.clear()
        result = ask(evaluator, server, benchmark, plan_id="p")
        assert len(server.requests) == 2
    assert [sample.score for sample in result.samples] == [1.0] * COUNT


def test_a_disk_that_may_not_be_written_is_named(evaluator: EvalScopeEvaluator, disk: Path, tmp_path: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    with OpenAIServer(right) as server, pytest.raises(StoreError, match=r"cannot write to .*: Read-only") as caught:
        ask(evaluator, server, sums(tmp_path, 3), plan_id="p")
    assert str(disk) in caught.value.message
    assert server.requests == []
