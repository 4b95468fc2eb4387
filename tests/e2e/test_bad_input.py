"""Bad input gets one clear message: what, where, what to do. The watcher goes on with the next checkpoint."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tests.commands import TRACKER, run_tracker
from tests.fakes.openai_server import OpenAIServer, Reply
from tests.requires import PROJECT
from tests.tiny_model import write_checkpoint, write_sharded_checkpoint


def tracker(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    result = run_tracker(project, *arguments)
    assert "Traceback" not in result.stderr + result.stdout
    return result


def truncated(folder: Path) -> None:
    weights = write_checkpoint(folder) / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-10])


def missing_shard(folder: Path) -> None:
    next(write_sharded_checkpoint(folder).glob("model-00002*")).unlink()


def not_a_number(folder: Path) -> None:
    weights = write_checkpoint(folder) / "model.safetensors"
    tensors = load_file(weights)
    tensors["lm_head.weight"] = tensors["lm_head.weight"].copy()
    tensors["lm_head.weight"][3, 5] = np.nan
    save_file(tensors, weights)


def pickle_only(folder: Path) -> None:
    (write_checkpoint(folder) / "model.safetensors").rename(folder / "pytorch_model.bin")


def soon_tired_of_waiting(project: Path) -> dict[str, str]:
    """Return the environment of a watcher that in the end asks a store that is away three times, not for a minute."""
    (project / "constants.json").write_text(json.dumps({"tracker.app.daemon": {"LAST_PASSES": 3}}))
    return {"CHAOS_DIR": str(project), "PYTHONPATH": f"{PROJECT}:{PROJECT / 'benchmarks/killing/site'}"}


BROKEN: dict[str, tuple[Callable[[Path], None], str, str]] = {
    "truncated weights": (truncated, "E-CKPT-INCOMPLETE", "model.safetensors"),
    "a missing shard": (missing_shard, "E-CKPT-INCOMPLETE", "model-00002-of-00002.safetensors"),
    "NaN weights": (not_a_number, "E-CKPT-UNREADABLE", "lm_head.weight"),
    "pickle weights": (pickle_only, "E-CKPT-UNSAFE", "pytorch_model.bin"),
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with one small data set and no checkpoint yet."""
    (tmp_path / "sums.jsonl").write_text('{"question": "1+1", "answer": "2"}\n' * 3)
    configure(tmp_path)
    return tmp_path


NO_MLFLOW = "[tracking]\nenabled = false\n"


def configure(
    project: Path, *, more: str = NO_MLFLOW, adapter: str = "exact", url: str = "http://127.0.0.1:9/v1"
) -> None:
    (project / "tracker.toml").write_text(
        f'[run]\nname = "r"\noutput_dir = "out"\n[[benchmark]]\nbenchmark = "{adapter}"\ndata = "sums.jsonl"\n'
        f'[serve]\nengine = "remote"\nbase_url = "{url}"\n[probe]\nenabled = false\n{more}'
    )


@pytest.mark.parametrize("case", BROKEN)
def test_evaluate_reports_what_is_wrong_with_a_checkpoint(case: str, project: Path) -> None:
    make, code, names = BROKEN[case]
    make(project / "checkpoint-7")
    result = tracker(project, "evaluate", "checkpoint-7")
    assert result.returncode == 4
    assert code in result.stderr
    assert names in result.stderr
    assert "checkpoint-7" in result.stderr
    assert "hint: " in result.stderr


def test_a_folder_without_a_checkpoint(project: Path) -> None:
    (project / "stuff").mkdir()
    (project / "stuff" / "notes.txt").write_text("nothing here")
    result = tracker(project, "evaluate", "stuff")
    assert result.returncode == 2
    assert "E-CKPT-NOT-FOUND" in result.stderr


def test_a_folder_that_is_not_there(project: Path) -> None:
    result = tracker(project, "evaluate", "nowhere")
    assert (result.returncode, "nowhere" in result.stderr) == (2, True)


def test_a_benchmark_that_does_not_exist_names_the_nearest(project: Path) -> None:
    configure(project, adapter="gsm8kk")
    result = tracker(project, "watch", "--until-idle")
    assert result.returncode == 2
    assert "gsm8k" in result.stderr


def test_a_broken_line_in_a_data_file_is_named_by_its_number(project: Path) -> None:
    (project / "sums.jsonl").write_text('{"question": "1+1", "answer": "2"}\n{"question": \n')
    result = tracker(project, "watch", "--until-idle")
    assert result.returncode == 2
    assert "sums.jsonl" in result.stderr
    assert "line 2" in result.stderr


def test_a_state_folder_that_cannot_be_made(project: Path) -> None:
    (project / ".tracker").write_text("a file is in the way")
    result = tracker(project, "history")
    assert result.returncode == 4
    assert "run.state_dir" in result.stderr


def test_a_process_that_is_not_there_cannot_be_waited_for(project: Path) -> None:
    result = tracker(project, "watch", "--until-exit-of", "4194303")
    assert result.returncode == 2
    assert "--until-idle" in result.stderr


def test_the_watcher_reports_broken_checkpoints_and_judges_the_good_one_while_mlflow_is_away(project: Path) -> None:
    for step, (make, _, _) in enumerate(BROKEN.values(), start=1):
        make(project / "out" / f"checkpoint-{step}")
    write_checkpoint(project / "out" / "checkpoint-100")
    truncated(project / "out" / "checkpoint-200")  # the newest: the trainer was killed while it saved
    away = '[tracking]\nuri = "http://127.0.0.1:9"\n[watch]\nsettle_s = 0.5\n'
    with OpenAIServer(lambda _: Reply(text="2")) as server:
        configure(project, more=away, url=server.base_url)
        result = subprocess.run(
            [str(TRACKER), "watch", "--until-idle"],
            cwd=project,
            env=os.environ | soon_tired_of_waiting(project),
            capture_output=True,
            text=True,
            check=False,
        )
    assert result.returncode == 4, result.stderr
    assert "evaluated step 100" in result.stdout
    document = json.loads(tracker(project, "history", "--json").stdout)["result"]
    assert [report["step"] for report in document["reports"]] == [100]
    codes = [code for _, code, _ in BROKEN.values()]
    assert [gap["code"] for gap in document["gaps"]] == [*codes, "E-CKPT-INCOMPLETE"]
    said = result.stdout + result.stderr
    lines = [rf" gap step {gap['step']} .*{re.escape(gap['message'])} \(hint: " for gap in document["gaps"]]
    assert [len(re.findall(line, said)) for line in lines] == [1] * 5, "one line for each gap"
    assert "1 checkpoint evaluated, 5 not evaluated" in result.stdout
    assert re.search(r"; [1-9]\d* results? pending for MLflow", result.stdout)
    assert "127.0.0.1:9" in result.stderr  # MLflow is away, said once


def test_the_trainers_folder_is_not_touched(project: Path) -> None:
    source = write_checkpoint(project / "checkpoint-7")
    before = {path: path.stat() for path in (source, *source.iterdir())}
    tracker(project, "evaluate", "checkpoint-7")
    after = {path: path.stat() for path in (source, *source.iterdir())}
    assert {p: (s.st_mtime_ns, s.st_size, s.st_ino) for p, s in before.items()} == {
        p: (s.st_mtime_ns, s.st_size, s.st_ino) for p, s in after.items()
    }
    shutil.rmtree(source)
    assert next((project / ".tracker" / "pins").rglob("model.safetensors")).stat().st_size > 0
