"""What may be swapped in: everything that an engine keeps from its start must be equal, and named where it is not."""

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from eval_jobs.errors import CheckpointUnreadable
from eval_jobs.serve.weights.fingerprint import Fingerprint, fingerprint_of, never_swapped, obstacle
from tests.tiny_model import random_tensors, write_checkpoint, write_lora, write_sharded_checkpoint


@pytest.fixture
def resident(tmp_path: Path) -> Fingerprint:
    return fingerprint_of(write_checkpoint(tmp_path / "resident", seed=0))


@pytest.fixture
def candidate(tmp_path: Path) -> Path:
    return write_checkpoint(tmp_path / "candidate", seed=1)


def edit_json(path: Path, **changes: object) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def edit_tensors(folder: Path, change: Callable[[dict[str, object]], object]) -> None:
    tensors: dict[str, object] = dict(load_file(folder / "model.safetensors"))
    change(tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def test_what_changes_nothing_of_the_model_is_no_obstacle(resident: Fingerprint, candidate: Path) -> None:
    assert obstacle(resident, fingerprint_of(candidate)) == "", "other weights"
    edit_json(candidate / "config.json", transformers_version="4.57", _name_or_path="/elsewhere")
    for name in ("trainer_state.json", "args.json", ".pin.json", "optimizer.pt", "README.md"):
        (candidate / name).write_text("{}")
    assert obstacle(resident, fingerprint_of(candidate)) == "", "who wrote it, and what a trainer notes"
    config = json.loads((candidate / "config.json").read_text())
    config["torch_dtype"] = config.pop("dtype")
    (candidate / "config.json").write_text(json.dumps(dict(reversed(config.items()))))
    assert obstacle(resident, fingerprint_of(candidate)) == "", "an older name and another order"


def test_the_same_tensors_in_shards_are_no_obstacle(resident: Fingerprint, tmp_path: Path) -> None:
    sharded = fingerprint_of(write_sharded_checkpoint(tmp_path / "sharded", seed=1, shards=3))
    assert obstacle(resident, sharded) == ""
    assert sharded.tensors == resident.tensors


@pytest.mark.parametrize(
    "change",
    [
        {"rope_parameters": {"rope_type": "default", "rope_theta": 500000.0}},
        {"dtype": "bfloat16"},
        {"tie_word_embeddings": True},
        {"rms_norm_eps": 1e-5},
        {"num_attention_heads": 4},
        {"eos_token_id": [2, 3]},
        {"quantization_config": {"quant_method": "compressed-tensors"}},
        {"something": "that nobody knows yet"},
    ],
)
def test_any_other_setting_of_the_model_is_an_obstacle(
    change: Mapping[str, object], resident: Fingerprint, candidate: Path
) -> None:
    edit_json(candidate / "config.json", **change)
    assert obstacle(resident, fingerprint_of(candidate)) == "config.json differs"


SMALL_FILES = (
    *("tokenizer.json", "tokenizer_config.json", "generation_config.json", "special_tokens_map.json"),
    *("added_tokens.json", "vocab.json", "merges.txt", "tokenizer.model", "chat_template.jinja", "chat_template.json"),
    *("preprocessor_config.json", "additional_chat_templates/tools.jinja", "modeling_own.py", "qwen.tiktoken"),
)


@pytest.mark.parametrize("name", SMALL_FILES)
def test_any_other_file_that_is_served_is_an_obstacle(name: str, candidate: Path, tmp_path: Path) -> None:
    for folder in (candidate, shutil.copytree(candidate, tmp_path / "other")):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(f'{{"of": "{folder.name}"}}')
    bare = write_checkpoint(tmp_path / "bare")
    (bare / name).unlink(missing_ok=True)
    with_it, without = fingerprint_of(candidate), fingerprint_of(bare)
    assert obstacle(with_it, fingerprint_of(tmp_path / "other")) == f"{name} differs"
    assert obstacle(without, with_it) == f"{name} is new"
    assert obstacle(with_it, without) == f"{name} is missing"


def test_a_tensor_that_differs_is_named(resident: Fingerprint, candidate: Path) -> None:
    name, head = "model.layers.0.self_attn.k_proj.weight", "lm_head.weight"
    original = (candidate / "model.safetensors").read_bytes()
    changes: list[tuple[Callable[[dict[str, object]], object], str]] = [
        (lambda tensors: tensors.pop(name), f"{name} is missing, was F32 [64, 64]"),
        (lambda tensors: tensors.update(extra=np.ones(3, np.float32)), "extra is F32 [3], was missing"),
        (
            lambda tensors: tensors.update({head: np.ones((101, 32), np.float32)}),
            f"{head} is F32 [101, 32], was F32 [101, 64]",
        ),
        (
            lambda tensors: tensors.update({head: np.ones((101, 64), np.float16)}),
            f"{head} is F16 [101, 64], was F32 [101, 64]",
        ),
    ]
    found = []
    for change, _ in changes:
        (candidate / "model.safetensors").write_bytes(original)
        edit_tensors(candidate, change)
        found.append(obstacle(resident, fingerprint_of(candidate)))
    assert found == [f"the tensor {said}" for _, said in changes]


def test_untied_weights_do_not_fit_a_tied_model(resident: Fingerprint, candidate: Path) -> None:
    edit_tensors(candidate, lambda tensors: tensors.pop("lm_head.weight"))
    edit_json(candidate / "config.json", tie_word_embeddings=True)
    tied = fingerprint_of(candidate)
    assert obstacle(tied, resident).startswith("the tensor lm_head.weight is F32")
    assert obstacle(resident, tied).startswith("the tensor lm_head.weight is missing")


def test_what_is_said_of_a_model_is_read_from_its_files(resident: Fingerprint) -> None:
    assert (resident.architecture, resident.dtype, resident.vocab_size) == ("LlamaForCausalLM", "F32", 101)
    assert resident.quantisation == ""
    assert {resident.has_experts, resident.is_hybrid, resident.has_own_code} == {False}
    assert never_swapped(resident, on_cpu=True) == never_swapped(resident, on_cpu=False) == ""


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"quantization_config": {"quant_method": "fp8"}}, "it is quantized (fp8)"),
        ({"quantization_config": {"bits": 4}}, "it is quantized (quantization_config)"),
        ({"compression_config": {"format": "pack-quantized"}}, "it is quantized (compression_config)"),
        ({"model_type": "mamba2"}, "it has stateful layers, such as Mamba's"),
        ({"model_type": "phi4flash"}, "it has stateful layers, such as Mamba's"),
        ({"architectures": ["NemotronHForCausalLM"]}, "it has stateful layers, such as Mamba's"),
        ({"hybrid_override_pattern": "M-M*"}, "it has stateful layers, such as Mamba's"),
        ({"layer_types": ["linear_attention", "full_attention"]}, "it has stateful layers, such as Mamba's"),
        ({"text_config": {"mamba_d_state": 16}}, "it has stateful layers, such as Mamba's"),
        ({"auto_map": {"AutoModel": "modeling_own.Model"}}, "it has custom code"),
        ({"architectures": []}, "its config.json does not list exactly one architecture"),
        ({"architectures": None}, "its config.json does not list exactly one architecture"),
        ({"architectures": ["A", "B"]}, "its config.json does not list exactly one architecture"),
    ],
)
def test_kinds_that_are_reloaded_wrong_or_not_known_are_never_swapped(
    change: Mapping[str, object], reason: str, candidate: Path
) -> None:
    edit_json(candidate / "config.json", **change)
    assert never_swapped(fingerprint_of(candidate), on_cpu=True) == reason


