"""Signs of life of this process, on a clock that is set."""

import os
import subprocess
import sys
import time
from pathlib import Path

from eval_jobs.execute.life import EVERY_S, LEFT_S, SignOfLife, lives
from tests.fakes.clock import FakeClock


def files(work_dir: Path) -> list[Path]:
    return sorted((work_dir / "alive").iterdir())


def test_the_last_sign_is_known_with_its_age(tmp_path: Path) -> None:
    clock = FakeClock()
    with SignOfLife(tmp_path, "worker", clock) as sign:
        assert lives(tmp_path, "worker", clock) == ()
        sign.give("waiting for plans")
        clock.sleep(70)
        (life,) = lives(tmp_path, "worker", clock)
        assert (life.pid, life.activity, life.age_s) == (os.getpid(), "waiting for plans", 70)
        assert lives(tmp_path, "watch", clock) == ()
    assert files(tmp_path) == []


def test_a_loop_that_goes_round_quickly_writes_seldom(tmp_path: Path) -> None:
    clock = FakeClock()
    with SignOfLife(tmp_path, "worker", clock) as sign:
        sign.give("first")
        (path,) = files(tmp_path)
        path.unlink()
        clock.sleep(EVERY_S / 2)
        sign.give("second")
        assert files(tmp_path) == []
        clock.sleep(EVERY_S / 2)
        sign.give("third")
        assert [life.activity for life in lives(tmp_path, "worker", clock)] == ["third"]


def test_whoever_is_gone_or_elsewhere_does_not_count(tmp_path: Path) -> None:
    clock = FakeClock()
    with SignOfLife(tmp_path, "worker", clock) as sign:
        sign.give("working")
        (path,) = files(tmp_path)
        kind, _, started, machine = path.stem.split("-")
        gone = subprocess.Popen([sys.executable, "-c", ""])
        gone.wait()
        for pid, start, where in ((gone.pid, started, machine), (os.getpid(), "1", machine), (1, started, "0badcafe")):
            path.with_name(f"{kind}-{pid}-{start}-{where}.json").write_bytes(path.read_bytes())
        assert [life.pid for life in lives(tmp_path, "worker", clock)] == [os.getpid()]


def test_what_the_dead_left_is_cleared_away_after_a_while(tmp_path: Path) -> None:
    (tmp_path / "alive").mkdir()
    for name, age_s in (("worker-1-1-ab.json", 2 * LEFT_S), ("worker-2-1-ab.json", LEFT_S / 2)):
        (tmp_path / "alive" / name).write_text("{}")
        at = time.time() - age_s
        os.utime(tmp_path / "alive" / name, (at, at))
    with SignOfLife(tmp_path, "worker", FakeClock()):
        assert [path.name for path in files(tmp_path)] == ["worker-2-1-ab.json"]


def test_a_folder_that_cannot_be_written_ends_nothing(tmp_path: Path) -> None:
    (tmp_path / "alive").write_text("a file is where the folder should be")
    with SignOfLife(tmp_path, "worker", FakeClock()) as sign:
        sign.give("working all the same")
    assert lives(tmp_path, "worker", FakeClock()) == ()
