"""The size of a model is read from headers alone: the weights of these files are missing."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from eval_jobs.errors import TrackerError
from tests.model_headers import MODELS, KnownModel, write_headers
from tracker.adapters.checkpoints.files.model_shape import read_shape

SMALL = {"model.embed_tokens.weight": [10, 4], "model.layers.0.mlp.up_proj.weight": [6, 4]}


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_the_parameters_of_known_models_are_those_of_their_model_cards(tmp_path: Path, model: KnownModel) -> None:
    shape = read_shape(write_headers(tmp_path, model.shapes(), is_tied=model.is_tied))
    assert (shape.parameters, shape.largest_layer) == (model.parameters, model.largest_layer())
    assert 0.001 < shape.lora_parameters / shape.parameters < 0.02


def test_an_embedding_that_is_saved_twice_counts_once(tmp_path: Path) -> None:
    shape = read_shape(write_headers(tmp_path, SMALL | {"lm_head.weight": [10, 4]}, is_tied=True))
    assert (shape.parameters, shape.lora_parameters) == (64, 16 * 10)


def test_the_experts_of_a_layer_are_one_module(tmp_path: Path) -> None:
    experts = {
        f"model.layers.0.mlp.experts.{n}.{part}_proj.weight": [8, 4] for n in range(4) for part in ("up", "down")
    }
    assert read_shape(write_headers(tmp_path, SMALL | experts)).largest_layer == 4 * 2 * 32


def names_in_index(folder: Path, *names: str) -> None:
    weight_map = dict.fromkeys(SMALL, names[0]) | {f"more-{name}": name for name in names}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))


@pytest.mark.parametrize(
    ("files", "indexed"),
    [
        (("model-00001-of-00001.safetensors", "consolidated.safetensors"), ("model-00001-of-00001.safetensors",)),
        (("weights.safetensors", "model-old.safetensors"), ("weights.safetensors",)),
        (("model.safetensors", "consolidated.safetensors"), ()),
        (("pytorch_model.safetensors",), ()),
    ],
)
def test_weights_that_are_there_in_two_forms_count_once(
    tmp_path: Path, files: tuple[str, ...], indexed: tuple[str, ...]
) -> None:
    written = write_headers(tmp_path, SMALL) / "model.safetensors"
    content = written.read_bytes()
    written.unlink()
    for name in files:
        (tmp_path / name).write_bytes(content)
    if indexed:
        names_in_index(tmp_path, *indexed)
    assert read_shape(tmp_path).parameters == 64


def absent_in_index(folder: Path) -> Path:
    names_in_index(folder, "model.safetensors", "gone.safetensors")
    return folder


def empty_index(folder: Path) -> Path:
    (folder / "model.safetensors.index.json").write_text("{}")
    return folder


def without_config(folder: Path) -> Path:
    (folder / "config.json").unlink()
    return folder


def cut(folder: Path) -> Path:
    (folder / "model.safetensors").write_bytes(b"\x80" + bytes(7) + b"{")
    return folder


def no_header(folder: Path) -> Path:
    (folder / "model.safetensors").write_bytes(b"GGUF" + bytes(range(200, 240)))
    return folder


def quantized(folder: Path) -> Path:
    (folder / "config.json").write_text(json.dumps({"quantization_config": {"quant_method": "gptq"}}))
    return folder


def no_object(folder: Path) -> Path:
    (folder / "config.json").write_text("[]")
    return folder


def gguf(folder: Path) -> Path:
    (folder / "model.safetensors").rename(folder / "model.gguf")
    return folder


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (lambda folder: folder / "gone", "gone does not exist"),
        (lambda folder: folder / "model.safetensors", "safetensors is a file"),
        (without_config, "has no config.json"),
        (gguf, r"has no \*.safetensors"),
        (cut, "ends inside its header"),
        (no_header, "has no safetensors header"),
        (quantized, "is quantized"),
        (absent_in_index, "gone.safetensors"),
        (empty_index, "index.json has no weight_map"),
        (no_object, "is not a JSON object"),
    ],
)
def test_what_is_no_readable_model_is_one_error_with_a_hint(
    tmp_path: Path, broken: Callable[[Path], Path], message: str
) -> None:
    with pytest.raises(TrackerError, match=message) as caught:
        read_shape(broken(write_headers(tmp_path, SMALL)))
    assert caught.value.hint