@pytest.mark.parametrize("change", [{"num_local_experts": 8}, {"n_routed_experts": 4}, {"moe_intermediate_size": 9}])
def test_experts_are_never_swapped_on_an_accelerator(change: Mapping[str, object], candidate: Path) -> None:
    edit_json(candidate / "config.json", **change)
    found = fingerprint_of(candidate)
    assert never_swapped(found, on_cpu=True) == ""
    assert never_swapped(found, on_cpu=False) == "it is a mixture of experts on an accelerator"


def test_quantisation_beside_the_configuration_is_seen(candidate: Path) -> None:
    for name in ("hf_quant_config.json", "quantize_config.json", "quant_config.json"):
        (candidate / name).write_text("{}")
        assert never_swapped(fingerprint_of(candidate), on_cpu=True) == f"it is quantized ({name})"
        (candidate / name).unlink()
    edit_tensors(candidate, lambda tensors: tensors.update(packed=np.ones(4, np.int8)))
    assert never_swapped(fingerprint_of(candidate), on_cpu=True) == "it has tensors of type I8"


def test_words_that_mean_nothing_here_keep_nothing_from_being_swapped(candidate: Path) -> None:
    changes: tuple[Mapping[str, object], ...] = (
        {"cache_implementation": "hybrid"},
        {"num_experts": 0},
        {"mamba_ssm_cfg": {}},
    )
    for change in changes:
        edit_json(candidate / "config.json", _name_or_path="/home/moe/mamba_experts", **change)
        assert never_swapped(fingerprint_of(candidate), on_cpu=False) == "", change


