"""Names of places in buckets, and how long an upload is waited for."""

import pytest

from eval_jobs.errors import ConfigError
from tracker.domain.checkpoints.buckets import FIRST_S, demand_whole_weights, parse_location, patience_s
from tracker.domain.checkpoints.listing import Facts, FileFact
from tracker.domain.checkpoints.watching import STALLED_S

SMALL = frozenset({"config.json", "tokenizer.json"})


@pytest.mark.parametrize(
    ("uri", "bucket", "prefix"),
    [
        ("s3://b", "b", ""),
        ("s3://b/", "b", ""),
        ("s3://b/runs/sft", "b", "runs/sft/"),
        ("s3://b/runs/sft/", "b", "runs/sft/"),
        ("s3://my-bucket.x/a b", "my-bucket.x", "a b/"),
    ],
)
def test_a_place_is_a_bucket_and_a_prefix(uri: str, bucket: str, prefix: str) -> None:
    location = parse_location(uri)
    assert (location.bucket, location.prefix) == (bucket, prefix)
    assert parse_location(location.uri) == location


@pytest.mark.parametrize("uri", ["s3://", "s3:///x", "gs://b/x", "s3://key:secret@b/x", "/folder"])
def test_other_addresses_are_refused(uri: str) -> None:
    with pytest.raises(ConfigError):
        parse_location(uri)


def test_the_first_checkpoint_of_a_run_is_waited_for_longer() -> None:
    assert patience_s(SMALL, None, 3.0) == FIRST_S
    assert patience_s(SMALL, None, 100.0) == 100.0
    assert patience_s(SMALL, SMALL, 3.0) == 3.0
    assert patience_s(SMALL | {"more.txt"}, SMALL, 3.0) == 3.0


def test_one_that_lacks_a_file_of_the_earlier_ones_is_waited_for_until_nothing_comes_any_more() -> None:
    assert patience_s(frozenset({"config.json"}), SMALL, 3.0) == STALLED_S


def facts(*names: str, folders: tuple[str, ...] = ()) -> Facts:
    files = tuple(FileFact(name=name, size=1, mtime_ns=1, inode=1) for name in names)
    return Facts(path="s3://b/checkpoint-10", mtime_ns=0, files=files, folders=folders)


@pytest.mark.parametrize(
    ("found", "named"),
    [
        (facts("config.json", folders=("pytorch_model_fsdp_0",)), "pytorch_model_fsdp_0"),
        (facts("config.json", "pytorch_model.bin"), "pytorch_model.bin"),
        (facts("config.json", "latest", folders=("global_step10",)), "global_step10"),
        (facts(".metadata", "__0_0.distcp"), ".metadata"),
    ],
)
def test_states_that_only_a_folder_can_give_are_named(found: Facts, named: str) -> None:
    useless = demand_whole_weights(found)
    assert useless is not None
    assert named in useless.reason


@pytest.mark.parametrize("found", [facts(), facts("config.json", "optimizer.bin"), facts("model.safetensors", "x.bin")])
def test_weights_that_are_there_or_may_come_are_not_complained_about(found: Facts) -> None:
    assert demand_whole_weights(found) is None
