"""The side of `tracker doctor` that examines a training, over folders that imitate a machine, and as a command."""

import json
import subprocess
import sys
from pathlib import Path
from threading import Event

import pytest

from eval_jobs.errors import ConfigError
from tests.commands import run_tracker
from tests.json_output import result_of
from tests.model_headers import MODELS, write_headers
from tests.tiny_model import write_checkpoint
from tracker.config import parse_config
from tracker.domain.readiness.finding import Finding, FindingSide, Level, error, exit_code, of_training, ok, warning
from tracker.domain.readiness.training.memory import Offload, Zero
from tracker.wiring import training
from tracker.wiring.training import PlannedTraining, examine_training

SETTINGS = '[run]\nname = "r"\noutput_dir = "{}"\n[[benchmark]]\nbenchmark = "gsm8k"\n'
HEAVY = {"torch", "mlflow", "deepspeed", "transformers", "vllm"}


def found(plan: PlannedTraining, root: Path, output_dir: str | None = None) -> dict[str, Finding]:
    config = None if output_dir is None else parse_config(SETTINGS.format(output_dir), root / "tracker.toml")
    return {one.subject: one for one in examine_training(plan, config, root)}


def test_a_machine_that_tells_nothing_has_no_errors(tmp_path: Path) -> None:
    findings = found(PlannedTraining(), tmp_path).values()
    assert {one.side for one in findings} == {FindingSide.TRAINING}
    assert [one for one in findings if one.level in {Level.WARNING, Level.ERROR}] == []


def test_the_size_of_the_next_checkpoint_is_that_of_the_newest_one(tmp_path: Path) -> None:
    newest = write_checkpoint(tmp_path / "out" / "checkpoint-200")
    (newest / "global_step200").mkdir()
    (newest / "global_step200" / "optimizer.pt").write_bytes(bytes(5_000_000))
    disk = found(PlannedTraining(), tmp_path, "out")["checkpoint disk"]
    assert "a checkpoint has 5." in disk.message
    assert disk.message.endswith("MB, as checkpoint-200")
    assert "s3://runs/sft" in found(PlannedTraining(), tmp_path, "s3://runs/sft")["checkpoint disk"].message


def test_the_workers_of_data_loaders_are_those_of_the_newest_checkpoint(tmp_path: Path) -> None:
    newest = write_checkpoint(tmp_path / "out" / "checkpoint-200")
    assert "data loaders" not in found(PlannedTraining(), tmp_path, "out")
    (newest / "args.json").write_text('{"dataloader_num_workers": 4096}')
    loaders = found(PlannedTraining(gpus=2), tmp_path, "out")["data loaders"]
    assert loaders.level is Level.WARNING
    assert loaders.message.startswith("2 x 4096 workers, as in the newest checkpoint, on ")
    planned = found(PlannedTraining(gpus=2, workers=0), tmp_path, "out")["data loaders"]
    assert planned.level is Level.OK
    assert planned.message.startswith("2 x 0 workers on ")


def test_the_workers_of_a_first_start_are_those_that_are_planned(tmp_path: Path) -> None:
    loaders = run_tracker(tmp_path, "doctor", "--gpus", "2", "--workers", "4096").stdout
    assert "warning  data loaders: 2 x 4096 workers on " in loaders


def test_file_servers_and_gpus_that_do_not_respond_are_warnings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    responds = Event()
    monkeypatch.setattr(training, "READ_S", 0.0)
    monkeypatch.setattr(training, "training_gpus", responds.wait)
    monkeypatch.setattr(training, "read_output", lambda config: responds.wait() and config)
    monkeypatch.setattr(training, "read_shape", lambda folder: responds.wait() and folder)
    try:
        said = found(PlannedTraining(model=Path("/mnt/model")), tmp_path, "out")
    finally:
        responds.set()
    disk, gpus, model = said["checkpoint disk"], said["GPUs"], said["model"]
    assert model.message == "not known: /mnt/model does not respond"
    assert disk.message == f"not known: {tmp_path / 'out'} does not respond"
    assert gpus.message == "not known: they do not respond"
    assert {disk.level, gpus.level, model.level} == {Level.WARNING}
    assert disk.hint == model.hint
    assert "data loaders" not in said


