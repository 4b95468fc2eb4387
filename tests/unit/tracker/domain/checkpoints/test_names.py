"""Which folder names are checkpoints, and at which step."""

import pytest

from tracker.domain.checkpoints.names import counts_epochs, series_in, step_of, steps_in, too_high, unit_of


@pytest.mark.parametrize(
    ("name", "pattern", "step"),
    [
        ("checkpoint-10", "checkpoint-*", 10),
        ("checkpoint-0", "checkpoint-*", 0),
        ("checkpoint-000100", "checkpoint-*", 100),
        ("global_step100", "global_step*", 100),
        ("step_7", "step_*", 7),
        ("шаг 7", "шаг *", 7),
        ("checkpoint-10", "step_*", None),
        ("checkpoint-10-merged", "checkpoint-*", None),
        ("checkpoint-best", "checkpoint-*", None),
        ("checkpoint-", "checkpoint-*", None),
        ("tmp-checkpoint-10", "checkpoint-*", None),
        ("last-checkpoint", "checkpoint-*", None),
        ("checkpoint-1٣", "checkpoint-*", None),
        ("checkpoint-" + "9" * 30, "checkpoint-*", None),
        ("Checkpoint-10", "checkpoint-*", None),
        ("checkpoint-1000000000000", "checkpoint-*", 10**12),
        ("checkpoint-1000000000001", "checkpoint-*", None),
        ("checkpoint-1e3", "checkpoint-*", None),
        ("checkpoint1e3", "*", None),
        ("checkpoint--5", "checkpoint-*", None),
        ("my-checkpoint--5", "*", None),
        ("ckpt--5", "ckpt--*", 5),
        ("llama_2e-100", "llama_2e-*", 100),
        ("run--1-step-100", "run*", 100),
    ],
)
def test_with_a_pattern_the_step_is_the_number_at_the_end_of_a_matching_name(
    name: str, pattern: str, step: int | None
) -> None:
    assert step_of(name, pattern) == step


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("checkpoint-5", 5),
        ("checkpoint_0", 0),
        ("global_step50", 50),
        ("iter_0000050", 50),
        ("step-5", 5),
        ("step_005", 5),
        ("ckpt-7", 7),
        ("epoch_3", 3),
        ("epoch=2-step=150.ckpt", 150),
        ("epoch=2-step=150", 150),
        ("my-sft-checkpoint-20", 20),
        ("global_step20_hf", 20),
        ("step1000-unsharded", 1000),
        ("epoch1epochstep5globalstep10", 10),
        ("checkpoint-1000000000000", 10**12),
        ("checkpoint-1000000000001", None),
        ("my-checkpoint-1000000000001", None),
        ("checkpoint-1e3", None),
        ("my-checkpoint-1e3", None),
        ("checkpoint--5", None),
        ("my-checkpoint--5", None),
        ("tmp-checkpoint-10", None),
        ("checkpoint-10-merged", None),
        ("last-checkpoint", None),
        ("v0-20261122-101010", None),
        ("Qwen2", None),
        ("llama-7", None),
        ("best", None),
        ("final", None),
    ],
)
def test_names_that_trainers_use_give_a_step_without_a_pattern(name: str, step: int | None) -> None:
    assert step_of(name) == step


def test_one_form_counts_in_a_folder_and_steps_rather_than_epochs() -> None:
    names = ["epoch_1", "step_100", "step_200", "runs", "best"]
    assert steps_in(names) == {"step_100": 100, "step_200": 200}
    assert steps_in([*names, "checkpoint-100"]) == {"checkpoint-100": 100}
    assert steps_in(["epoch_1", "runs"]) == {"epoch_1": 1}
    assert (counts_epochs("epoch_1"), counts_epochs("epoch=2-step=150")) == (True, False)


def test_a_numbered_series_is_learned_and_a_single_name_is_not() -> None:
    assert series_in(["save_10", "save_20", "best", "v1"]) == {"save_10": 10, "save_20": 20}
    assert series_in(["save_10", "best-2"]) == {}
    assert series_in(["a-1", "a_1"]) == {}, "one number is no series"
    assert series_in(["llama-7b", "llama-13b", "seed1_lora", "seed2_lora"]) == {}, "sizes and seeds"
    assert series_in(["save_10_hf", "save_20_hf"]) == {"save_10_hf": 10, "save_20_hf": 20}
    assert series_in(["checkpoint-1e3", "checkpoint-1e4", "my-1e-3", "my-1e-4"]) == {}, "powers of ten"
    assert series_in(["checkpoint--5", "checkpoint--6"]) == {}, "negative numbers"
    assert series_in(["20261122101010", "20261123101010"]) == {}, "dates"
    assert series_in([]) == {}


def test_names_with_too_high_a_step_are_known_to_be_none() -> None:
    names = ["checkpoint-10", "checkpoint-" + "9" * 200, "my-step-1000000000001", "1000000000001", "runs"]
    assert too_high(names) == names[1:3]
    assert too_high(names, "*") == names[1:4]


def test_a_step_that_only_the_name_gives_may_be_an_epoch() -> None:
    assert unit_of("/out/epoch_1", 1) == "epoch"
    assert unit_of("/out/epoch_1", 250) == "step", "the trainer state has said it"
    assert unit_of("/out/checkpoint-1", 1) == "step"
