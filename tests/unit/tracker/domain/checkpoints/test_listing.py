import pytest

from tracker.domain.checkpoints.listing import is_temporary, is_training_data, is_training_log


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
