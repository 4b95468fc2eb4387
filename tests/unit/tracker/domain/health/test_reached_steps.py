"""Steps that only a progress bar shows: where a training failed, also between two logged steps or without any."""

from datetime import UTC, datetime, timedelta

import pytest

from tests.log_reading import read_log
from tracker.config.health import load_rules
from tracker.domain.health.logs.streams import Stream
from tracker.domain.health.logs.text import RawLine
from tracker.domain.health.run_log import RunLog
from tracker.domain.health.run_state import RunState, StreamState

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"
LOSS = "{'loss': '2.5', 'epoch': '0.1'}"
TRACEBACK = ["Traceback (most recent call last):", *['  File "train.py", line 3, in main'] * 24]


def bar(step: int, total: int = 100, name: str = "", beside: str = "") -> str:
    return f"\r{name} {step}%|#   | {step}/{total} [00:10<01:20, 1.1it/s{beside}]"


BARS: dict[str, tuple[list[str], int | None]] = {
    "of transformers, beyond the newest line": ([bar(10), LOSS, bar(14), OOM], 14),
    "of an evaluation, with another length": ([bar(10), LOSS, bar(14, 37), OOM], 10),
    "with a loss, and no line": ([bar(3, beside=", loss=2.5"), OOM], 3),
    "named, of the second epoch": ([bar(14, name="Epoch 1: "), OOM], 114),
    "of any loop": ([bar(14), OOM], None),
    "that begins again with each epoch": ([bar(99, beside=", loss=2.5"), bar(3, beside=", loss=2.4"), OOM], None),
    "beside a line that names its step": (["step 20 | loss: 2.5", bar(37, beside=", loss=2.5"), OOM], 20),
    "of which the output is late": ([bar(10), LOSS, LOSS.replace("0.1", "0.2"), bar(14), OOM], 10),
}


@pytest.mark.parametrize("name", BARS)
def test_a_failure_is_at_the_step_of_a_bar_that_is_the_trainings(name: str) -> None:
    lines, step = BARS[name]
    log = read_log(lines, RunLog(rules=load_rules().lines, state=RunState()))
    (one,) = log.incidents()
    assert one.cause.step == step


def test_bars_without_lines_are_the_pace_of_a_training_and_its_progress_after_trouble() -> None:
    log = RunLog(rules=load_rules().lines, state=RunState())
    begin, state = datetime(2026, 1, 1, tzinfo=UTC), StreamState()
    for second in range(12):
        text = OOM if second == 6 else bar(second, beside=", loss=2.5")
        stream = Stream(name="train.log", read_at=begin + timedelta(seconds=second), is_history=False)
        log.take(RawLine(number=1, text=text), stream, state)
    assert (log.state.pace.usual_s, log.steps.reached, log.steps.last) == (1.0, 11, None)
    assert [(one.cause.step, one.ended_step) for one in log.trouble.ended.values()] == [(5, 9)]


def test_bars_of_one_log_give_the_step_of_losses_in_another() -> None:
    log = RunLog(rules=load_rules().lines, state=RunState())
    for name, text in (("job.out", LOSS), ("job.err", bar(14)), ("job.err", OOM)):
        log.take(RawLine(number=1, text=text), Stream(name=name), StreamState() if text == LOSS else _ERRORS)
    (one,) = log.incidents()
    assert one.cause.step == 14


_ERRORS = StreamState()

SIZES: dict[str, tuple[list[str], list[int]]] = {
    "before a long traceback": (["input_ids torch.Size([8, 4096])", *TRACEBACK], [1]),
    "the newest of several": (["seq_len: 512", "seq_len: 16384"], [2]),
    "of a batch on each device": (["Instantaneous batch size per device = 8", "Gradient steps = 4"], [1]),
    "none": (["block: 7 of 9", "shape of the data is unknown", "batch 17"], []),
}


@pytest.mark.parametrize("name", SIZES)
def test_the_sizes_of_the_last_batch_are_evidence_of_a_full_memory(name: str) -> None:
    lines, numbers = SIZES[name]
    log = read_log([*lines, OOM, OOM], RunLog(rules=load_rules().lines, state=RunState()))
    (one,) = log.incidents()
    assert [line.number for line in one.evidence] == [len(lines) + 1, *numbers]
    assert [line.text for line in one.evidence] == [OOM, *(lines[number - 1] for number in numbers)]


def test_the_hint_says_how_memory_grew() -> None:
    lines = [f"step {k} | loss: 2.5 | memory: {k / 4}" for k in range(100, 300)]
    log = read_log([*lines, OOM], RunLog(rules=load_rules().lines, state=RunState()))
    (one,) = log.incidents()
    assert "memory grew until it was full: look for a leak; memory 2" in one.hint
