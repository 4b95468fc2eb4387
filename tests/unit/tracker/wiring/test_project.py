"""What a tracker.toml becomes: the latency reference, and the source of checkpoints."""

import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from eval_jobs.errors import CheckpointNotFound, ConfigError
from eval_jobs.queue_types import Backlog
from eval_jobs.types import Checkpoint
from tests.records import forgetting_run
from tests.tiny_model import write_checkpoint
from tracker.app.world import MeasurementPlan, QueueOrder
from tracker.config import parse_config
from tracker.wiring.checkpoints import pin_named, run_id_of
from tracker.wiring.programs import measurement_of
from tracker.wiring.project import Project


def project(folder: Path, probe: str) -> Project:
    (folder / "sums.jsonl").write_text('{"question": "1 + 1", "answer": "2"}\n')
    text = '[run]\nname = "r"\noutput_dir = "out"\n[[benchmark]]\nbenchmark = "exact"\ndata = "sums.jsonl"\n[probe]\n'
    return Project(parse_config(text + probe, folder / "tracker.toml"))


def measurement(folder: Path, probe: str) -> MeasurementPlan:
    opened = project(folder, probe)
    return measurement_of(opened.config, opened.suite())


def test_a_reference_folder_is_pinned_apart_from_the_runs_own_checkpoints(tmp_path: Path) -> None:
    base = write_checkpoint(tmp_path / "base")
    reference = measurement(tmp_path, 'reference = "base"').reference
    assert isinstance(reference, Checkpoint)
    assert (reference.source_uri, reference.step) == (str(base), 0)
    assert Path(reference.uri).is_relative_to(tmp_path / ".tracker" / "reference")
    assert not (tmp_path / ".tracker" / "pins").exists()


def test_naming_it_again_gives_the_same_pin(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "checkpoint-7")
    first, second = (measurement(tmp_path, 'reference = "checkpoint-7"').reference for _ in range(2))
    assert first == second
    assert isinstance(first, Checkpoint)
    assert first.step == 7


def test_a_reference_that_is_not_there_is_said_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(CheckpointNotFound, match="base"):
        measurement(tmp_path, 'reference = "base"')


@pytest.mark.parametrize(
    ("probe", "expected"),
    [("", None), ('reference = "first"', "first"), ('enabled = false\nreference = "first"', None)],
)
def test_without_a_folder_nothing_is_pinned(tmp_path: Path, probe: str, expected: str | None) -> None:
    assert measurement(tmp_path, probe).reference == expected
    assert not (tmp_path / ".tracker").exists()


def in_bucket(folder: Path) -> Project:
    local = project(folder, "")
    run = local.config.run.model_copy(update={"output_dir": "s3://bucket/runs/sft"})
    return Project(local.config.model_copy(update={"run": run}))


def test_a_bucket_without_the_package_for_it_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "s3fs", None)
    monkeypatch.delitem(sys.modules, "tracker.adapters.checkpoints.bucket.client", raising=False)
    with pytest.raises(ConfigError, match=r"checkpoint-tracker\[s3\]"):
        in_bucket(tmp_path).world()


@pytest.mark.parametrize(
    ("checkpoint", "run_id"),
    [
        ("s3://bucket/runs/sft/checkpoint-10", "r"),
        ("s3://bucket/runs/sft/v0/checkpoint-10", "r/v0"),
        ("s3://bucket/elsewhere/checkpoint-10", "r"),
    ],
)
def test_a_checkpoint_in_a_bucket_belongs_to_the_run_that_watching_names(
    checkpoint: str, run_id: str, tmp_path: Path
) -> None:
    assert run_id_of(in_bucket(tmp_path).config, checkpoint) == run_id


def test_a_checkpoint_in_a_folder_belongs_to_the_run_that_watching_names(tmp_path: Path) -> None:
    assert run_id_of(project(tmp_path, "").config, str(tmp_path / "out/v0/checkpoint-10")) == "r/v0"
    assert run_id_of(project(tmp_path, "").config, str(tmp_path / "out/checkpoint-10")) == "r"


