"""What runs inside vLLM's worker, on real files and tensors; only the worker around it is not vLLM's."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from safetensors.numpy import load_file, save_file

from eval_jobs.serve.weights.fingerprint import fingerprint_of
from eval_jobs.serve.worker_extension.tracker_worker.extension import CHUNK_BYTES, StrictLoading
from eval_jobs.serve.worker_extension.tracker_worker.weight_files import BadWeights, layout_digest
from tests.swap_servers import record_of
from tests.tiny_model import random_tensors, write_checkpoint, write_sharded_checkpoint

REFUSED_NOTHING = {"refused": ""}


class Packer:
    """Makes the second copy of a layer's weights, as vLLM's methods do on a CPU."""

    def process_weights_after_loading(self, module: torch.nn.Module) -> None:
        copied = module.weight.detach().clone()
        module.cpu_linear = lambda x: x @ copied.T


class Model(torch.nn.Module):  # type: ignore[misc]
    """An embedding, and an output layer that is tied to it and holds a second copy."""

    def __init__(self) -> None:
        super().__init__()
        self.embed_tokens = torch.nn.Embedding(4, 2)
        self.lm_head = torch.nn.Linear(2, 4, bias=False)
        self.plain = torch.nn.Linear(2, 2)
        self.lm_head.weight = self.embed_tokens.weight
        self.lm_head.quant_method = Packer()
        self.plain.cpu_linear = torch.nn.functional.linear
        Packer().process_weights_after_loading(self.lm_head)


class Worker(StrictLoading):
    """Takes tensors instead of loading them."""

    def __init__(self, model: torch.nn.Module | None = None) -> None:
        self.model_runner = self
        self.model = model or torch.nn.Module()
        self.loaded: dict[str, torch.Tensor] = {}

    def get_model(self) -> torch.nn.Module:
        return self.model

    def reload_weights(self, weights_iterator: Iterator[tuple[str, torch.Tensor]]) -> None:
        self.loaded = dict(weights_iterator)

    def check(self, folder: Path) -> dict[str, str]:
        return self.tracker_check(str(folder), record_of(folder).digest, layout_of(folder))


def layout_of(folder: Path) -> str:
    return layout_digest(fingerprint_of(folder).tensors)


def open_files(folder: Path) -> list[str]:
    return [file.path for file in psutil.Process().open_files() if file.path.startswith(str(folder))]


@pytest.mark.parametrize("write", [write_checkpoint, write_sharded_checkpoint])
def test_what_is_loaded_is_what_is_in_the_files_and_its_digest_that_of_a_pin(
    write: Callable[..., Path], tmp_path: Path
) -> None:
    folder, worker = write(tmp_path / "model", seed=3), Worker()
    assert worker.check(folder) == REFUSED_NOTHING
    assert worker.tracker_load() == {"digest": record_of(folder).digest, "tensors": 21, "repacked": []}
    expected = random_tensors(3)
    assert worker.loaded.keys() == expected.keys()
    for name, tensor in worker.loaded.items():
        assert tensor.dtype is torch.float32
        assert np.array_equal(tensor.numpy(), expected[name])
    assert open_files(folder) == []


TYPES = {"F64": np.float64, "F32": np.float32, "F16": np.float16}
SHAPES = arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)


@given(
    layout=st.dictionaries(
        st.text("abc.é\n", min_size=1, max_size=5), st.tuples(st.sampled_from(sorted(TYPES)), SHAPES), min_size=1
    )
)
def test_tensors_of_any_name_type_and_shape_arrive_bit_by_bit(
    layout: dict[str, tuple[str, tuple[int, ...]]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = write_checkpoint(tmp_path_factory.mktemp("any") / "model")
    generator = np.random.default_rng(0)
    tensors = {name: generator.normal(size=shape).astype(TYPES[dtype]) for name, (dtype, shape) in layout.items()}
    save_file(tensors, folder / "model.safetensors")
    worker = Worker()
    assert worker.check(folder) == REFUSED_NOTHING
    assert worker.tracker_load()["digest"] == record_of(folder).digest
    assert {name: tensor.numpy().tobytes() for name, tensor in worker.loaded.items()} == {
        name: np.asarray(tensor).tobytes() for name, tensor in tensors.items()
    }
    assert {name: tuple(tensor.shape) for name, tensor in worker.loaded.items()} == {
        name: shape for name, (_, shape) in layout.items()
    }


def test_a_tensor_longer_than_what_is_read_at_once_is_whole(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "model")
    large = np.arange(CHUNK_BYTES // 4 + 1001, dtype=np.float32)
    save_file({"large": large, "small": large[:3]}, folder / "model.safetensors")
    worker = Worker()
    assert worker.check(folder) == REFUSED_NOTHING
    assert worker.tracker_load()["digest"] == record_of(folder).digest
    assert np.array_equal(worker.loaded["large"].numpy(), large)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_one_number_that_is_none_is_refused_with_the_name_of_its_tensor(
    value: float, dtype: type[np.floating[np.typing.NBitBase]], tmp_path: Path
) -> None:
    folder = write_checkpoint(tmp_path / "model")
    tensor = np.zeros((5, 7), dtype)
    tensor[4, 6] = value
    save_file({"good": np.ones(3, dtype), "bad": tensor}, folder / "model.safetensors")
    refused = Worker().tracker_check(str(folder), "any", layout_of(folder))
    assert refused == {"refused": "the tensor bad in model.safetensors contains NaN or Inf"}
    assert open_files(folder) == []


def test_a_number_that_is_none_in_bfloat16_is_refused(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "model")
    raw = b'{"b":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]}}'
    (folder / "model.safetensors").write_bytes(len(raw).to_bytes(8, "little") + raw + b"\x80\x3f\xc0\x7f")
    assert "contains NaN or Inf" in Worker().tracker_check(str(folder), "any", layout_of(folder))["refused"]


def overwrite(folder: Path) -> None:
    # In place, as a trainer does that saves a step again.
    (folder / "model.safetensors").write_bytes(
        (write_checkpoint(folder.parent / "other", seed=9) / "model.safetensors").read_bytes()
    )


def test_other_weights_than_those_that_were_meant_are_refused(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "model")
    digest, layout = record_of(folder).digest, layout_of(folder)
    overwrite(folder)
    refused = Worker().tracker_check(str(folder), digest, layout)["refused"]
    assert "changed: SHA-256 is" in refused
    assert digest in refused


def test_another_layout_than_the_one_that_was_compared_is_refused(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "model")
    refused = Worker().tracker_check(str(folder), record_of(folder).digest, "another")["refused"]
    assert "changed since they were compared" in refused


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.bool_, np.int64])
def test_types_that_are_no_plain_weights_are_refused(dtype: type[np.generic], tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "model")
    save_file({"a": np.ones(4, dtype)}, folder / "model.safetensors")
    assert "unsupported tensor types in" in Worker().check(folder)["refused"]


@pytest.mark.parametrize("what", ["nothing", "file", "truncated", "shard"])
def test_what_is_not_there_or_not_whole_is_refused_and_no_file_stays_open(what: str, tmp_path: Path) -> None:
    folder = write_sharded_checkpoint(tmp_path / "model")
    digest, layout = record_of(folder).digest, layout_of(folder)
    shard = folder / "model-00002-of-00002.safetensors"
    if what == "nothing":
        shutil.rmtree(folder)
    elif what == "file":
        shutil.rmtree(folder)
        folder.write_text("no folder")
    elif what == "truncated":
        shard.write_bytes(shard.read_bytes()[:-4])
    else:
        shard.unlink()
    assert Worker().tracker_check(str(folder), digest, layout)["refused"]
    assert open_files(tmp_path) == []


def test_files_that_are_written_to_between_check_and_load_are_not_loaded(tmp_path: Path) -> None:
    folder, worker = write_checkpoint(tmp_path / "model"), Worker()
    assert worker.check(folder) == REFUSED_NOTHING
    overwrite(folder)
    with pytest.raises(BadWeights, match=r"model\.safetensors changed while being read"):
        worker.tracker_load()
    assert worker.loaded == {}
    assert open_files(folder) == []


def test_a_folder_that_is_replaced_between_check_and_load_changes_nothing(tmp_path: Path) -> None:
    folder, worker = write_checkpoint(tmp_path / "model", seed=0), Worker()
    digest = record_of(folder).digest
    assert worker.check(folder) == REFUSED_NOTHING
    shutil.rmtree(folder)
    write_checkpoint(folder, seed=1)
    assert worker.tracker_load()["digest"] == digest
    assert np.array_equal(worker.loaded["lm_head.weight"].numpy(), random_tensors(0)["lm_head.weight"])


def test_what_changes_while_it_is_loaded_shows_in_the_digest(tmp_path: Path) -> None:
    # The same length and, by a hand that sets it back, the same time: only the bytes tell.
    folder = write_checkpoint(tmp_path / "model")
    path, digest = folder / "model.safetensors", record_of(folder).digest
    times = path.stat()

    class Slow(Worker):
        def reload_weights(self, weights_iterator: Iterator[tuple[str, torch.Tensor]]) -> None:
            first = next(weights_iterator)
            tensors = load_file(path)
            tensors["model.norm.weight"] *= 2
            changed = tmp_path / "changed.safetensors"
            save_file(tensors, changed, metadata={"format": "pt"})
            path.write_bytes(changed.read_bytes())
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
            self.loaded = dict([first, *weights_iterator])

    worker = Slow()
    assert worker.check(folder) == REFUSED_NOTHING
    assert worker.tracker_load()["digest"] != digest


def test_nothing_is_loaded_that_was_not_checked_right_before(tmp_path: Path) -> None:
    folder, worker = write_checkpoint(tmp_path / "model"), Worker()
    assert worker.tracker_load()["tensors"] == 0
    assert worker.check(folder) == REFUSED_NOTHING
    assert worker.tracker_check(str(tmp_path / "gone"), "", "")["refused"]
    assert worker.tracker_load()["tensors"] == 0
    assert open_files(folder) == []


def test_a_second_copy_that_reloading_left_is_made_anew(tmp_path: Path) -> None:
    model = Model()
    folder = write_checkpoint(tmp_path / "model")

    class Tied(Worker):
        def reload_weights(self, weights_iterator: Iterator[tuple[str, torch.Tensor]]) -> None:
            super().reload_weights(weights_iterator)
            with torch.no_grad():
                model.embed_tokens.weight.fill_(7.0)

    worker = Tied(model)
    assert worker.check(folder) == REFUSED_NOTHING
    assert worker.tracker_load()["repacked"] == ["lm_head"]
    assert model.lm_head.cpu_linear(torch.ones(1, 2)).tolist() == [[14.0] * 4]


def test_a_copy_that_reloading_has_made_anew_is_left_alone(tmp_path: Path) -> None:
    model = Model()
    folder = write_checkpoint(tmp_path / "model")

    class Repacking(Worker):
        def reload_weights(self, weights_iterator: Iterator[tuple[str, torch.Tensor]]) -> None:
            super().reload_weights(weights_iterator)
            Packer().process_weights_after_loading(model.lm_head)

    worker = Repacking(model)
    assert worker.check(folder) == REFUSED_NOTHING
    assert worker.tracker_load()["repacked"] == []


def test_a_copy_that_cannot_be_made_anew_is_an_error(tmp_path: Path) -> None:
    model = Model()
    model.lm_head.weight = torch.nn.Parameter(torch.empty(0))
    folder, worker = write_checkpoint(tmp_path / "model"), Worker(model)
    assert worker.check(folder) == REFUSED_NOTHING
    with pytest.raises(BadWeights, match="lm_head still has a copy of its old weights"):
        worker.tracker_load()
