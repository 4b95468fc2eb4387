"""Which zeros are refused and which pass, on tensors laid out as real files lay them out."""

from itertools import accumulate

import pytest

from tracker.domain.checkpoints.raw.tensors import BLOCK_BYTES, TensorFact, WeightsContent, ZeroRun, never_written

HEADER = 1_000
FILE = "model.safetensors"


def laid_out(*shapes: tuple[str, tuple[int, ...]], dtype: str = "BF16", header: int = HEADER) -> list[TensorFact]:
    """Return tensors of two bytes a number, one after the other."""
    sizes = [2 * product(shape) for _, shape in shapes]
    ends = list(accumulate(sizes, initial=header))
    return [
        TensorFact(name=name, dtype=dtype, shape=shape, file=FILE, begin=begin, end=end)
        for (name, shape), begin, end in zip(shapes, ends[:-1], ends[1:], strict=True)
    ]


def product(shape: tuple[int, ...]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count


def verdict(tensors: list[TensorFact], begin: int, end: int | None = None) -> str:
    size = tensors[-1].end
    run = ZeroRun(file=FILE, begin=begin, end=size if end is None else end, is_tail=end is None)
    return never_written(WeightsContent(digest="", tensors=tuple(tensors), zero_runs=(run,)))


LAYER = (
    ("model.embed_tokens.weight", (1_000, 896)),
    ("model.layers.0.mlp.down_proj.weight", (896, 4_864)),
    ("model.layers.0.mlp.up_proj.weight", (4_864, 896)),
    ("model.norm.weight", (896,)),
)


@pytest.mark.parametrize("block", [1, 100, 436, 437, 438, 1_500, 2_000, 4_000, 4_690])
def test_a_tail_from_a_block_of_the_disk_on_was_never_written(block: int) -> None:
    tensors = laid_out(*LAYER)
    assert block * BLOCK_BYTES < tensors[-1].end
    reason = verdict(tensors, block * BLOCK_BYTES)
    assert "never written" in reason
    assert "model.norm.weight" in reason
    assert "to the end of the file" in reason


def test_the_numbers_before_a_hole_may_end_in_zero_bytes_themselves() -> None:
    assert verdict(laid_out(*LAYER), 1_500 * BLOCK_BYTES - 3)


def test_a_hole_in_the_middle_is_named_with_its_end() -> None:
    tensors = laid_out(*LAYER)
    reason = verdict(tensors, 800 * BLOCK_BYTES, 900 * BLOCK_BYTES + 2)
    assert f"from byte {800 * BLOCK_BYTES} to byte {900 * BLOCK_BYTES + 2}" in reason


def test_a_hole_over_the_border_of_two_tensors_is_found() -> None:
    tensors = laid_out(*LAYER)
    border = tensors[1].begin // BLOCK_BYTES
    assert verdict(tensors, (border - 3) * BLOCK_BYTES, (border + 5) * BLOCK_BYTES)


def test_a_copy_that_stopped_anywhere_leaves_a_tail_that_is_found() -> None:
    tensors = laid_out(*LAYER)
    assert verdict(tensors, tensors[2].begin + 12_345)


def test_whole_matrices_of_zeros_up_to_the_end_were_never_written() -> None:
    tensors = laid_out(*LAYER)
    assert verdict(tensors, tensors[1].begin)


def test_padded_rows_at_the_end_of_an_embedding_are_no_fault_even_at_the_end_of_the_file() -> None:
    tensors = laid_out(("h.0.weight", (500, 768)), ("wte.weight", (1_000, 768)))
    row = 768 * 2
    assert verdict(tensors, tensors[1].end - 24 * row) == ""
    assert verdict(tensors, tensors[1].begin + 10 * row, tensors[1].begin + 20 * row) == ""


def test_a_matrix_that_begins_at_zero_is_no_fault() -> None:
    tensors = laid_out(("lora_A.weight", (8, 896)), ("lora_B.weight", (896, 8)))
    assert verdict(tensors, tensors[1].begin) == ""
    assert verdict(tensors, tensors[0].begin, tensors[0].end) == ""


def test_a_bias_and_a_matrix_that_begin_at_zero_together_are_no_fault() -> None:
    tensors = laid_out(("up.weight", (500, 300)), ("modulation.bias", (3_000,)), ("modulation.weight", (3_000, 500)))
    assert verdict(tensors, tensors[1].begin) == ""


def test_biases_of_zeros_one_after_the_other_are_no_fault() -> None:
    tensors = laid_out(("a.bias", (4_000,)), ("b.bias", (4_000,)), ("c.weight", (100, 100)), ("d.bias", (4_000,)))
    assert verdict(tensors, tensors[0].begin, tensors[1].end) == ""
    assert verdict(tensors, tensors[3].begin) == ""


def test_a_part_of_a_bias_may_be_zero() -> None:
    tensors = laid_out(("qkv.bias", (9_000,)), ("weight", (100, 100)))
    assert verdict(tensors, tensors[0].begin + 6_000, tensors[0].begin + 12_000) == ""


@pytest.mark.parametrize(("name", "dtype"), [("h.0.attn.bias", "BF16"), ("causal_mask", "BF16"), ("anything", "BOOL")])
def test_masks_are_zeros_by_design(name: str, dtype: str) -> None:
    tensors = laid_out((name, (2_000, 4_000)), dtype=dtype)
    assert verdict(tensors, 100 * BLOCK_BYTES) == ""


def test_zeros_of_a_block_sparse_matrix_are_no_fault_where_no_block_of_the_disk_ends() -> None:
    tensors = laid_out(("blocks.weight", (4_000, 8_000)))
    begin = tensors[0].begin + 10 * 16_000 + 1_000
    assert verdict(tensors, begin, begin + 9_000) == ""


def test_nothing_is_said_of_weights_without_zeros() -> None:
    assert never_written(WeightsContent(digest="", tensors=tuple(laid_out(*LAYER)))) == ""
