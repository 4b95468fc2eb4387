import pytest

from tracker.domain.checkpoints.listing import is_temporary, is_training_data, is_training_log, step_of, usual_step_of


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
    ],
)
def test_the_step_is_the_number_at_the_end_of_a_matching_name(name: str, pattern: str, step: int | None) -> None:
    assert step_of(name, pattern) == step


@pytest.mark.parametrize(
    ("name", "step"),
    [("checkpoint-5", 5), ("global_step5", 5), ("iter_0005", 5), ("Qwen2", None), ("llama-7", None), ("final", None)],
)
def test_only_names_that_trainers_use_say_a_step_without_a_pattern(name: str, step: int | None) -> None:
    assert usual_step_of(name) == step


def test_temporary_names() -> None:
    assert is_temporary(".tmpAbC")
    assert not is_temporary("model.safetensors")


@pytest.mark.parametrize(
    "name",
    ["logging.jsonl", "trainer_log.jsonl", "trainlog.jsonl", "log_history.jsonl", "metrics.jsonl", "all-logs.jsonl"],
)
def test_training_logs_are_known_by_name(name: str) -> None:
    assert is_training_log(name)


@pytest.mark.parametrize(
    "name", ["val_dataset.jsonl", "logging.txt", "logic.jsonl", "catalog.jsonl", "dialogues.jsonl"]
)
def test_data_is_no_training_log(name: str) -> None:
    assert not is_training_log(name)
    assert not is_training_data(name)


def test_training_data_is_known_by_name() -> None:
    assert all(map(is_training_data, ("train.jsonl", "my_train_split.jsonl", "Training.jsonl", "训练集.jsonl")))
    assert not any(map(is_training_data, ("trains.jsonl", "strained.jsonl", "train_log.jsonl")))