def test_a_pin_that_a_person_names_is_the_checkpoint_that_it_holds(tmp_path: Path) -> None:
    """`tracker evaluate PIN`, as a skipped checkpoint says: rotation may have left nothing else of it."""
    made = project(tmp_path, "")
    folder = write_checkpoint(tmp_path / "out" / "v0" / "checkpoint-10")
    pinned = pin_named(made.config, str(folder))
    shutil.rmtree(folder)
    assert pin_named(made.config, pinned.uri) == pinned
    assert pinned.run_id == "r/v0"


def test_a_pin_that_was_given_up_is_said_to_be_so(tmp_path: Path) -> None:
    opened = project(tmp_path, "")
    pinned = pin_named(opened.config, str(write_checkpoint(tmp_path / "out" / "checkpoint-7")))
    opened.pins.release(opened.pins.held()[0])
    with pytest.raises(CheckpointNotFound, match="deleted to save space") as caught:
        pin_named(opened.config, pinned.uri)
    assert "keep.pins" in caught.value.hint


def test_the_order_of_a_run_is_that_of_its_settings(tmp_path: Path) -> None:
    made = project(tmp_path, "requests = 4\n[watch]\nmax_waiting = 7\n")
    assert made.world().order == QueueOrder(backlog=Backlog.NEWEST, max_waiting=7, reask_wait_s=600.0)
    oldest_first = project(tmp_path, 'requests = 4\n[watch]\nbacklog = "oldest"\n')
    assert oldest_first.world().order.backlog is Backlog.OLDEST


def test_a_run_that_was_watched_with_another_state_folder_is_refused(tmp_path: Path) -> None:
    def with_state(name: str, run: str = "r") -> Project:
        config = project(tmp_path, "").config
        moved = config.run.model_copy(update={"state_dir": tmp_path / name, "name": run})
        store = config.store.model_copy(update={"database": f"sqlite:///{tmp_path}/shared.db"})
        return Project(config.model_copy(update={"run": moved, "store": store}))

    record = forgetting_run().records[0]
    checkpoint = replace(record.plan.checkpoint, run_id="r/sub")
    with_state("one").history.append(replace(record, plan=replace(record.plan, checkpoint=checkpoint)))
    with_state("one").world()
    with pytest.raises(ConfigError, match=r"no answers in .*two/.* for the 1 result of run r in") as raised:
        with_state("two").world()
    assert "run.state_dir" in raised.value.hint
    with_state("two", run="other").world()


def test_the_score_of_guessing_is_known_from_the_benchmark(tmp_path: Path) -> None:
    rows = (
        '{"question": "a", "choices": ["x", "y"], "answer": "A"}',
        '{"question": "b", "A": 1, "B": 2, "C": 3, "D": 4, "answer": "B"}',
    )
    (tmp_path / "colours.jsonl").write_text("\n".join(rows))
    (tmp_path / "sums.jsonl").write_text('{"question": "1 + 1", "answer": "2"}\n')
    benchmarks = (
        'benchmark = "choice"\ndata = "colours.jsonl"',
        'benchmark = "choice"\ndata = "colours.jsonl"\nname = "asked"\nchance = 0.1',
        'benchmark = "choice"\ndata = "gone.jsonl"',
        'benchmark = "exact"\ndata = "sums.jsonl"',
        'benchmark = "mmlu"',
        'benchmark = "commonsense_qa"\nname = "errors"\nhigher_is_better = false',
        'benchmark = "truthful_qa"',
        'benchmark = "piqa"\nevaluator = "lm-eval"',
        'benchmark = "copa"\nevaluator = "lm-eval"\noptions = { metric = "f1" }',
        'benchmark = "arc_easy"\nevaluator = "lm-eval"\ndata = "tasks"',
    )
    text = '[run]\nname = "r"\noutput_dir = "out"\n' + "".join(f"[[benchmark]]\n{one}\n" for one in benchmarks)
    policy = Project(parse_config(text, tmp_path / "tracker.toml")).policy
    assert policy.chance == {"colours": 0.375, "asked": 0.1, "sums": 0.0, "mmlu": 0.25, "piqa": 0.5}
