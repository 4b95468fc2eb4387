"""Checkpoints in a real S3 server: found whatever the order of their objects, and downloaded whole."""

import random
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from eval_jobs.host.clock import SystemClock
from eval_jobs.types import Checkpoint
from tests import trainer
from tests.buckets import FIRST_S, SETTLE_S, WatchedBucket, open_source, s3_server, watching_bucket
from tests.fakes.s3_proxy import S3Proxy
from tests.requires import small_disk
from tests.tiny_model import write_lora, write_sharded_checkpoint
from tracker.adapters.checkpoints.bucket.client import S3Object
from tracker.adapters.checkpoints.bucket.source import BucketSource
from tracker.adapters.checkpoints.folder.once import pin_folder
from tracker.adapters.checkpoints.pins.manifest import MANIFEST
from tracker.adapters.curves import TrainerCurves
from tracker.domain.checkpoints import buckets
from tracker.domain.checkpoints.watching import WatchOptions


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with s3_server() as url:
        yield url


@pytest.fixture
def watched(endpoint: str, tmp_path: Path) -> Iterator[WatchedBucket]:
    with watching_bucket(endpoint, tmp_path) as world:
        yield world


@pytest.fixture
def proxy(endpoint: str) -> Iterator[S3Proxy]:
    with S3Proxy(endpoint) as proxy:
        yield proxy


@pytest.fixture
def proxied(endpoint: str, tmp_path: Path, proxy: S3Proxy) -> Iterator[WatchedBucket]:
    with watching_bucket(endpoint, tmp_path, through=proxy.url) as world:
        yield world


def holds(pins: Path) -> list[str]:
    return [path.name for path in pins.glob("*/*") if not path.name.startswith("step-")]


def test_a_checkpoint_is_downloaded_whole_when_it_has_settled(watched: WatchedBucket) -> None:
    watched.save(10, seed=1)
    assert watched.look() == ()
    assert watched.look(FIRST_S - 0.5) == ()
    assert watched.source.is_behind()
    (checkpoint,) = watched.look(1.0)
    pin = Path(checkpoint.uri)
    assert checkpoint.source_uri == f"{watched.uploads.location.uri}/checkpoint-10"
    assert (pin / "model.safetensors").read_bytes() == trainer.weights(1)
    held = {
        "model.safetensors",
        "config.json",
        "generation_config.json",
        "tokenizer.json",
        "trainer_state.json",
        MANIFEST,
    }
    assert {path.name for path in pin.iterdir()} == held
    assert not watched.source.is_behind()
    points = TrainerCurves().read(checkpoint)
    assert [p.step for p in points if "loss" in p.key] == list(range(1, 11))


def test_the_digest_is_the_same_as_on_a_disk(watched: WatchedBucket, tmp_path: Path) -> None:
    folder = trainer.save(tmp_path / "out", 10, seed=1)
    on_disk = pin_folder(folder, run_id="run", pins_dir=tmp_path / "other")
    watched.uploads.folder(folder)
    (checkpoint,) = watched.settle()
    assert checkpoint.digest == on_disk.digest


def test_a_source_that_lives_long_sees_every_new_checkpoint(watched: WatchedBucket) -> None:
    found: list[int] = []
    for step in range(10, 60, 10):
        found += [c.step for c in watched.look(FIRST_S)]
        watched.save(step)
        found += [c.step for c in watched.look(FIRST_S)]
    assert found + [c.step for c in watched.look(FIRST_S)] == [10, 20, 30, 40, 50]


@pytest.mark.parametrize("seed", range(3))
def test_objects_may_come_in_any_order_and_with_pauses(seed: int, watched: WatchedBucket, tmp_path: Path) -> None:
    watched.save(10)
    assert watched.steps() == [10]
    folder = trainer.save(tmp_path / "out", 20)
    names = [path.name for path in folder.iterdir()]
    random.Random(seed).shuffle(names)  # noqa: S311 - an order, no secret
    if seed == 0:
        names.sort(key=lambda name: name != "trainer_state.json")
    needed = [*names]
    for name in names:
        watched.uploads.folder(folder, names=[name])
        needed.remove(name)
        is_whole = not any(n.endswith((".json", ".safetensors")) for n in needed)
        # A pause longer than settle_s, in which a large object is on its way, after every single object.
        seen = watched.look() + watched.look(SETTLE_S + 1.0)
        assert is_whole or seen == (), f"taken before {needed}"
        if seen:
            break
    else:
        seen = watched.look(SETTLE_S + 1.0)
    (checkpoint,) = seen
    assert (Path(checkpoint.uri) / "tokenizer.json").exists()
    assert watched.reasons() == []


def test_without_a_trainer_state_quiet_decides(watched: WatchedBucket) -> None:
    watched.uploads.folder(trainer.save_model(watched.local / "checkpoint-10", seed=1))
    assert watched.look() + watched.look(FIRST_S - 1.0) == ()
    watched.uploads.put("checkpoint-10/chat_template.jinja", b"{{ messages }}")
    assert watched.look() + watched.look(FIRST_S - 1.0) == ()
    (checkpoint,) = watched.look(2.0)
    assert (Path(checkpoint.uri) / "chat_template.jinja").exists()


