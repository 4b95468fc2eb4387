"""Whole models of many architectures, as transformers saves them, pass; any missing tensor of a layer is named."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from eval_jobs.serve.weights.fingerprint import fingerprint_of, never_swapped
from eval_jobs.types import CheckpointFormat
from tests.requires import PROJECT
from tracker.adapters.checkpoints.files.safetensors_file import read_tensors
from tracker.adapters.checkpoints.folder.once import pin_folder
from tracker.domain.checkpoints.raw.tensor_names import absent_by_config

ALIKE = (
    *("llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "olmo", "olmo2", "phi3"),
    *("granite", "starcoder2", "stablelm", "gpt_neox", "gpt2"),
)
"""All layers of these hold the same tensors."""
MIXED = ("mixtral", "gemma3_text", "deepseek_v3", "opt")
WITH_EXPERTS = ("mixtral", "deepseek_v3")


@pytest.fixture(scope="module")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("zoo")
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.integration.model_zoo", str(folder), *ALIKE, *MIXED]
    subprocess.run(command, cwd=PROJECT, env=environment, check=True, capture_output=True)
    return folder


def test_no_whole_model_is_refused(zoo: Path, tmp_path: Path) -> None:
    models = sorted(zoo.iterdir())
    assert len(models) == 2 * (len(ALIKE) + len(MIXED))
    for model in models:
        checkpoint = pin_folder(model, run_id=model.name, pins_dir=tmp_path / "pins")
        assert checkpoint.format is CheckpointFormat.FULL


def test_of_whole_models_only_experts_on_an_accelerator_are_never_swapped(zoo: Path) -> None:
    for model in sorted(zoo.iterdir()):
        kind, _, _ = model.name.rpartition("-")
        found = fingerprint_of(model)
        assert found.has_experts == (kind in WITH_EXPERTS), kind
        assert never_swapped(found, on_cpu=True) == "", kind
        assert bool(never_swapped(found, on_cpu=False)) == (kind in WITH_EXPERTS), kind


@pytest.mark.parametrize("kind", ALIKE)
def test_any_tensor_of_one_layer_that_is_missing_is_named(kind: str, zoo: Path) -> None:
    folder = zoo / f"{kind}-True"
    config = json.loads((folder / "config.json").read_text())
    names = {tensor.name for tensor in read_tensors([folder / "model.safetensors"])}
    of_a_layer = sorted(name for name in names if ".1." in name)
    assert len(of_a_layer) > 5
    for name in of_a_layer:
        assert absent_by_config(names - {name}, config) == (name,)
