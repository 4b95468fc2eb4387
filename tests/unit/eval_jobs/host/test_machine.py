"""What makes two machines different, from a copy of /proc."""

import socket
from pathlib import Path

import pytest

from eval_jobs.host.machine import device_name, machine_id

CPU = "processor\t: 0\nmodel name\t: Fast CPU 3000\n\nprocessor\t: 1\nmodel name\t: Fast CPU 3000\n"
GPU = "Model: \t\t NVIDIA H100\nIRQ:   \t\t 66\nBus Location: \t 0000:1a:00.0\n"
DRIVER = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\nGCC version: 12\n"
OPEN_DRIVER = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build\n"


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    gpu = tmp_path / "driver" / "nvidia" / "gpus" / "0000:1a:00.0"
    gpu.mkdir(parents=True)
    (gpu / "information").write_text(GPU)
    (tmp_path / "driver" / "nvidia" / "version").write_text(DRIVER)
    (tmp_path / "cpuinfo").write_text(CPU)
    return tmp_path


def test_the_same_machine_has_the_same_name_and_the_host_is_not_in_it(proc: Path) -> None:
    assert machine_id(proc) == machine_id(proc)
    assert socket.gethostname() not in machine_id(proc)


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("cpuinfo", CPU.replace("3000", "4000")),
        ("driver/nvidia/gpus/0000:1a:00.0/information", GPU.replace("H100", "H200")),
        ("driver/nvidia/version", DRIVER.replace("550.54.15", "550.90.07")),
        ("driver/nvidia/version", OPEN_DRIVER),
    ],
)
def test_another_part_is_another_machine(proc: Path, file: str, text: str) -> None:
    before = machine_id(proc)
    (proc / file).write_text(text)
    assert machine_id(proc) != before


def test_one_gpu_more_is_another_machine(proc: Path) -> None:
    before = machine_id(proc)
    second = proc / "driver" / "nvidia" / "gpus" / "0000:1b:00.0"
    second.mkdir()
    (second / "information").write_text(GPU)
    assert machine_id(proc) != before


def test_what_says_nothing_of_speed_changes_nothing(proc: Path) -> None:
    before = machine_id(proc)
    (proc / "cpuinfo").write_text(CPU.replace("processor", "core"))
    (proc / "driver" / "nvidia" / "gpus" / "0000:1a:00.0" / "information").write_text(GPU.replace("66", "67"))
    (proc / "driver" / "nvidia" / "version").write_text(DRIVER.replace("Mar  5", "Mar  6"))
    assert machine_id(proc) == before


def test_another_host_is_another_machine(proc: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = machine_id(proc)
    monkeypatch.setattr(socket, "gethostname", lambda: "elsewhere")
    assert machine_id(proc) != before


def test_a_machine_that_says_nothing_still_has_a_name(tmp_path: Path) -> None:
    assert machine_id(tmp_path)


def test_the_device_is_named_for_a_person(proc: Path, tmp_path: Path) -> None:
    assert device_name(on_cpu=True, proc=proc) == "cpu Fast CPU 3000"
    assert device_name(on_cpu=False, proc=proc) == "NVIDIA H100, driver 550.54.15"
    assert device_name(on_cpu=True, proc=tmp_path / "nothing") == "cpu"
    assert device_name(on_cpu=False, proc=tmp_path / "nothing").startswith("accelerator of machine ")
