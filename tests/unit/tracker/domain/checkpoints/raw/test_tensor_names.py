"""Which absent tensors are a fault, and which come and go with the libraries."""

from dataclasses import replace

import pytest

from tests.tiny_model import LAYERS, random_tensors
from tracker.domain.checkpoints.raw.tensor_names import Earlier, absent_by_config, changed_settings, compare_weights
from tracker.domain.checkpoints.raw.tensors import TensorFact, WeightsContent

LLAMA = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "num_hidden_layers": LAYERS,
    "tie_word_embeddings": False,
}
NAMES = tuple(random_tensors(1))


def facts(*names: str, shape: tuple[int, ...] = (8, 8), dtype: str = "F32") -> tuple[TensorFact, ...]:
    return tuple(TensorFact(name=n, dtype=dtype, shape=shape, file="f", begin=0, end=256) for n in names)


def content(*names: str, zeros: tuple[str, ...] = (), shape: tuple[int, ...] = (8, 8)) -> WeightsContent:
    return WeightsContent(digest="", tensors=facts(*names, shape=shape), zeros=frozenset(zeros))


def earlier(*names: str, zeros: tuple[str, ...] = (), shape: tuple[int, ...] = (8, 8)) -> Earlier:
    tensors = {t.name: t for t in facts(*names, shape=shape)}
    return Earlier(step=10, tensors=tensors, config=LLAMA, zeros=frozenset(zeros))


def without(*gone: str) -> list[str]:
    return [name for name in NAMES if name not in gone]


# --- by config.json


def test_a_whole_model_lacks_nothing() -> None:
    assert absent_by_config(NAMES, LLAMA) == ()


def test_any_tensor_of_a_llama_that_is_missing_is_named_without_another_checkpoint_to_compare_with() -> None:
    assert [absent_by_config(without(name), LLAMA) for name in NAMES] == [(name,) for name in NAMES]


def test_a_kind_of_tensor_that_is_missing_in_every_layer_is_named() -> None:
    gone = tuple(f"model.layers.{layer}.mlp.down_proj.weight" for layer in range(LAYERS))
    assert absent_by_config(without(*gone), LLAMA) == gone


def test_a_whole_layer_that_is_missing_is_named() -> None:
    left = [name for name in NAMES if ".layers.1." not in name]
    assert len(absent_by_config(left, LLAMA)) == 9


@pytest.mark.parametrize(
    "change",
    [{"model_type": "qwen3_next"}, {"quantization_config": {"bits": 4}}, {"num_hidden_layers": None}],
    ids=["layers of several kinds", "quantised names", "number of layers unknown"],
)
def test_where_the_layers_are_not_certain_nothing_is_said(change: dict[str, object]) -> None:
    assert absent_by_config(without("model.layers.1.mlp.down_proj.weight"), {**LLAMA, **change}) == ()


def test_a_tied_output_is_not_demanded() -> None:
    assert absent_by_config(without("lm_head.weight"), {**LLAMA, "tie_word_embeddings": True}) == ()


def test_layers_of_gpt2_must_hold_the_same_whatever_that_is() -> None:
    config = {"model_type": "gpt2", "n_layer": 2, "architectures": ["GPT2LMHeadModel"]}
    names = [f"transformer.h.{layer}.{rest}" for layer in (0, 1) for rest in ("ln_1.weight", "attn.c_attn.weight")]
    assert absent_by_config(names, config) == ()
    assert absent_by_config([*names, "transformer.h.0.attn.bias"], config) == ()
    assert absent_by_config(names[:-1], config) == ("transformer.h.1.attn.c_attn.weight",)


def test_a_model_wrapped_in_another_has_names_of_its_own() -> None:
    wrapped = [f"language_model.{name}" for name in without("model.layers.1.mlp.down_proj.weight")]
    assert absent_by_config(wrapped, LLAMA) == ()


# --- against an earlier checkpoint


