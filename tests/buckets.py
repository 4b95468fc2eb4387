"""A real S3 server, an uploader in the trainer's place, and sources over it that look when the test says so."""

import os
import shutil
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import boto3
from moto.core import DEFAULT_ACCOUNT_ID
from moto.s3.models import s3_backends
from moto.server import ThreadedMotoServer

from eval_jobs.types import Checkpoint
from tests import trainer
from tests.fakes.clock import FakeClock
from tracker.adapters.checkpoints.bucket.client import Bucket
from tracker.adapters.checkpoints.bucket.source import BucketSource
from tracker.domain.checkpoints.buckets import S3Access, S3Location
from tracker.domain.checkpoints.watching import WatchOptions
from tracker.domain.records.types import Gap

SETTLE_S, FIRST_S = 3.0, 30.0

KEYS = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}


@contextmanager
def s3_server() -> Iterator[str]:
    """Run an S3 server and return its address; the environment holds keys for it."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    with mock.patch.dict(os.environ, KEYS):
        server.start()
        host, port = server.get_host_and_port()
        try:
            yield f"http://{host}:{port}"
        finally:
            server.stop()


@cache
def _client(endpoint: str) -> Any:
    return boto3.client("s3", endpoint_url=endpoint)


@dataclass
class Uploads:
    """Uploads to one bucket of its own, as a trainer's callback or `aws s3 sync` does. Only tests write to buckets."""

    endpoint: str
    location: S3Location = field(
        default_factory=lambda: S3Location(bucket=f"b{uuid.uuid4().hex[:12]}", prefix="runs/sft/")
    )

    def __post_init__(self) -> None:
        self.client: Any = _client(self.endpoint)
        self.client.create_bucket(Bucket=self.location.bucket)

    def put(self, name: str, content: bytes) -> None:
        """Upload one object; `name` is below the prefix."""
        self.client.put_object(Bucket=self.location.bucket, Key=self.location.prefix + name, Body=content)

    def many(self, names: Iterable[str]) -> None:
        """Put empty objects into the server at once, which would take seconds over HTTP."""
        for name in names:
            s3_backends[DEFAULT_ACCOUNT_ID]["aws"].put_object(self.location.bucket, self.location.prefix + name, b"")

    def folder(self, folder: Path, *, to: str = "", names: Iterable[str] | None = None) -> None:
        """Upload the files of a checkpoint, in the order of `names` where it is given."""
        for name in names if names is not None else sorted(p.name for p in folder.iterdir()):
            self.put(f"{to or folder.name}/{name}", (folder / name).read_bytes())

    def delete(self, prefix: str) -> None:
        """Delete every object whose name begins so."""
        for key in self.keys(prefix):
            self.client.delete_object(Bucket=self.location.bucket, Key=key)

    def keys(self, prefix: str = "") -> list[str]:
        found = self.client.list_objects_v2(Bucket=self.location.bucket, Prefix=self.location.prefix + prefix)
        return [entry["Key"] for entry in found.get("Contents", ())]


class InStep:
    """`BucketSource` whose thread looks only when `ready` is called: the same looks, at the test's time."""

    def __init__(self, source: BucketSource, bucket: Bucket, clock: FakeClock) -> None:
        self._source, self._clock = source, clock
        self.bucket = bucket

    def ready(self, now: datetime) -> tuple[Checkpoint, ...]:
        found = self._source.ready(now)
        self._source.look(self._clock.now())
        return tuple(sorted((*found, *self._source.ready(now)), key=lambda c: c.step))

    def gaps(self) -> tuple[Gap, ...]:
        return self._source.gaps()

    def is_behind(self) -> bool:
        return self._source.is_behind()

    def give_up(self, now: datetime) -> None:
        self._source.give_up(now)

    def wait(self, timeout_s: float) -> None:
        self._source.wait(timeout_s)

    def wake(self) -> None:
        self._source.wake()

    def close(self) -> None:
        self._source.close()


@dataclass(kw_only=True)
class WatchedBucket:
    """A source over a bucket, the trainer's local folder, and a clock that stands still until it is moved."""

    uploads: Uploads
    local: Path
    pins: Path
    clock: FakeClock
    source: InStep

    def look(self, after_s: float = 0.0) -> tuple[Checkpoint, ...]:
        self.clock.advance(after_s)
        return self.source.ready(self.clock.now())

    def settle(self) -> tuple[Checkpoint, ...]:
        return self.look() + self.look(FIRST_S) + self.look(FIRST_S)

    def steps(self) -> list[int]:
        return [c.step for c in self.settle()]

    def reasons(self) -> list[tuple[int, str]]:
        return [(gap.step, gap.code) for gap in self.source.gaps()]

    def save(self, step: int, *, seed: int | None = None, names: Iterable[str] | None = None) -> Path:
        """Save locally, upload, and forget the local files, as a node with a small disk does."""
        folder = trainer.save(self.local, step, seed=seed)
        self.uploads.folder(folder, names=names)
        shutil.rmtree(folder)
        return folder


def open_source(
    uploads: Uploads, pins: Path, clock: FakeClock, *, endpoint: str = "", access: S3Access | None = None
) -> InStep:
    """Open a source whose own thread looks once at the start and then no more."""
    access = access or S3Access(endpoint_url=endpoint or uploads.endpoint)
    options = WatchOptions(settle_s=SETTLE_S, rescan_s=3600.0)
    bucket = Bucket(uploads.location, access)
    return InStep(BucketSource("run", bucket, pins, options, clock), bucket, clock)


@contextmanager
def watching_bucket(endpoint: str, root: Path, *, through: str = "") -> Iterator[WatchedBucket]:
    """Watch a bucket of its own on the server at `endpoint`, perhaps `through` a proxy."""
    uploads, clock = Uploads(endpoint), FakeClock(datetime.now(UTC))
    source = open_source(uploads, root / "pins", clock, endpoint=through)
    try:
        yield WatchedBucket(uploads=uploads, local=root / "local", pins=root / "pins", clock=clock, source=source)
    finally:
        source.close()
