"""A project on a disk without any free byte: what reads works, and `gc` makes room."""

import json
import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from tests import trainer
from tests.commands import tracker
from tests.records import FORGETTING_TOML, RUN, forgetting_run
from tests.requires import small_disk
from tracker.adapters.checkpoints.folder.once import pin_folder
from tracker.adapters.checkpoints.pins.store import FolderOfPins
from tracker.api.opening import open_project

SETTINGS = "[tracking]\nenabled = false\n[keep]\nsamples = 1\npins = 1\n"


def fill(disk: Path) -> None:
    with suppress(OSError), (disk / "filler").open("wb", buffering=0) as file:
        while file.write(bytes(4096)):
            pass


def make_project(folder: Path) -> None:
    """Store a run with two pins; the trainer's folder, on the same disk, still has the files of both."""
    (folder / "tracker.toml").write_text(FORGETTING_TOML + SETTINGS)
    project, run = open_project(folder / "tracker.toml"), forgetting_run()
    project.queue.state()
    pins = [
        pin_folder(trainer.save(folder / "out", step, seed=step), run_id=RUN, pins_dir=project.config.run.pins_dir)
        for step in (700, 900)
    ]
    of_step = {pin.step: pin for pin in pins}
    for record in run.records:
        checkpoint = of_step.get(record.plan.checkpoint.step, record.plan.checkpoint)
        project.history.append(replace(record, plan=replace(record.plan, checkpoint=checkpoint)))
    for report in run.reports:
        project.history.append_reports(report)
    project.database.dispose()


def test_on_a_full_disk_commands_read_and_gc_makes_room(tmp_path: Path) -> None:
    with small_disk(disk := tmp_path / "disk", size="8m"):
        make_project(disk)
        fill(disk)
        assert os.statvfs(disk).f_bavail == 0
        assert "forgotten" in tracker(disk, "history")
        assert tracker(disk, "report", "--output", str(tmp_path / "r.html")) == f"{tmp_path}/r.html\n"
        deleted = [item for item in json.loads(tracker(disk, "gc", "--json"))["result"] if item["is_deleted"]]
        assert {item["kind"] for item in deleted} == {"pin", "answers"}
        pins = FolderOfPins(disk / ".tracker" / "pins")
        assert [pin.checkpoint.step for pin in pins.held()] == [900]
        assert len(pins.given_up()) == 1
        assert os.statvfs(disk).f_bavail > 0
