"""The demo's two processes: started, followed and stopped, here with a trainer and a `tracker` that take a moment."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[3] / "examples" / "tiny_forgetting"

TRAINER = "print('step 1')\n"
ENDLESS_TRAINER = "import time\nprint('step 1')\ntime.sleep(60)\n"

TRACKER = """
import signal, sys, time
from pathlib import Path

def stop(*_):
    print("tracker stopped in order", flush=True)
    sys.exit(130)

def runs(pid):
    stat = Path("/proc", pid, "stat")
    return stat.exists() and " Z " not in stat.read_text()

signal.signal(signal.SIGTERM, stop)
said = Path(__file__).with_name("history").read_text() if "--json" in sys.argv else f"tracker {sys.argv[1]}"
print(said, flush=True)
while sys.argv[1] == "watch" and runs(sys.argv[sys.argv.index("--until-exit-of") + 1]):
    time.sleep(0.05)
"""


class Stage:
    """A copy of the demo in an environment of its own, whose `tracker` command and trainer are ours."""

    def __init__(self, folder: Path) -> None:
        self.place = folder / "place"
        self._bin = folder / "environment" / "bin"
        self._example = folder / "example"
        shutil.copytree(EXAMPLE, self._example, ignore=shutil.ignore_patterns("__pycache__"))
        self._bin.mkdir(parents=True)
        environment = Path(sys.prefix)
        (self._bin.parent / "lib").symlink_to(environment / "lib")
        (self._bin.parent / "pyvenv.cfg").write_bytes((environment / "pyvenv.cfg").read_bytes())
        (self._bin / "python").symlink_to(sys.executable)
        self.tracker(TRACKER)
        self.trainer(TRAINER)
        self.history("forgotten")

    def trainer(self, code: str) -> None:
        (self._example / "train.py").write_text(code, encoding="utf-8")

    def tracker(self, code: str) -> None:
        script = self._bin / "tracker"
        script.write_text(f"#!{self._bin / 'python'}\n{code}", encoding="utf-8")
        script.chmod(0o755)

    def history(self, word_of_sums: str, last_step: int = 1000) -> None:
        """Let the tracker say that each skill got its verdict at every step, sums `word_of_sums`."""
        words = {"facts": "forgotten", "sums": word_of_sums, "reversal": "improved"}
        verdicts = [{"benchmark": name, "word": word, "score": 0.5} for name, word in words.items()]
        reports = [{"step": step, "verdicts": verdicts} for step in range(100, last_step + 1, 100)]
        (self._bin / "history").write_text(json.dumps({"result": {"reports": reports, "gaps": []}}), encoding="utf-8")

    def incidents(self, *names: str) -> None:
        """Let the tracker say that these incidents ended the training."""
        incidents = [{"cause": {"trouble": {"name": name}}} for name in names]
        (self._bin / "history").write_text(json.dumps({"result": {"incidents": incidents}}), encoding="utf-8")

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        command = [str(self._bin / "python"), str(self._example / "demo.py"), "--dir", str(self.place), *arguments]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def run(self, *arguments: str) -> tuple[int, str]:
        demo = self.start(*arguments)
        output, _ = demo.communicate(timeout=300)
        return demo.returncode, output


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def test_a_demo_that_shows_what_it_should_ends_with_the_result_and_the_next_commands(stage: Stage) -> None:
    code, output = stage.run()
    assert code == 0
    assert "UNEXPECTED" not in output
    assert output.index("tracker watch") < output.index("tracker history") < output.index("as expected")
    assert f"tracker ui --config {stage.place}/tracker.toml" in output
    assert "the HTML report, tracker report" in output
    assert (stage.place / "train.log").read_text(encoding="utf-8") == "step 1\n"


def test_a_skill_that_was_not_flagged_is_said_and_the_exit_code_is_3(stage: Stage) -> None:
    stage.history("inconclusive")
    code, output = stage.run()
    assert code == 3
    assert "UNEXPECTED   sums: expected forgotten, but it was NOT reported" in output


def test_a_checkpoint_that_was_not_evaluated_is_named(stage: Stage) -> None:
    stage.history("forgotten", last_step=900)
    code, output = stage.run()
    assert code == 3
    assert "NOT evaluated: 1000" in output


@pytest.mark.parametrize(("names", "code"), [(("host_oom",), 0), (("host_oom", "python_error"), 3), ((), 3)])
def test_a_crash_that_was_asked_for_ends_with_its_incident(stage: Stage, names: tuple[str, ...], code: int) -> None:
    stage.trainer("import sys\nassert sys.argv[-2:] == ['--crash-at', '700']\nsys.exit(1)\n")
    stage.incidents(*names)
    ended, output = stage.run("--crash-at", "700")
    assert ended == code
    assert output.index("tracker incidents") < output.index(f"one incident: {', '.join(names) or 'none'}")
    assert ("UNEXPECTED" in output) == bool(code)


def test_a_trainer_that_fails_ends_the_demo_with_the_end_of_its_log(stage: Stage) -> None:
    stage.trainer("raise OSError(28, 'No space left on device')\n")
    code, output = stage.run()
    assert code == 4
    assert "the trainer failed with exit code 1" in output
    assert "No space left on device" in output


def test_a_tracker_that_fails_ends_the_demo_and_the_trainer(stage: Stage) -> None:
    stage.trainer(ENDLESS_TRAINER)
    stage.tracker("import sys\nsys.exit(4)\n")
    code, output = stage.run()
    assert code == 4
    assert "`tracker watch` failed with exit code 4" in output
    assert not _trainer_runs(stage)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_stopped_demo_stops_both_processes_and_exits_with_130(stage: Stage, number: signal.Signals) -> None:
    stage.trainer(ENDLESS_TRAINER)
    stage.tracker(TRACKER.replace("and runs(", "or runs("))  # it may see the trainer's end before its own signal
    demo = stage.start()
    assert demo.stdout is not None
    for line in demo.stdout:
        if line == "tracker watch\n":
            break
    demo.send_signal(number)
    output, _ = demo.communicate(timeout=300)
    assert demo.returncode == 130
    assert "tracker stopped in order" in output
    assert "Traceback" not in output
    assert not _trainer_runs(stage)


# --- private


def _trainer_runs(stage: Stage) -> bool:
    marker = (stage.place / ".made-by-the-checkpoint-tracker-demo").read_text(encoding="utf-8")
    pid = int(marker.split("train.py, pid ")[1].split()[0])
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
