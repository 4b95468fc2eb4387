"""Scalars of TensorBoard's event files: of both kinds, from an offset on, in files that grow or are damaged."""

import struct
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eval_jobs.errors import ConfigError
from tests.requires import requires_package
from tracker.adapters.trainer_files.event_files import MAX_RECORD_BYTES, read_step_rows
from tracker.domain.health.logs.step_lines import StepRow

Rows = list[tuple[int | None, dict[str, float]]]


@pytest.fixture
def package() -> None:
    requires_package("tensorboard")


with_package = pytest.mark.usefixtures("package")


def event(step: int, *values: Any) -> bytes:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary

    return bytes(Event(step=step, wall_time=1.5, summary=Summary(value=values)).SerializeToString())


def simple(tag: str, number: float) -> Any:
    from tensorboard.compat.proto.summary_pb2 import Summary

    return Summary.Value(tag=tag, simple_value=number)


def tensor(tag: str, *, sizes: Iterable[int] = (), **content: Any) -> Any:
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.compat.proto.tensor_pb2 import TensorProto

    made = TensorProto(**content)
    for size in sizes:
        made.tensor_shape.dim.add(size=size)
    return Summary.Value(tag=tag, tensor=made)


def record(data: bytes, *, length: int | None = None) -> bytes:
    return struct.pack("<QI", len(data) if length is None else length, 7) + data + struct.pack("<I", 7)


def read(path: Path, content: bytes, offset: int = 0) -> tuple[Rows, int]:
    path.write_bytes(content)
    with path.open("rb") as file:
        rows, after = read_step_rows(file, offset)
    return told(rows), after


def told(rows: Iterable[StepRow]) -> Rows:
    return [(row.step, dict(row.values)) for row in rows]


@with_package
def test_scalars_of_both_kinds_are_found_and_nothing_else(tmp_path: Path) -> None:
    events = [
        event(0),
        event(10, simple("train/loss", 2.5), simple("Train/LR", 0.5)),
        event(20, tensor("loss", dtype=1, float_val=[1.5])),
        event(30, tensor("loss", dtype=1, tensor_content=struct.pack("<f", 0.25))),
        event(40, tensor("loss", dtype=2, sizes=[1], tensor_content=struct.pack("<d", 0.125))),
        event(50, tensor("loss", dtype=2, double_val=[0.0625])),
        event(60, tensor("text", dtype=7, string_val=[b"loss"]), tensor("count", dtype=3, int_val=[5])),
        event(70, tensor("histogram", dtype=2, sizes=[2, 3], tensor_content=b"\0" * 48)),
        event(80, tensor("odd", dtype=1, tensor_content=b"\0" * 5), tensor("none", dtype=1)),
        event(-5, simple("loss", 1)),
    ]
    rows, _ = read(tmp_path / "events", b"".join(map(record, events)))
    assert rows == [
        (10, {"train/loss": 2.5, "train/lr": 0.5}),
        *((20, {"loss": 1.5}), (30, {"loss": 0.25}), (40, {"loss": 0.125}), (50, {"loss": 0.0625})),
    ]


@with_package
def test_reading_continues_where_it_ended_wherever_the_file_was_cut(tmp_path: Path) -> None:
    records = [record(event(step, simple("loss", step / 2))) for step in range(1, 4)]
    content = b"".join(records)
    wanted: Rows = [(1, {"loss": 0.5}), (2, {"loss": 1.0}), (3, {"loss": 1.5})]
    for cut in range(len(content) + 1):
        before, offset = read(tmp_path / "events", content[:cut])
        after, end = read(tmp_path / "events", content, offset)
        assert before + after == wanted
        assert end == len(content)
        assert offset in {0, *(sum(map(len, records[:n])) for n in range(4))}


@with_package
def test_a_record_that_cannot_be_is_the_end_and_one_that_is_no_event_is_passed_over(tmp_path: Path) -> None:
    good = record(event(1, simple("loss", 2.5)))
    huge = record(b"", length=MAX_RECORD_BYTES + 1)
    assert read(tmp_path / "events", good + huge + good) == ([(1, {"loss": 2.5})], len(good))
    assert read(tmp_path / "events", record(b"\xff" * 9) + good)[0] == [(1, {"loss": 2.5})]
    assert read(tmp_path / "events", good, offset=10**6) == ([], 10**6)


@with_package
def test_files_of_the_writer_of_tensorboard_are_read(tmp_path: Path) -> None:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    writer = EventFileWriter(str(tmp_path))
    for step in range(50):
        writer.add_event(Event.FromString(event(step, simple("loss", step / 2))))
    writer.close()
    (path,) = tmp_path.glob("events.out.tfevents.*")
    with path.open("rb") as file:
        rows, offset = read_step_rows(file, 0)
    assert told(rows) == [(step, {"loss": step / 2}) for step in range(50)]
    assert offset == path.stat().st_size


@with_package
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=200), st.integers(0, 100))
def test_no_content_is_an_error(tmp_path: Path, content: bytes, offset: int) -> None:
    read(tmp_path / "events", content, offset)
    read(tmp_path / "events", record(content) + content)


def test_without_the_package_the_error_says_how_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard.compat.proto.event_pb2", None)
    with pytest.raises(ConfigError) as caught:
        read(tmp_path / "events", b"")
    assert caught.value.hint == "install it: pip install 'checkpoint-tracker[tensorboard]'"