def test_a_tensor_that_an_earlier_checkpoint_has_is_missed_by_name() -> None:
    found = compare_weights(content("a", "c"), LLAMA, earlier("a", "b", "c"))
    assert found.fault == "tensor b is missing, but present at step 10"


def test_many_missing_tensors_are_counted() -> None:
    found = compare_weights(content("a"), LLAMA, earlier("a", *(f"t{n}" for n in range(9))))
    assert found.fault.startswith("tensors t0, t1, t2, t3, t4 and 4 more are missing")


@pytest.mark.parametrize(
    "name",
    [
        "model.layers.0.self_attn.rotary_emb.inv_freq",
        "transformer.h.0.attn.bias",
        "transformer.h.0.attn.masked_bias",
        "embeddings.position_ids",
        "v_head.summary.weight",
        "model.layers.2.self_attn.q_proj.weight",
        "mtp.layers.0.weight",
    ],
)
def test_what_comes_and_goes_with_libraries_is_a_note(name: str) -> None:
    found = compare_weights(content("a"), LLAMA, earlier("a", name))
    assert found.fault == ""
    assert found.notes == (f"tensor {name} is missing, but present at step 10",)


@pytest.mark.parametrize(
    ("tied", "kind", "is_fault"),
    [(True, "llama", False), (False, "gemma", True), (None, "llama", True), (None, "gemma", False)],
)
def test_lm_head_may_go_where_it_is_the_embedding(*, tied: bool | None, kind: str, is_fault: bool) -> None:
    config = {**LLAMA, "model_type": kind, "tie_word_embeddings": tied}
    before = replace(earlier("a", "lm_head.weight"), config=config)
    assert bool(compare_weights(content("a"), config, before).fault) is is_fault


def test_another_architecture_in_the_same_folder_is_said_and_not_refused() -> None:
    found = compare_weights(content("a"), {**LLAMA, "num_hidden_layers": 1}, earlier("a", "b"))
    assert found.fault == ""
    assert "configuration differs from step 10 in num_hidden_layers" in found.notes[0]
    assert "tensor b is missing" in found.notes[1]


def test_new_tensors_shapes_and_types_are_notes() -> None:
    now = WeightsContent(digest="", tensors=(*facts("a", shape=(8, 9), dtype="BF16"), *facts("b")))
    assert compare_weights(now, LLAMA, earlier("a")).notes == (
        "tensor b is new since step 10",
        "tensor a is of a different shape than at step 10",
        "tensor a is of a different dtype than at step 10",
    )


def test_a_matrix_that_held_numbers_and_is_zero_now_is_a_fault() -> None:
    found = compare_weights(content("a", "b", zeros=("b",)), LLAMA, earlier("a", "b"))
    assert found.fault == "tensor b is all zeros, but not at step 10"


def test_what_was_zero_before_or_is_not_known_or_is_a_bias_may_be_zero() -> None:
    lora = content("a.lora_B.weight", zeros=("a.lora_B.weight",))
    assert compare_weights(lora, LLAMA, earlier("a.lora_B.weight", zeros=("a.lora_B.weight",))).fault == ""
    bias = content("k_proj.bias", zeros=("k_proj.bias",), shape=(64,))
    assert compare_weights(bias, LLAMA, earlier("k_proj.bias", shape=(64,))).fault == ""
    norm = content("model.norm.weight", zeros=("model.norm.weight",), shape=(64,))
    assert compare_weights(norm, LLAMA, earlier("model.norm.weight", shape=(64,))).fault != ""


def test_configurations_differ_where_it_matters_and_the_order_of_a_set_does_not() -> None:
    one = {"r": 8, "target_modules": ["q", "v"], "base_model_name_or_path": "/a", "transformers_version": "5.1"}
    two = {"r": 8, "target_modules": ["v", "q"], "base_model_name_or_path": "/b"}
    assert changed_settings(one, two) == ()
    assert changed_settings(one, {**two, "r": 4}) == ("r",)
