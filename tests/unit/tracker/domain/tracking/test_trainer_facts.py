"""What trainers leave, as short texts of known names; and names that tell runs apart."""

from typing import Any

import pytest

from tracker.domain.tracking.trainer_facts import (
    COMMIT_TAG,
    MAX_NAME_CHARS,
    MAX_VALUE_CHARS,
    NamedRun,
    display_names,
    trainer_facts,
)

COMMIT = "e83c5163316f89bfbde7d9ab23ca2e25604af290"


@pytest.mark.parametrize(
    ("document", "params"),
    [
        (
            {"learning_rate": 3e-4, "seed": 7, "optim": "adamw"},
            {"learning_rate": "0.0003", "optim": "adamw", "seed": "7"},
        ),
        ({"lr": "1e-4", "num_epochs": "3.0"}, {"learning_rate": "0.0001", "num_train_epochs": "3"}),
        ({"max_steps": -1, "data_seed": None, "warmup_steps": "null", "seed": True, "weight_decay": float("nan")}, {}),
        (
            {"learning_rate": [1, {"a": 2}], "seed": {"a": 1}, "max_steps": 1 << 99, "optim": b"x"},
            {"learning_rate": "1"},
        ),
        ({"hub_token": "hf_secret", "api_key": "s", "r": 8, "lora_alpha": 16, "target_modules": ["q"]}, {}),
        ({"base_model": "https://me:hf_secret@host/m\x1b[31m\nx"}, {"base_model": "https://host/m\ufffd[31m x"}),
        ({"optim": "x" * 10_000}, {"optim": "x" * MAX_VALUE_CHARS}),
    ],
)
def test_known_values_become_short_texts_and_others_are_left_out(
    document: dict[str, Any], params: dict[str, str]
) -> None:
    assert trainer_facts({"args.json": document}).params == params


def test_an_adapters_own_file_states_rank_and_base_model_whatever_others_say() -> None:
    adapter = {"r": 16, "lora_alpha": 32, "target_modules": ["v_proj", "q_proj"], "base_model_name_or_path": "org/base"}
    facts = trainer_facts({"args.json": {"model": "m", "lora_rank": 8}, "adapter_config.json": adapter})
    wanted = {"base_model": "org/base", "lora_r": "16", "lora_alpha": "32", "target_modules": "q_proj, v_proj"}
    assert facts.params == wanted


def test_the_first_file_counts() -> None:
    assert trainer_facts({"trainer_state.json": {"max_steps": 50}, "args.json": {"max_steps": 9}}).params == {
        "max_steps": "50"
    }


@pytest.mark.parametrize(
    ("document", "name"),
    [
        ({"run_name": "sft 7b"}, "sft 7b"),
        ({"run_name": None, "trial_name": "trial-3"}, "trial-3"),
        ({"run_name": "./out/sft"}, ""),
        ({"run_name": "out", "output_dir": "out"}, ""),
        ({"run_name": "1e5", "wandb_name": "other"}, "1e5"),
        ({"run_name": {"a": 1}}, ""),
        ({"run_name": "n" * 5000}, "n" * MAX_NAME_CHARS),
    ],
)
def test_the_trainers_name_is_used_unless_it_is_the_output_folder(document: dict[str, Any], name: str) -> None:
    assert trainer_facts({"args.json": document}).name == name


@pytest.mark.parametrize(("value", "tag"), [(COMMIT, COMMIT), ("12e4567", "12e4567"), ("main", None), (5, None)])
def test_a_commit_is_a_tag_if_it_is_one(value: object, tag: str | None) -> None:
    assert trainer_facts({"args.json": {"git_commit": value}}).tags.get(COMMIT_TAG) == tag


@pytest.mark.parametrize(
    ("runs", "names"),
    [
        ([("sft", "1", "a"), ("dpo", "1", "b")], ["sft", "dpo"]),
        ([("sft", "1", "a"), ("sft", "2", "b"), ("dpo", "", "c")], ["sft, seed 1", "sft, seed 2", "dpo"]),
        ([("sft", "42", "a"), ("sft", "42", "b")], ["sft (a)", "sft (b)"]),
        ([("sft", "", "a"), ("sft", "3", "b")], ["sft", "sft, seed 3"]),
        ([("out", "", "out"), ("out", "", "out")], ["out", "out"]),
        ([], []),
    ],
)
def test_runs_of_equal_names_get_what_tells_them_apart(runs: list[tuple[str, str, str]], names: list[str]) -> None:
    assert display_names([NamedRun(name=name, seed=seed, run_id=run) for name, seed, run in runs]) == names