def test_a_model_gives_the_need_of_each_setup_and_the_size_of_a_checkpoint(tmp_path: Path) -> None:
    model = write_headers(tmp_path / "model", MODELS[4].shapes(), is_tied=True)
    said = found(PlannedTraining(model=model), tmp_path, "out")
    assert sum("ZeRO" in subject for subject in said) == 16
    assert "6.9 GB with the state of Adam" in said["checkpoint disk"].message
    only = found(PlannedTraining(model=model, zero=Zero.PARAMETERS, offload=Offload.ALL), tmp_path)
    assert [subject for subject in only if "ZeRO" in subject] == [
        "full fine-tuning, ZeRO 3, offload all",
        "LoRA, ZeRO 3, offload all",
    ]


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (PlannedTraining(zero=Zero.PARAMETERS), "estimate the memory of a model"),
        (PlannedTraining(model=Path("m"), zero=Zero.GRADIENTS, offload=Offload.ALL), "--offload all with --zero 2"),
    ],
)
def test_a_plan_that_deepspeed_does_not_have_is_refused(plan: PlannedTraining, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        examine_training(plan, None, tmp_path)
    assert caught.value.hint


STOPS, SLOWS = of_training([error("a", "b", "c"), warning("d", "e", "f")])


@pytest.mark.parametrize(
    ("findings", "code"),
    [
        ([], 0),
        ([ok("a", "b"), warning("a", "b", "c")], 0),
        ([error("a", "b", "c"), STOPS], 2),
        ([warning("a", "b", "c"), STOPS, SLOWS], 1),
        ([ok("a", "b"), SLOWS], 3),
    ],
)
def test_the_exit_code_says_which_side_has_the_problem(findings: list[Finding], code: int) -> None:
    assert exit_code(findings) == code


def test_the_command_examines_a_training_without_settings_and_exits_with_1_if_it_would_stop(tmp_path: Path) -> None:
    plain = run_tracker(tmp_path, "doctor")
    assert plain.returncode in (0, 3)
    assert "memory: " in plain.stdout
    (tmp_path / "empty").mkdir()
    stopped = run_tracker(tmp_path, "doctor", "--model", "empty", "--json")
    assert stopped.returncode == 1
    errors = [one for one in result_of(stopped.stdout) if one["level"] == "error"]
    assert [(one["side"], one["subject"], one["message"]) for one in errors] == [
        ("training", "model", "empty has no *.safetensors")
    ]
    assert "model: gone does not exist" in run_tracker(tmp_path, "doctor", "--model", "gone").stdout
    last = run_tracker(tmp_path, "doctor", "--for", "training", "--model", "empty").stdout.splitlines()[-1]
    assert last.startswith("1 error, ")
    assert last.endswith(": the training would stop")
    for arguments, says in (
        (("--for", "evaluation"), "tracker.toml"),
        (("--config", "tracker.toml"), "tracker.toml"),
        (("checkpoint-5",), "tracker.toml"),
        (("--for", "training", "checkpoint-5"), "--for training checks no CHECKPOINT"),
        (("--for", "evaluation", "--workers", "2"), "--for evaluation ignores --model, --gpus, "),
    ):
        refused = run_tracker(tmp_path, "doctor", *arguments)
        assert (refused.returncode, says in refused.stderr) == (2, True)


def test_an_error_of_evaluations_is_the_exit_code_and_each_side_has_its_conclusion(tmp_path: Path) -> None:
    (tmp_path / "tracker.toml").write_text(SETTINGS.format("out").replace("gsm8k", "no_such_benchmark"))
    (tmp_path / "empty").mkdir()
    done = run_tracker(tmp_path, "doctor", "--model", "empty")
    assert done.returncode == 2
    assert ": evaluations would fail\n" in done.stdout
    assert done.stdout.endswith(": the training would stop\n")


def test_a_training_is_examined_without_importing_torch_or_mlflow(tmp_path: Path) -> None:
    model = write_headers(tmp_path / "model", MODELS[4].shapes(), is_tied=True)
    program = (
        "import json, sys\nfrom tracker.cli.main import cli\n"
        f"cli.main(['doctor', '--for', 'training', '--model', {str(model)!r}], standalone_mode=False)\n"
        "print(json.dumps([name for name in sys.modules if '.' not in name]))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "ZeRO 3" in done.stdout
    assert HEAVY.isdisjoint(json.loads(done.stdout.splitlines()[-1]))
