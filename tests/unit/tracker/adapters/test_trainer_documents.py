"""Files that trainers leave, well-formed and hostile: what is plain is read, nothing is run, nothing is raised."""

import io
import json
import os
import pickle
import subprocess
import sys
import zipfile
from enum import Enum
from pathlib import Path

import pytest

from eval_jobs.limits import SETTINGS
from tracker.adapters.trainer_files.documents import command_documents, read_documents
from tracker.cli.commands.to_watch.watch import _command_of
from tracker.domain.tracking.trainer_facts import trainer_facts


class Schedule(Enum):
    COSINE = "cosine"


class Arguments:
    """Stands for TrainingArguments."""

    def __init__(self) -> None:
        self.learning_rate = 3e-4
        self.seed = 7
        self.max_steps = -1
        self.lr_scheduler_type = Schedule.COSINE
        self.run_name = "sft"
        self.project = "sft"  # the same text again, which a pickle refers to
        self.nested = {"seed": 8, 5: "x"}
        self.devices = ["cpu"]


class Evil:
    """Runs a command where it is unpickled."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (self.command,)


def archive(pickled: bytes, *, name: str = "training_args/data.pkl") -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr(name, pickled)
    return content.getvalue()


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_plain_values_are_read_from_pickled_arguments(tmp_path: Path, protocol: int) -> None:
    (tmp_path / "training_args.bin").write_bytes(archive(pickle.dumps(Arguments(), protocol)))
    found = read_documents([tmp_path])["training_args.bin"]
    plain = {"learning_rate": 3e-4, "seed": 7, "max_steps": -1, "lr_scheduler_type": "cosine", "run_name": "sft"}
    assert {name: found[name] for name in (*plain, "project")} == plain | {"project": "sft"}


def test_a_pickle_that_would_run_a_command_runs_nothing(tmp_path: Path) -> None:
    for pickled in (Evil(f"touch {tmp_path}/ran"), {"seed": Evil(f"touch {tmp_path}/ran")}):
        (tmp_path / "training_args.bin").write_bytes(archive(pickle.dumps(pickled)))
        read_documents([tmp_path])
    assert not (tmp_path / "ran").exists()


def test_yaml_is_read_as_texts(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("learning_rate: 1e-4\nbase_model: org/m\ndate: 2026-01-01\nlist: [a, b]\n")
    assert read_documents([tmp_path])["config.yaml"] == {
        "learning_rate": "1e-4",
        "base_model": "org/m",
        "date": "2026-01-01",
        "list": ["a", "b"],
    }


MERGES = "a0: &a0 {x: 1}\n" + "".join(f"a{i}: &a{i}\n  <<: [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 12))
"""Grows by nine with every line in a loader that merges."""


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("args.json", b"{"),
        ("args.json", b"[1, 2]"),
        ("args.json", b"[" * 100_000),
        ("args.json", b'{"seed": ' + b"9" * 5000 + b"}"),
        ("args.json", b"\xff\xfe\x00"),
        ("args.json", json.dumps({"seed": 1, "x": "y" * SETTINGS.most}).encode()),
        ("config.yaml", b"a: [b"),
        ("config.yaml", b"? {a: b}\n: c"),
        ("config.yaml", b"[" * 50_000),
        ("config.yaml", b"x: !!python/object/apply:os.system ['exit 1']\n- y"),
        ("training_args.bin", b"\x80\x02}q\x00."),
        ("training_args.bin", archive(b"\x80\x02N.", name="other")),
        ("training_args.bin", archive(b"0" * 100)),
        ("training_args.bin", archive(b"u" * 100)),
        ("training_args.bin", archive(b"\x80\x02}(K\x01u.")),
        ("training_args.bin", archive(b"\x8b\xff\xff\xff\x7f")),
        ("training_args.bin", archive(b"(" * (50 << 20))),
    ],
)
def test_a_file_that_cannot_be_used_is_ignored_with_one_line(
    tmp_path: Path, name: str, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / name).write_bytes(content)
    assert read_documents([tmp_path]) == {name: {}}
    (line,) = caplog.messages
    assert name in line
    assert len(line) < 500


def test_harmless_oddities_are_no_fault(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "config.yaml").write_text(MERGES)
    os.mkfifo(tmp_path / "args.json")  # reading it would wait for ever
    (tmp_path / "adapter_config.json").mkdir()
    assert list(read_documents([tmp_path / "absent", tmp_path])) == ["config.yaml"]
    assert caplog.messages == []


def test_the_first_folder_that_has_a_file_counts(tmp_path: Path) -> None:
    for seed in (1, 2):
        (tmp_path / str(seed)).mkdir()
        (tmp_path / str(seed) / "args.json").write_text(json.dumps({"seed": seed}))
    assert read_documents([tmp_path / "2", tmp_path / "1"])["args.json"] == {"seed": 2}


def test_the_command_line_of_a_trainer_and_the_settings_it_names_are_parameters(tmp_path: Path) -> None:
    (tmp_path / "sft.yaml").write_text("model_name_or_path: base\nlearning_rate: 1e-4\n")
    command = [
        "python",
        "train.py",
        "sft.yaml",
        "missing.yaml",
        "--learning-rate",
        "0.001",
        "--seed=7",
        "epochs=3",
        "--optim",
        "--bf16",
    ]
    documents = command_documents(command, tmp_path)
    assert documents["command line"] == {"learning_rate": "0.001", "seed": "7", "epochs": "3", "optim": "", "bf16": ""}
    facts = trainer_facts(documents)
    assert facts.params == {"base_model": "base", "learning_rate": "0.001", "seed": "7", "num_train_epochs": "3"}
    secret = command_documents(["train", "--hub_token", "hf_secret", "--seed", "7"], tmp_path)
    assert trainer_facts(secret).params == {"seed": "7"}


def test_the_command_line_is_that_of_the_process_to_wait_for() -> None:
    command = [sys.executable, "-c", "print(flush=True); input()", "--learning_rate", "0.001"]
    trainer = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert trainer.stdout is not None
        trainer.stdout.readline()  # until it writes, /proc may show the command of its parent
        assert trainer_facts(_command_of(trainer.pid)).params == {"learning_rate": "0.001"}
    finally:
        trainer.kill()
        trainer.communicate()
    assert _command_of(trainer.pid) == _command_of(None) == {}
