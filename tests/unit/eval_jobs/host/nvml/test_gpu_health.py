"""The real nvidia-ml-py reads a library of our own in place of the driver's: `fake_nvml.c`."""

import sys
from pathlib import Path
from typing import Any

import pytest

from eval_jobs.errors import ConfigError
from eval_jobs.host.nvml.gpu_health import read_gpu_health
from tests.unit.eval_jobs.host.nvml.driver import said_with_driver

READ = """
import json, dataclasses
from eval_jobs.errors import ConfigError
from eval_jobs.host.nvml.gpu_health import read_gpu_health
try:
    print(json.dumps([dataclasses.asdict(gpu) for gpu in read_gpu_health()]))
except ConfigError as error:
    print(json.dumps(str(error)))
"""
WHOLE: dict[str, Any] = {
    "index": 0,
    "device": {
        "uuid": "GPU-a",
        "name": "NVIDIA H100",
        "pci_bus_id": "00000000:C1:00.0",
        "driver": "550.54.15",
        "is_persistent": True,
    },
    "is_lost": False,
    "busy_pct": 97.0,
    "temperature_c": 93,
    "slowdown_c": 92,
    "power_w": 650.5,
    "power_limit_w": 700.0,
    "throttle_reasons": ["sw_power_cap", "hw_slowdown", "sw_thermal", "hw_thermal", "hw_power_brake"],
    "uncorrected_ecc_errors": 2,
    "memory": {"used_bytes": 60000, "total_bytes": 80000, "by_process": {"11": 50000, "12": None}},
}
UNKNOWN = dict.fromkeys(WHOLE)
SECOND = WHOLE["device"] | {"uuid": "GPU-b"}


def read(folder: Path, driver: str) -> Any:
    return said_with_driver(folder, driver, READ)


def test_each_value_that_the_driver_reports_is_read(tmp_path: Path) -> None:
    assert read(tmp_path, "WHOLE") == [WHOLE, WHOLE | {"index": 1, "device": SECOND, "busy_pct": None}]


def test_what_an_old_driver_lacks_is_unknown_and_nothing_else(tmp_path: Path) -> None:
    missing = ("slowdown_c", "power_w", "power_limit_w", "uncorrected_ecc_errors")
    memory = WHOLE["memory"] | {"by_process": {}}
    device = WHOLE["device"] | dict.fromkeys(("name", "pci_bus_id", "is_persistent"))
    expected = (
        WHOLE | {"device": device} | dict.fromkeys(missing) | {"throttle_reasons": ["sw_power_cap"], "memory": memory}
    )
    assert read(tmp_path, "HALF")[0] == expected


def test_a_lost_gpu_is_named_beside_one_that_works(tmp_path: Path) -> None:
    lost = UNKNOWN | {"index": 1, "device": SECOND, "is_lost": True}
    assert read(tmp_path, "LOST") == [WHOLE, lost]


def test_without_a_driver_or_nvidia_ml_py_it_is_an_error_that_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = read(tmp_path, "ABSENT")
    assert said.startswith("E-CONFIG: cannot query the GPUs: NVML failed: Driver Not Loaded (hint: ")
    monkeypatch.setitem(sys.modules, "pynvml", None)  # importing it raises ModuleNotFoundError
    with pytest.raises(ConfigError, match="nvidia-ml-py is not installed") as caught:
        read_gpu_health()
    assert "pip install 'checkpoint-tracker[gpu]'" in caught.value.hint