def test_a_large_object_on_its_way_holds_the_checkpoint_back(watched: WatchedBucket) -> None:
    at = {"Bucket": watched.uploads.location.bucket, "Key": f"{watched.uploads.location.prefix}checkpoint-10/vocab.txt"}
    client = watched.uploads.client
    upload = client.create_multipart_upload(**at)["UploadId"]
    watched.save(10)
    assert watched.look() + watched.look(FIRST_S + 1.0) == ()
    part = client.upload_part(**at, UploadId=upload, PartNumber=1, Body=b"a")
    assert watched.look(FIRST_S) == ()
    assert watched.source.is_behind()
    parts = {"Parts": [{"ETag": part["ETag"], "PartNumber": 1}]}
    client.complete_multipart_upload(**at, UploadId=upload, MultipartUpload=parts)
    (checkpoint,) = watched.settle()
    assert (Path(checkpoint.uri) / "vocab.txt").read_bytes() == b"a"


def test_an_upload_that_was_left_lying_holds_nobody_up_for_ever(watched: WatchedBucket) -> None:
    location = watched.uploads.location
    key = f"{location.prefix}checkpoint-10/optimizer.pt"
    watched.save(10, names=["config.json", "model.safetensors"])
    watched.uploads.client.create_multipart_upload(Bucket=location.bucket, Key=key)
    assert watched.steps() == []
    assert [c.step for c in watched.look(700.0)] == [10]


def test_a_file_that_comes_too_late_is_said(watched: WatchedBucket, caplog: pytest.LogCaptureFixture) -> None:
    watched.uploads.folder(trainer.save_model(watched.local / "checkpoint-10", seed=1))
    assert watched.steps() == [10]
    watched.uploads.put("checkpoint-10/chat_template.jinja", b"{{ messages }}")
    watched.look()
    watched.look()
    assert caplog.text.count("chat_template.jinja was uploaded after the checkpoint was pinned") == 1


def test_sharded_and_lora_checkpoints_and_runs_in_sub_folders_are_found(watched: WatchedBucket, tmp_path: Path) -> None:
    write_sharded_checkpoint(tmp_path / "sharded")
    watched.uploads.folder(tmp_path / "sharded", to="v0/checkpoint-10")
    write_lora(tmp_path / "base", tmp_path / "lora")
    watched.uploads.folder(tmp_path / "lora", to="v1/checkpoint-20")
    found = [(c.run_id, c.step, c.format.value) for c in watched.settle()]
    assert found == [("run/v0", 10, "full"), ("run/v1", 20, "lora")]


def test_markers_of_folders_odd_names_and_a_thousand_other_objects_do_no_harm(watched: WatchedBucket) -> None:
    for name in ("", "checkpoint-10/", "checkpoint-20/", "v0/", "checkpoint-10_$folder$", "checkpoint-abc/x"):
        watched.uploads.put(name, b"")
    watched.uploads.many(f"a-logs/{number}" for number in range(1050))
    odd = [
        "a b+c&d=é%20.json",
        "quote'\"<>.txt",
        "checkpoint-10/../x.json",
        "../../x.json",
        "n" * 300 + ".json",
        ".pin.json",
    ]
    for name in odd:
        watched.uploads.put(f"checkpoint-10/{name}", b"{}")
    watched.save(10)
    (checkpoint,) = watched.settle()
    names = {path.name for path in Path(checkpoint.uri).iterdir()}
    assert {"a b+c&d=é%20.json", "quote'\"<>.txt"} <= names
    assert not names & {"x.json", "n" * 300 + ".json"}
    assert not list(watched.pins.parent.rglob("x.json"))
    assert (Path(checkpoint.uri) / MANIFEST).read_bytes() != b"{}"


def test_a_rewritten_step_is_another_checkpoint_and_both_are_kept(watched: WatchedBucket) -> None:
    watched.save(10, seed=1)
    (first,) = watched.settle()
    watched.save(10, seed=2)
    (second,) = watched.settle()
    assert (Path(first.uri) / "model.safetensors").read_bytes() == trainer.weights(1)
    assert (Path(second.uri) / "model.safetensors").read_bytes() == trainer.weights(2)


def test_an_object_that_is_written_again_during_the_download_is_never_mixed(watched: WatchedBucket) -> None:
    bucket = watched.source.bucket
    watched.save(10, seed=1)
    watched.look()
    true_download = bucket.download
    written: list[bool] = []

    def download(thing: S3Object, **arguments: object) -> bool:
        if thing.key.endswith("model.safetensors") and not written:
            written.append(True)
            watched.save(10, seed=2, names=["model.safetensors"])
        return bool(true_download(thing, **arguments))  # type: ignore[arg-type]

    bucket.download = download  # type: ignore[method-assign]
    assert watched.look(FIRST_S) == ()
    assert written == [True]
    assert holds(watched.pins) == []
    (checkpoint,) = watched.settle()
    assert (Path(checkpoint.uri) / "model.safetensors").read_bytes() == trainer.weights(2)
    assert watched.reasons() == []


