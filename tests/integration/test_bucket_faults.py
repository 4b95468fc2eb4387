"""An S3 server that is slow, busy, refuses, cuts or is another one, and kills in the middle of a download."""

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from eval_jobs.errors import CheckpointIncomplete, CheckpointNotFound, ConfigError, StoreUnavailable
from tests import trainer
from tests.buckets import FIRST_S, Uploads, WatchedBucket, open_source, s3_server, watching_bucket
from tests.fakes.clock import FakeClock
from tests.fakes.http_proxy import Fault
from tests.fakes.s3_proxy import S3Proxy
from tracker.adapters.checkpoints.bucket import client as bucket_client
from tracker.adapters.checkpoints.bucket import fetch as bucket_fetch
from tracker.adapters.checkpoints.bucket.client import Bucket
from tracker.adapters.checkpoints.bucket.once import pin_from_bucket
from tracker.config import parse_config
from tracker.domain.checkpoints.buckets import S3Access, S3Location, parse_location
from tracker.wiring.checkpoints import pin_named
from tracker.wiring.project import Project

LARGE = (1024, 1024)
"""Three tensors of 4 MB: several blocks of a download."""


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with s3_server() as url:
        yield url


@pytest.fixture
def proxy(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Proxy]:
    monkeypatch.setattr(bucket_client, "ATTEMPTS", 1)  # what is repeated after it is our own
    with S3Proxy(endpoint) as proxy:
        yield proxy


@pytest.fixture
def watched(endpoint: str, tmp_path: Path, proxy: S3Proxy) -> Iterator[WatchedBucket]:
    with watching_bucket(endpoint, tmp_path, through=proxy.url) as world:
        yield world


@pytest.mark.parametrize(
    "fault", [Fault.REFUSED, Fault.BUSY, Fault.ANSWER_LOST, Fault.ANSWER_CUT, Fault.PAGE, Fault.LATE]
)
def test_an_outage_causes_no_gap_and_no_exit_and_is_logged_once(
    fault: Fault, watched: WatchedBucket, proxy: S3Proxy, caplog: pytest.LogCaptureFixture
) -> None:
    watched.save(10, names=["config.json", "model.safetensors", "optimizer.pt"])
    watched.save(20)
    assert watched.look() == ()
    proxy.always = fault
    for _ in range(3):
        assert watched.look(400.0) == ()
        assert watched.source.is_behind()
    watched.source.give_up(watched.clock.now())
    assert watched.reasons() == []
    assert caplog.text.count("cannot read s3://") == 1
    proxy.always = None
    assert watched.steps() == [20]
    assert "reachable again" in caplog.text
    watched.look(FIRST_S)
    assert watched.reasons() == [(10, "E-CKPT-INCOMPLETE")]


def test_a_bucket_server_without_a_response_times_out_and_is_retried(
    endpoint: str, tmp_path: Path, proxy: S3Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket_client, "READ_S", 1)
    with watching_bucket(endpoint, tmp_path, through=proxy.url) as watched:
        watched.save(10)
        proxy.always = Fault.SILENT
        assert watched.look() == ()
        assert watched.source.is_behind()
        proxy.always = None
        # A busy machine may say nothing for a second by itself.
        assert next(found for _ in range(60) if (found := watched.steps())) == [10]


def test_a_busy_bucket_server_is_retried_within_one_scan(
    endpoint: str, tmp_path: Path, proxy: S3Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket_client, "ATTEMPTS", 3)
    with watching_bucket(endpoint, tmp_path, through=proxy.url) as watched:
        watched.save(10)
        proxy.by_name["model.safetensors"] = 503
        assert watched.steps() == [10]


def test_an_interrupted_download_resumes_at_its_last_byte(watched: WatchedBucket, proxy: S3Proxy) -> None:
    content = trainer.weights(1, shape=LARGE)
    watched.save(10)
    watched.uploads.put("checkpoint-10/model.safetensors", content)
    assert watched.look() == ()
    proxy.by_name["model.safetensors"] = Fault.ANSWER_CUT
    (checkpoint,) = watched.look(FIRST_S)
    assert (Path(checkpoint.uri) / "model.safetensors").read_bytes() == content
    _, first, second = proxy.gets("model.safetensors")
    assert first == f"bytes=0-{len(content) - 1}"
    assert 0 < int(second.removeprefix("bytes=").partition("-")[0]) < len(content)


