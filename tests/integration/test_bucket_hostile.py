"""A bucket whose server stalls, fills, redirects or lies is an outage, and what it lists is no path."""

import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import pytest

from eval_jobs import limits
from eval_jobs.errors import ConfigError, StoreUnavailable
from eval_jobs.host.bounded.json_text import amount
from tests.fakes import hostile_server as hostile
from tracker.adapters.checkpoints.bucket import client as bucket_client
from tracker.adapters.checkpoints.bucket.client import Bucket, S3Object
from tracker.adapters.checkpoints.bucket.listing import Prefix, Reader, group
from tracker.domain.checkpoints.buckets import S3Access, parse_location
from tracker.domain.checkpoints.listing import Broken
from tracker.domain.checkpoints.watching import WatchOptions

TIME = "2026-01-01T00:00:00Z"
LISTED = f"<Contents><Key>runs/sft/{{}}</Key><Size>7</Size><ETag>e</ETag><LastModified>{TIME}</LastModified></Contents>"


def page(*names: str, more: str = "") -> bytes:
    """Return a page of a listing; names are quoted as in a URL."""
    listed = "".join(map(LISTED.format, names))
    token = f"<IsTruncated>true</IsTruncated><NextContinuationToken>{more}</NextContinuationToken>" if more else ""
    encoding = "<EncodingType>url</EncodingType>"
    return f"<ListBucketResult><Name>b</Name>{encoding}{listed}{token}</ListBucketResult>".encode()


SLOW = (hostile.trickle, hostile.trickle_headers, hostile.endless_chunk_size)
FORMS: dict[str, hostile.Behaviour] = {
    "endless": hostile.endless,
    "pages": hostile.answer(page("x", more="again")),
    "empty pages": hostile.answer(page(more="again")),
    "no size": hostile.answer(
        b"<ListBucketResult><Name>b</Name><Contents><Key>runs/sft/x</Key></Contents></ListBucketResult>"
    ),
    "no time": hostile.answer(page("x").replace(TIME.encode(), b"now")),
    "no number": hostile.answer(page("x").replace(b">7<", b">many<")),
    "no XML": hostile.answer(b"<ListBucketResult><Name>"),
}
MOST_BYTES = limits.S3_ANSWER.most + (32 << 20)
"""What a server may send until its client has gone: the limit, and the buffers of both."""


def test_a_listing_without_an_end_or_of_another_form_is_an_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    with served(monkeypatch) as (server, bucket):
        for name, server.behave in FORMS.items():
            asked, sent_bytes = len(server.asked), server.sent_bytes
            assert is_outage(bucket.objects), name
            assert len(server.asked) > asked, name
            assert server.sent_bytes - sent_bytes < MOST_BYTES, name
        monkeypatch.setattr(bucket_client, "CALL_S", 0.3)
        tracemalloc.start()
        try:
            for server.behave in SLOW:
                assert is_outage(bucket.objects), server.behave
            assert tracemalloc.get_traced_memory()[1] < limits.S3_ANSWER.most
        finally:
            tracemalloc.stop()


def test_an_object_that_arrives_too_slowly_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    thing = S3Object(key="k", size=1000, etag='"e"', modified_ns=0)
    with served(monkeypatch) as (server, bucket):
        monkeypatch.setattr(bucket_client, "READ_S", 0.3)
        server.behave = hostile.slowly(b'ETag: "e"')
        assert is_outage(partial(bucket.read, thing, size=1000))
        monkeypatch.setattr(bucket_client, "CALL_S", 0.3)
        server.behave = hostile.trickle_headers
        assert is_outage(partial(bucket.read, thing, size=1000))


def test_a_bucket_on_another_server_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    with hostile.HostileServer(hostile.answer(page("x"))) as other, served(monkeypatch) as (server, bucket):
        for status in ("301 Moved Permanently", "302 Found", "307 Temporary Redirect"):
            asked, server.behave = len(server.asked), hostile.redirect(f"{other.url}/b", status)
            assert is_outage(bucket.objects), status
            assert len(server.asked) > asked, status
            assert other.asked == [], status


def test_keys_that_are_no_paths_are_no_checkpoints_and_hide_none() -> None:
    odd = ["../checkpoint-1/a", "/checkpoint-2/a", "checkpoint-3/%00", "x" * 5000 + "/checkpoint-4/a"]
    odd += ["%00/checkpoint-5/a", "checkpoint-6/" + "y" * 5000, "checkpoint-7/../../a", "..", "", "/", "checkpoint-8"]
    with hostile.HostileServer(hostile.answer(page(*odd, "checkpoint-9/config.json"))) as server:
        bucket = _bucket(server.url)
        found = group(bucket.objects(), bucket.location, run_name="r", pattern=WatchOptions().pattern)
    assert [(prefix.step, [*prefix.objects]) for prefix in found if prefix.objects] == [(9, ["config.json"])]
    assert all(prefix.run_id == "r" for prefix in found)


def test_a_document_larger_than_any_is_not_read() -> None:
    thing = S3Object(key="runs/sft/checkpoint-1/config.json", size=1 << 40, etag="e", modified_ns=0)
    prefix = Prefix(run_id="r", step=1, uri="s3://b/runs/sft/checkpoint-1", objects={"config.json": thing})
    listing = Reader(_bucket("http://127.0.0.1:9")).listing(prefix)
    assert listing.documents["config.json"] == Broken(
        code="E-CKPT-UNREADABLE", text=f"is larger than {amount(limits.DOCUMENT)}"
    )


def _bucket(url: str) -> Bucket:
    return Bucket(parse_location("s3://b/runs/sft"), S3Access(endpoint_url=url, region="us-east-1", anonymous=True))


@contextmanager
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[hostile.HostileServer, Bucket]]:
    """A server, and a bucket on it that has listed one object."""
    monkeypatch.setattr(bucket_client, "ATTEMPTS", 1)
    monkeypatch.setattr(bucket_client, "LIST_S", 0.2)
    with hostile.HostileServer(hostile.answer(page("x"))) as server:
        bucket = _bucket(server.url)
        assert len(bucket.objects()) == 1
        monkeypatch.setattr(bucket_client, "CALL_S", 5.0)
        yield server, bucket


def is_outage(call: Callable[[], object]) -> bool:
    try:
        call()
    except (StoreUnavailable, ConfigError):
        return True
    return False