def test_what_goes_during_the_download_is_a_gap_and_leaves_nothing_behind(watched: WatchedBucket) -> None:
    bucket = watched.source.bucket
    watched.save(10)
    watched.look()
    true_download = bucket.download

    def download(thing: object, **arguments: object) -> bool:
        watched.uploads.delete("checkpoint-10/")
        return bool(true_download(thing, **arguments))  # type: ignore[arg-type]

    bucket.download = download  # type: ignore[method-assign]
    assert watched.look(FIRST_S) == ()
    assert watched.look(FIRST_S) == ()
    assert watched.reasons() == [(10, "E-CKPT-VANISHED")]
    assert "during the download" in watched.source.gaps()[0].message
    assert holds(watched.pins) == []


def test_nan_weights_are_a_gap_and_are_not_kept(watched: WatchedBucket, tmp_path: Path) -> None:
    folder = trainer.save(tmp_path / "out", 10)
    content = bytearray(trainer.weights(1))
    content[-4:] = b"\x00\x00\xc0\x7f"
    (folder / "model.safetensors").write_bytes(content)
    watched.uploads.folder(folder)
    assert watched.steps() == []
    assert watched.reasons() == [(10, "E-CKPT-UNREADABLE")]
    assert holds(watched.pins) == []


def test_a_full_disk_is_no_gap_and_the_checkpoint_is_taken_when_there_is_room(watched: WatchedBucket) -> None:
    with small_disk(watched.pins, size="16k"):
        watched.save(10)
        assert watched.steps() == []
        assert watched.reasons() == []
        assert holds(watched.pins) == []
        subprocess.run(["mount", "-o", "remount,size=4m", str(watched.pins)], check=True)
        assert watched.steps() == [10]


def test_a_look_is_one_request_and_nothing_is_read_twice(proxied: WatchedBucket, proxy: S3Proxy) -> None:
    proxied.save(10)
    assert proxied.steps() == [10]
    assert len(proxy.gets("model.safetensors")) == 2  # the header, then all of it
    assert len(proxy.gets("trainer_state.json")) == 2
    assert proxy.gets("optimizer.pt") == []
    proxy.asked.clear()
    for _ in range(5):
        proxied.look(FIRST_S)
    assert len(proxy.asked) == proxy.listings() == 5


def test_an_unfinished_checkpoint_is_not_read_again_and_again(proxied: WatchedBucket, proxy: S3Proxy) -> None:
    proxied.save(10, names=["config.json", "model.safetensors", "optimizer.pt"])
    for _ in range(5):
        proxied.look(SETTLE_S)
    assert len(proxy.gets("model.safetensors")) == 1


def test_a_thousand_objects_cost_one_request_and_one_more_two(proxied: WatchedBucket, proxy: S3Proxy) -> None:
    proxied.save(10)
    assert proxied.steps() == [10]
    proxied.uploads.many(f"x/{number}" for number in range(1000 - len(proxied.uploads.keys())))
    proxy.asked.clear()
    proxied.look(FIRST_S)
    assert proxy.listings() == 1
    proxied.uploads.put("x/more", b"")
    proxied.save(20)
    assert proxied.steps() == [20]
    assert proxy.listings() == 1 + 2 * 3


def test_the_bucket_is_only_read(proxied: WatchedBucket, proxy: S3Proxy) -> None:
    proxied.save(10)
    proxied.save(20, names=["config.json"])
    before = proxied.uploads.keys()
    assert proxied.steps() == [10]
    assert {asked.method for asked in proxy.asked} == {"GET"}
    assert proxied.uploads.keys() == before


def test_pins_are_taken_over_by_the_next_process(watched: WatchedBucket) -> None:
    watched.save(10)
    (checkpoint,) = watched.settle()
    shutil.rmtree(watched.local)
    watched.uploads.delete("checkpoint-10/")
    watched.source.close()
    again = open_source(watched.uploads, watched.pins, watched.clock)
    found: tuple[Checkpoint, ...] = again.ready(watched.clock.now())
    again.close()
    assert found == (checkpoint,)
    assert again.gaps() == ()


def test_its_own_thread_finds_checkpoints_while_the_trainer_uploads(
    watched: WatchedBucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(buckets, "FIRST_S", 0.1)
    clock = SystemClock()
    options = WatchOptions(settle_s=0.1, rescan_s=0.1)
    source = BucketSource("run", watched.source.bucket, tmp_path / "other", options, clock)
    found: list[int] = []
    assert source.is_behind()  # nothing is known before the first look has ended
    assert source.ready(clock.now()) == ()
    for step in (10, 20, 30):
        watched.save(step)
        while step not in found:
            source.wait(5.0)
            found += [c.step for c in source.ready(clock.now())]
    source.close()
    assert found == [10, 20, 30]
    assert source.gaps() == ()
