"""A bucket whose server stalls, fills, redirects or lies is an outage, and what it lists is no path."""

import resource

import pytest

from eval_jobs.errors import ConfigError, StoreUnavailable
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


@pytest.mark.parametrize(
    "behave",
    [
        hostile.trickle,
        hostile.trickle_headers,
        hostile.endless,
        hostile.endless_chunk_size,
        hostile.answer(page("x", more="again")),
        hostile.answer(page(more="again")),
        hostile.answer(
            b"<ListBucketResult><Name>b</Name><Contents><Key>runs/sft/x</Key></Contents></ListBucketResult>"
        ),
        hostile.answer(page("x").replace(TIME.encode(), b"now")),
        hostile.answer(page("x").replace(b">7<", b">many<")),
        hostile.answer(b"<ListBucketResult><Name>"),
    ],
    ids=[
        "trickle",
        "trickled headers",
        "endless",
        "endless chunk size",
        "pages",
        "empty pages",
        "no size",
        "no time",
        "no number",
        "no XML",
    ],
)
def test_a_listing_without_an_end_or_of_another_form_is_an_outage(
    behave: hostile.Behaviour, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket_client, "ATTEMPTS", 1)
    monkeypatch.setattr(bucket_client, "CALL_S", 0.5)
    monkeypatch.setattr(bucket_client, "LIST_S", 0.5)
    with hostile.HostileServer(behave) as server, pytest.raises((StoreUnavailable, ConfigError)):
        _bucket(server.url).objects()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 700 << 10


@pytest.mark.parametrize("behave", [hostile.slowly(b'ETag: "e"'), hostile.trickle_headers])
def test_an_object_that_arrives_too_slowly_is_given_up(
    behave: hostile.Behaviour, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket_client, "ATTEMPTS", 1)
    monkeypatch.setattr(bucket_client, "CALL_S", 0.5)
    monkeypatch.setattr(bucket_client, "READ_S", 0.5)
    thing = S3Object(key="k", size=1000, etag='"e"', modified_ns=0)
    with hostile.HostileServer(behave) as server, pytest.raises(StoreUnavailable):
        _bucket(server.url).read(thing, size=1000)


@pytest.mark.parametrize("status", ["301 Moved Permanently", "302 Found", "307 Temporary Redirect"])
def test_a_bucket_on_another_server_is_not_asked(status: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bucket_client, "ATTEMPTS", 1)
    with hostile.HostileServer(hostile.answer(page("x"))) as other:
        with hostile.HostileServer(hostile.redirect(f"{other.url}/b", status)) as server:
            with pytest.raises((StoreUnavailable, ConfigError)):
                _bucket(server.url).objects()
            assert server.asked
        assert other.asked == []


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
    assert listing.documents["config.json"] == Broken(code="E-CKPT-UNREADABLE", text="is larger than 64 MiB")


def _bucket(url: str) -> Bucket:
    return Bucket(parse_location("s3://b/runs/sft"), S3Access(endpoint_url=url, region="us-east-1", anonymous=True))
