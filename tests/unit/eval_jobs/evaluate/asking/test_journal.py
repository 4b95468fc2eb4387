"""What an evaluation writes down before it asks, and when what lies there is of no use."""

from pathlib import Path
from typing import Any

import pytest

from eval_jobs.evaluate.asking.journal import Journal, PlanChanged

ROWS: list[dict[str, object]] = [{"subset": "s", "index": n, "repeat": 0, "messages": [["user", "1"]]} for n in (0, 1)]
VERSION: dict[str, object] = {"evalscope": "1.14.1"}


def journal(folder: Path, said: list[dict[str, Any]] | None = None) -> Journal:
    request = {"benchmark": "b", "repeats": 1, "task": {"work_dir": str(folder / "run")}}
    return Journal(request, (said if said is not None else []).append)


def test_the_same_plan_of_the_same_version_goes_on(tmp_path: Path) -> None:
    journal(tmp_path).plan(ROWS, made_by=VERSION)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "run").iterdir()}
    journal(tmp_path).plan(ROWS, made_by=VERSION)
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "run").iterdir()} == before


@pytest.mark.parametrize(
    ("rows", "version"),
    [(ROWS[::-1], VERSION), (ROWS[:1], VERSION), (ROWS, {"evalscope": "1.15.0"})],
    ids=["another order", "fewer questions", "another version"],
)
def test_what_another_plan_or_version_left_is_refused(
    tmp_path: Path, rows: list[dict[str, object]], version: dict[str, object]
) -> None:
    journal(tmp_path).plan(ROWS, made_by=VERSION)
    with pytest.raises(PlanChanged):
        journal(tmp_path).plan(rows, made_by=version)


@pytest.mark.parametrize("name", ["made_by.jsonl", "planned.jsonl"])
@pytest.mark.parametrize("torn", [b"", b'{"evalsco', b"\xff\xfe"])
def test_files_torn_by_a_kill_are_refused(tmp_path: Path, name: str, torn: bytes) -> None:
    journal(tmp_path).plan(ROWS, made_by=VERSION)
    (tmp_path / "run" / name).write_bytes(torn)
    with pytest.raises(PlanChanged):
        journal(tmp_path).plan(ROWS, made_by=VERSION)


def test_a_folder_of_an_earlier_version_of_this_program_is_refused(tmp_path: Path) -> None:
    """It did not say there who had made it."""
    journal(tmp_path).plan(ROWS, made_by=VERSION)
    (tmp_path / "run" / "made_by.jsonl").unlink()
    with pytest.raises(PlanChanged):
        journal(tmp_path).plan(ROWS, made_by=VERSION)


def test_a_kill_between_the_two_files_costs_nothing(tmp_path: Path) -> None:
    journal(tmp_path).plan(ROWS, made_by=VERSION)
    (tmp_path / "run" / "planned.jsonl").unlink()
    journal(tmp_path).plan(ROWS, made_by=VERSION)


def test_progress_names_its_benchmark(tmp_path: Path) -> None:
    said: list[dict[str, Any]] = []
    one = journal(tmp_path, said)
    one.plan(ROWS, made_by=VERSION)
    one.begin(metric="accuracy", to_ask=1)
    one.step(answered=True)
    assert said == [{"type": "progress", "benchmark": "b", "done": done, "total": 2} for done in (1, 2)]


def test_the_time_of_requests_is_added_up(tmp_path: Path) -> None:
    one = journal(tmp_path)
    for seconds in (0.25, 0.5):
        one.note_asking(seconds)
    assert one.asking_s == 0.75