def test_a_download_resumes_after_an_outage(
    watched: WatchedBucket, proxy: S3Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = trainer.weights(1, shape=LARGE)
    watched.save(10)
    watched.uploads.put("checkpoint-10/model.safetensors", content)
    watched.look()
    monkeypatch.setattr(bucket_fetch, "TRIES", 2)
    proxy.by_name["model.safetensors"] = Fault.ANSWER_CUT
    proxy.is_down_after_cut = True
    assert watched.look(FIRST_S) == ()
    assert watched.source.is_behind()
    proxy.always = None
    proxy.asked.clear()
    found = watched.settle()
    assert [(Path(c.uri) / "model.safetensors").read_bytes() == content for c in found] == [True]
    (last,) = proxy.gets("model.safetensors")
    assert not last.startswith("bytes=0-")


@pytest.mark.parametrize("status", [403, 404])
def test_an_object_that_may_not_be_read_stops_no_other_checkpoint(
    status: int, watched: WatchedBucket, proxy: S3Proxy
) -> None:
    watched.save(10)
    assert watched.steps() == [10]
    watched.uploads.put("checkpoint-20/model.safetensors", b"x")
    watched.save(30)
    proxy.by_name["model.safetensors"] = status
    assert watched.steps() == [30]


def test_an_access_error_is_reported_with_a_hint_and_ends_when_it_is_fixed(
    watched: WatchedBucket, proxy: S3Proxy, caplog: pytest.LogCaptureFixture
) -> None:
    watched.save(10)
    proxy.by_name[watched.uploads.location.bucket] = 403
    watched.look()
    proxy.by_name[watched.uploads.location.bucket] = 403
    watched.look()
    assert "AccessDenied" in caplog.text
    assert "s3:ListBucket" in caplog.text
    assert not watched.source.is_behind()  # nobody waits for what only a person can correct
    watched.source.give_up(watched.clock.now())
    assert watched.reasons() == []
    assert watched.steps() == [10]


def refusal(uri: str, access: S3Access) -> str:
    with pytest.raises(ConfigError) as caught:
        Bucket(parse_location(uri), access).objects()
    return str(caught.value)


def test_wrong_keys_bucket_or_address_are_reported(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "no bucket 'nobodys'" in refusal("s3://nobodys/x", S3Access(endpoint_url=endpoint))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", "/nonexistent")
    without = refusal("s3://nobodys/x", S3Access(endpoint_url=endpoint))
    assert "Unable to locate credentials" in without
    assert "AWS_ACCESS_KEY_ID" in without
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    assert "nobody" in refusal("s3://nobodys/x", S3Access(endpoint_url=endpoint))


def test_an_address_without_a_listener_is_reported(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert endpoint
    monkeypatch.setattr(bucket_client, "ATTEMPTS", 1)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(StoreUnavailable) as caught:
            Bucket(parse_location("s3://bucket/x"), S3Access(endpoint_url=nobody)).objects()
    assert nobody in str(caught.value)


def test_a_public_bucket_is_read_without_keys(
    watched: WatchedBucket, proxy: S3Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched.save(10)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    access = S3Access(endpoint_url=proxy.url, anonymous=True)
    assert Bucket(watched.uploads.location, access).objects()
    assert not any(asked.is_signed for asked in proxy.asked)


def test_the_address_may_come_from_the_environment(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    uploads = Uploads(endpoint)
    uploads.put("checkpoint-10/config.json", b"{}")
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    assert len(Bucket(uploads.location, S3Access()).objects()) == 1


KILLED = """
import os, signal, sys
from pathlib import Path
from tests.buckets import *
from tracker.adapters.checkpoints.bucket.source import BucketSource
endpoint, bucket, pins, after = sys.argv[1:]
location = S3Location(bucket=bucket, prefix="runs/sft/")
client = Bucket(location, S3Access(endpoint_url=endpoint))
true_take, taken = client._take, []
def take(body, left, then):
    def count(block):
        then(block)
        taken.append(len(block))
        if sum(taken) > int(after):
            os.kill(os.getpid(), signal.SIGKILL)
    true_take(body, left, count)
client._take = take
clock = FakeClock(datetime.now(UTC))
source = BucketSource("run", client, Path(pins), WatchOptions(settle_s=0.1, rescan_s=3600.0), clock)
source.ready(clock.now())
source.look(clock.now())
clock.advance(60.0)
source.look(clock.now())
print([c.step for c in source.ready(clock.now())])
source.close()
"""


@pytest.mark.parametrize("after", [0, 6_000_000])
def test_a_kill_during_a_download_costs_only_the_rest_of_it(
    after: int, endpoint: str, tmp_path: Path, proxy: S3Proxy
) -> None:
    uploads = Uploads(endpoint)
    content = trainer.weights(1, shape=LARGE)
    folder = trainer.save(tmp_path / "local", 10)
    (folder / "model.safetensors").write_bytes(content)
    uploads.folder(folder)
    arguments = [sys.executable, "-c", KILLED, endpoint, uploads.location.bucket, str(tmp_path / "pins"), str(after)]
    killed = subprocess.run(arguments, check=False, capture_output=True, text=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert not list((tmp_path / "pins").glob("*/step-*"))
    kept = sum(path.stat().st_size for path in (tmp_path / "pins").glob("*/*/model.safetensors"))
    assert (kept > 0) == (after > 0)
    clock = FakeClock()
    source = open_source(uploads, tmp_path / "pins", clock, endpoint=proxy.url)
    found = list(source.ready(clock.now()))
    clock.advance(FIRST_S)
    found += source.ready(clock.now())
    source.close()
    assert [(Path(c.uri) / "model.safetensors").read_bytes() == content for c in found] == [True]
    assert len(list((tmp_path / "pins").glob("*/*"))) == 1
    assert proxy.gets("model.safetensors")[-1] == f"bytes={kept}-{len(content) - 1}"


def test_half_a_download_of_what_has_changed_since_is_thrown_away(endpoint: str, tmp_path: Path) -> None:
    uploads = Uploads(endpoint)
    folder = trainer.save(tmp_path / "local", 10)
    (folder / "model.safetensors").write_bytes(trainer.weights(1, shape=LARGE))
    uploads.folder(folder)
    arguments = [sys.executable, "-c", KILLED, endpoint, uploads.location.bucket, str(tmp_path / "pins"), "6000000"]
    subprocess.run(arguments, check=False, capture_output=True)
    content = trainer.weights(2, shape=LARGE)
    uploads.put("checkpoint-10/model.safetensors", content)
    clock = FakeClock()
    source = open_source(uploads, tmp_path / "pins", clock)
    found = list(source.ready(clock.now()))
    clock.advance(FIRST_S)
    found += source.ready(clock.now())
    source.close()
    assert [(Path(c.uri) / "model.safetensors").read_bytes() == content for c in found] == [True]
    assert len(list((tmp_path / "pins").glob("*/*"))) == 1


def test_a_download_that_another_process_makes_is_left_to_it(endpoint: str, tmp_path: Path) -> None:
    uploads = Uploads(endpoint)
    uploads.folder(trainer.save(tmp_path / "local", 10))
    clock = FakeClock()
    one, other = (open_source(uploads, tmp_path / "pins", clock) for _ in range(2))
    for source in (one, other):
        source.ready(clock.now())
    clock.advance(FIRST_S)
    (first,), (second,) = one.ready(clock.now()), other.ready(clock.now())
    one.close()
    other.close()
    assert first.digest == second.digest
    assert Path(first.uri).is_dir()
    assert len(list((tmp_path / "pins").glob("*/*"))) == 1


def test_one_checkpoint_is_pinned_by_its_address(endpoint: str, tmp_path: Path) -> None:
    uploads = Uploads(endpoint)
    uploads.folder(trainer.save(tmp_path / "local", 10, seed=3))
    uploads.put("checkpoint-20/config.json", b"{}")
    access = S3Access(endpoint_url=endpoint)

    def pin(name: str) -> Path:
        location = S3Location(bucket=uploads.location.bucket, prefix=f"runs/sft/{name}/")
        return Path(pin_from_bucket(Bucket(location, access), run_id="run", pins_dir=tmp_path / "pins").uri)

    assert (pin("checkpoint-10") / "model.safetensors").read_bytes() == trainer.weights(3)
    with pytest.raises(CheckpointNotFound):
        pin("checkpoint-30")
    with pytest.raises(CheckpointIncomplete, match="no weights: "):
        pin("checkpoint-20")
    assert len(list((tmp_path / "pins").glob("*/*"))) == 1


def test_closing_during_a_download_keeps_what_came(watched: WatchedBucket) -> None:
    content = trainer.weights(1, shape=LARGE)
    watched.save(10)
    watched.uploads.put("checkpoint-10/model.safetensors", content)
    watched.look()
    true_take = watched.source.bucket._take

    def take(body: object, left: int, then: object) -> None:
        true_take(body, left, then)  # type: ignore[arg-type]
        watched.source.close()

    watched.source.bucket._take = take  # type: ignore[method-assign, assignment]
    assert watched.look(FIRST_S) == ()
    (kept,) = watched.pins.glob("*/.held-*/model.safetensors")
    assert content.startswith(kept.read_bytes())
    assert watched.reasons() == []


def test_requests_use_the_bucket_settings_of_tracker_toml(endpoint: str, tmp_path: Path) -> None:
    uploads = Uploads(endpoint)
    uploads.folder(trainer.save(tmp_path / "local", 10, seed=3), to="v1/checkpoint-10")
    uri = uploads.location.uri
    text = (
        f'[run]\nname = "r"\noutput_dir = "{uri}"\n[s3]\nendpoint_url = "{endpoint}"\nregion = "eu-north-1"\n'
        '[[benchmark]]\nbenchmark = "gsm8k"\n'
    )
    project = Project(parse_config(text, tmp_path / "tracker.toml"))
    checkpoint = pin_named(project.config, f"{uri}/v1/checkpoint-10")
    assert (checkpoint.run_id, checkpoint.step) == ("r/v1", 10)
    assert Path(checkpoint.uri).is_relative_to(tmp_path / ".tracker" / "pins")
