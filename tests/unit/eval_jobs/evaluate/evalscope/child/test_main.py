"""Whatever a benchmark's code does, the parent hears what became of every task."""

import asyncio
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from eval_jobs.evaluate.asking.journal import Journal
from eval_jobs.evaluate.common.protocol import Message
from eval_jobs.evaluate.evalscope.child import main as child
from eval_jobs.evaluate.evalscope.child.recorder import Recorder, prompt_of

ENDS = [SystemExit(3), asyncio.CancelledError("too late"), ValueError("no number")]


def journal_of(folder: Path, sent: list[Message]) -> Journal:
    request = {"benchmark": "sums", "repeats": 1, "task": {"work_dir": str(folder / "sums"), "datasets": ["sums"]}}
    return Journal(request, sent.append)


@pytest.mark.parametrize("end", ENDS, ids=repr)
def test_a_benchmark_that_ends_its_thread_is_an_error_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: BaseException
) -> None:
    def evaluate(*_: object) -> None:
        raise end

    monkeypatch.setattr(child, "_evaluate", evaluate)
    sent: list[Message] = []
    shared = cast("child._Shared", SimpleNamespace(loading=threading.Lock()))
    shared.loading.acquire()
    child._send_outcome({}, journal_of(tmp_path, sent), shared, sent.append)
    assert [(message["type"], message["benchmark"]) for message in sent] == [("error", "sums")]
    assert type(end).__name__ in sent[0]["message"]
    assert not shared.loading.locked(), "the next benchmark may load"


@pytest.mark.parametrize("end", ENDS, ids=repr)
def test_a_sample_over_which_a_scorer_ends_its_thread_is_answered_and_not_scored(
    tmp_path: Path, end: BaseException
) -> None:
    recorder = object.__new__(Recorder)
    recorder.journal = journal_of(tmp_path, [])
    recorder._execution_tracker = SimpleNamespace(record_error=lambda _: None)
    item = SimpleNamespace(needs_predict=True, prediction_persisted=True, subset="all", sample=SimpleNamespace(id=7))
    recorder._note_failure(item, end)
    failure = recorder.journal.failures["all", 7]
    assert failure.answered
    assert type(end).__name__ in failure.detail


def test_prompts_with_the_same_beginning_are_sent_one_after_the_other() -> None:
    texts = ["passage a: who?", "passage b: who?", "passage a: when?", "passage b: when?"]
    chats = [[SimpleNamespace(role="user", content=text)] for text in texts[2:]]
    sent = [SimpleNamespace(needs_predict=True, sample=SimpleNamespace(input=text)) for text in (*texts[:2], *chats)]
    answered = SimpleNamespace(needs_predict=False, sample=None)
    order = sorted([*sent, answered], key=prompt_of)
    assert order == [answered, sent[2], sent[0], sent[3], sent[1]]


@pytest.mark.parametrize(
    ("dataset_args", "expected"),
    [
        ({}, "cannot download the data of `sums` from modelscope (ValueError)"),
        ({"local_path": "/d"}, "cannot load the data of `sums`: ValueError: 数据集不存在"),
    ],
)
def test_a_failed_download_is_reported_without_the_words_of_the_hubs_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dataset_args: dict[str, str], expected: str
) -> None:
    def evaluate(task: Message, journal: Journal, *_: object) -> None:
        del task
        journal.stage = "loading"
        raise ValueError("数据集不存在")

    monkeypatch.setattr(child, "_evaluate", evaluate)
    sent: list[Message] = []
    shared = cast("child._Shared", SimpleNamespace(loading=threading.Lock()))
    shared.loading.acquire()
    task = {"task": {"dataset_hub": "modelscope", "dataset_args": {"sums": dataset_args}}}
    child._send_outcome(task, journal_of(tmp_path, sent), shared, sent.append)
    assert sent[0]["message"] == expected