def test_tensor_names_of_states_and_experts_are_seen_where_the_configuration_is_silent(candidate: Path) -> None:
    ones = np.ones(4, np.float32)
    edit_tensors(candidate, lambda tensors: tensors.update({"model.layers.0.mixer.A_log": ones}))
    assert fingerprint_of(candidate).is_hybrid
    edit_tensors(candidate, lambda tensors: tensors.update({"model.layers.0.mlp.experts.0.up_proj.weight": ones}))
    assert fingerprint_of(candidate).has_experts


def truncated(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


def an_adapter(folder: Path) -> None:
    base = folder.rename(folder.with_name("base"))
    write_lora(base, folder)


def extra_weights(folder: Path) -> None:
    shutil.copy(folder / "model.safetensors", folder / "consolidated.safetensors")


@pytest.mark.parametrize(
    ("damage", "word"),
    [
        (truncated, "bytes long"),
        (extra_weights, "unexpected weights file consolidated.safetensors in"),
        (lambda folder: (folder / "model.safetensors").unlink(), "no model.safetensors in"),
        (lambda folder: (folder / "config.json").unlink(), "config.json"),
        (lambda folder: (folder / "config.json").write_text("[]"), "config.json is not a JSON object"),
        (lambda folder: (folder / "config.json").write_text('{"architectures": '), "Expecting value"),
        (lambda folder: (folder / "config.json").write_text("{}"), "no vocab_size in config.json"),
        (lambda folder: (folder / "config.json").write_bytes(b"\xff\xfe{"), "cannot read the model in"),
        (lambda folder: (folder / "config.json").write_text("[" * 100_000), "cannot read the model in"),
        (shutil.rmtree, "No such file"),
        (an_adapter, "no model.safetensors in"),
    ],
)
def test_a_damaged_folder_is_unreadable_and_says_why(
    damage: Callable[[Path], object], word: str, candidate: Path
) -> None:
    damage(candidate)
    with pytest.raises(CheckpointUnreadable, match=word):
        fingerprint_of(candidate)


tensor_maps = st.dictionaries(
    st.sampled_from(sorted(random_tensors(0))),
    st.tuples(st.sampled_from(["F32", "BF16", "I8"]), st.tuples(st.integers(0, 3), st.integers(0, 3))),
)
file_maps = st.dictionaries(st.sampled_from(["config.json", "tokenizer.json", "x"]), st.sampled_from("ab"))
EMPTY = Fingerprint(
    tensors={},
    files={},
    architecture="A",
    quantisation="",
    dtype="",
    has_experts=False,
    is_hybrid=False,
    has_own_code=False,
    vocab_size=1,
)


@given(tensor_maps, tensor_maps, file_maps, file_maps)
def test_there_is_no_obstacle_if_and_only_if_everything_is_equal(
    left: dict[str, tuple[str, tuple[int, ...]]],
    right: dict[str, tuple[str, tuple[int, ...]]],
    left_files: dict[str, str],
    right_files: dict[str, str],
) -> None:
    resident, candidate = (
        replace(EMPTY, tensors=left, files=left_files),
        replace(EMPTY, tensors=right, files=right_files),
    )
    found, back = obstacle(resident, candidate), obstacle(candidate, resident)
    assert (found == "") == (left == right and left_files == right_files) == (back == "")
    assert "\n" not in found
