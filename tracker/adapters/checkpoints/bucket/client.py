"""One S3-compatible bucket, read-only: the objects below a prefix, and their bytes. The only user of s3fs.

    bucket = Bucket(parse_location("s3://bucket/runs/sft"), S3Access())
    for thing in bucket.objects(): ...              # every page, never from a cache
    bucket.read(thing, size=8)                      # of exactly this version, or None

Credentials come from the same places as in AWS's own tools: AWS_ACCESS_KEY_ID and similar variables, AWS_PROFILE,
~/.aws, the role of the machine. Requests go straight to the server: s3fs's listings, which may be cached, are not used.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from types import SimpleNamespace
from typing import Any

import aiohttp
import fsspec.asyn
import s3fs
from aiobotocore.httpsession import AIOHTTPSession
from botocore import exceptions as aws
from botocore.parsers import ResponseParserError

from eval_jobs.errors import ConfigError, StoreUnavailable, TrackerError
from eval_jobs.limits import S3_ANSWER, S3_OBJECTS
from tracker.domain.checkpoints.buckets import S3Access, S3Location

CONNECT_S, READ_S, ATTEMPTS = 5, 30, 3
"""Per request: timeouts of the connection and of a read, in seconds, and the number of attempts."""

CALL_S, LIST_S = 60.0, 600.0
"""Longest time of a request with its attempts, without the bytes of an object, and of all pages of a listing."""

BLOCK_BYTES = 4 << 20
"""Memory of one download."""

PACE_BYTES = 1 << 20
"""Bytes of an object that must arrive in each `READ_S`; otherwise the server counts as away."""

TROUBLE = (
    OSError,
    ValueError,
    LookupError,
    TypeError,
    RecursionError,
    aws.BotoCoreError,
    aws.ClientError,
    ResponseParserError,
    *s3fs.core.S3_RETRYABLE_ERRORS,
)
"""Errors that s3fs raises for failures of a server or the network, or for answers of another form."""

_GONE = {"NoSuchKey", "404", "PreconditionFailed", "412", "InvalidRange", "416"}
"""The object was deleted or replaced."""

_CREDENTIALS = (
    aws.ConfigNotFound,
    aws.CredentialRetrievalError,
    aws.NoCredentialsError,
    aws.PartialCredentialsError,
    aws.ProfileNotFound,
    aws.SSOError,
)
_SETTINGS = (aws.InvalidRegionError, aws.NoRegionError, aws.ParamValidationError, ValueError)

_CREDENTIALS_HINT = (
    "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE; a public bucket needs s3.anonymous = true"
)
_REFUSED_HINT = "grant s3:ListBucket on the bucket and s3:GetObject below the prefix, or correct the credentials"
_REGION = "x-amz-bucket-region"
"""Header of S3's own redirects, which botocore follows by itself."""
_ELSEWHERE = {"PermanentRedirect", "301", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException"}


@dataclass(frozen=True, kw_only=True)
class S3Object:
    """One version of one object, as listed."""

    key: str
    size: int
    etag: str
    """Including its quotation marks; it differs if the content differs."""
    modified_ns: int


class Bucket:
    """Reads one prefix of one bucket. Safe to use from several threads."""

    def __init__(self, location: S3Location, access: S3Access) -> None:
        """Set where to read; no request is sent before the first call."""
        self.location = location
        self._access = access
        self._fs = s3fs.S3FileSystem(
            anon=access.anonymous,
            endpoint_url=access.endpoint_url or None,
            client_kwargs={"region_name": access.region} if access.region else {},
            config_kwargs={
                "connect_timeout": CONNECT_S,
                "read_timeout": READ_S,
                "retries": {"mode": "standard", "total_max_attempts": ATTEMPTS},
                "http_session_cls": _BoundedSession,
            },
            use_listings_cache=False,
            skip_instance_cache=True,
        )
        self._fs.retries = 1  # botocore itself retries after 503, Retry-After and dropped connections

    def objects(self) -> tuple[S3Object, ...]:
        """Return every object whose key starts with the location's prefix, in the order of keys.

        Raises:
            ConfigError: the bucket does not exist, or the server refuses these credentials.
            StoreUnavailable: the server does not respond, or its response is invalid.
        """
        found: list[S3Object] = []
        more: dict[str, str] = {}
        until_s, pages = time.monotonic() + LIST_S, 0
        try:
            while time.monotonic() < until_s and len(found) <= S3_OBJECTS.most:
                page, pages = self._call("list_objects_v2", Prefix=self.location.prefix, **more), pages + 1
                if "Name" not in page:  # a gateway's well-formed page must not count as an empty bucket
                    raise OSError("not an S3 server")
                found += [_object(entry) for entry in page.get("Contents", ())]
                if not page.get("IsTruncated"):
                    return tuple(found)
                more = {"ContinuationToken": page["NextContinuationToken"]}
            raise OSError(f"the listing has no end: {len(found):,} objects in {pages:,} pages")
        except TROUBLE as error:
            raise self._mapped(error) from error

    def uploads(self, below: str) -> dict[str, datetime]:
        """Return the keys of multipart uploads in progress, each with its start; {} if the server refuses to list them.

        Raises:
            StoreUnavailable: the server does not respond.
        """
        try:
            page = self._call("list_multipart_uploads", Prefix=self.location.prefix + below)
            return {entry["Key"]: entry["Initiated"] for entry in page.get("Uploads", ())}
        except TROUBLE as error:
            if _code_of(error):  # an error response, such as AccessDenied or NotImplemented
                return {}
            raise self._mapped(error) from error

    def read(self, thing: S3Object, *, size: int) -> bytes | None:
        """Return the first `size` bytes; None if this version of the object no longer exists.

        Raises:
            ConfigError, StoreUnavailable: as `objects`.
        """
        parts: list[bytes] = []
        if self.download(thing, start=0, stop=min(size, thing.size), take=parts.append):
            return b"".join(parts)
        return None

    def download(self, thing: S3Object, *, start: int, stop: int, take: Callable[[bytes], object]) -> bool:
        """Pass the bytes from `start` to `stop` to `take`, in order; return False if this version no longer exists.

        Raises:
            ConfigError, StoreUnavailable: as `objects`; the bytes passed until then are correct.
        """
        if start >= stop:
            return True
        try:
            answer = self._call("get_object", Key=thing.key, IfMatch=thing.etag, Range=f"bytes={start}-{stop - 1}")
            body = answer["Body"]
            try:
                if answer.get("ETag") != thing.etag:  # a server that does not support If-Match
                    return False
                self._take(body, stop - start, take)
            finally:
                body.close()
        except TROUBLE as error:
            if _code_of(error) in _GONE:
                return False
            raise self._mapped(error) from error
        return True

    def _take(self, body: Any, left: int, take: Callable[[bytes], object]) -> None:  # noqa: ANN401 - aiobotocore's
        begun_s, got = time.monotonic(), 0
        while left:
            left_s = begun_s + READ_S - time.monotonic()
            block = fsspec.asyn.sync(self._fs.loop, body.read, min(left, BLOCK_BYTES), timeout=max(left_s, 0.001))
            if not block:
                raise OSError(f"response ended {left} bytes early")
            take(block)
            left -= len(block)
            got += len(block)
            if got >= PACE_BYTES:
                begun_s, got = time.monotonic(), 0

    def _call(self, method: str, **arguments: str) -> dict[str, Any]:
        answer: dict[str, Any] = self._fs.call_s3(method, Bucket=self.location.bucket, timeout=CALL_S, **arguments)
        return answer

    def _mapped(self, error: Exception) -> TrackerError:
        """Return the error for the user: a ConfigError if a setting must change, else StoreUnavailable."""
        client = getattr(self._fs, "_s3", None)
        endpoint = str(client.meta.endpoint_url) if client is not None else self._access.endpoint_url
        at = f"cannot read {self.location.uri} from {endpoint or 'AWS'}"
        answer = _answer(error)
        if answer is not None:
            return _refusal(answer, self.location.uri, at)
        if isinstance(error, _CREDENTIALS):
            return ConfigError(f"{at}: {error}", hint=_CREDENTIALS_HINT)
        if isinstance(error, _SETTINGS):
            return ConfigError(f"{at}: {error}", hint="fix run.output_dir, s3.endpoint_url or s3.region")
        what = " ".join(str(error).split())[:200] or type(error).__name__
        return StoreUnavailable(f"{at}: {what}", hint="check the network and s3.endpoint_url, or retry later")


class _BoundedSession(AIOHTTPSession):  # type: ignore[misc]  # it has no types
    """Requests of botocore: answers other than objects are read up to a limit, and no redirect is followed."""

    async def send(self, request: Any) -> Any:  # noqa: ANN401 - botocore's
        is_object, request.stream_output = request.stream_output, True
        answer = await super().send(request)
        if answer.status_code // 100 == 3 and not answer.headers.keys() & {_REGION, "etag"}:
            raise aws.HTTPClientError(error=f"redirected with status {answer.status_code}")
        if not is_object or answer.status_code >= 300:
            answer._content = await _whole(answer.raw)  # noqa: SLF001 - of its base, which has no limit
        return answer

    async def _get_session(self, proxy_url: Any) -> Any:  # noqa: ANN401 - aiohttp's
        session = await super()._get_session(proxy_url)
        return SimpleNamespace(request=partial(session.request, allow_redirects=False))


async def _whole(answer: aiohttp.ClientResponse) -> bytes:
    content = bytearray()
    try:
        async for block in answer.content.iter_any():
            content += block
            if len(content) > S3_ANSWER.most:
                raise aws.HTTPClientError(error="the answer has no end")
    except aiohttp.ClientError as error:
        raise aws.HTTPClientError(error=error) from error
    finally:
        answer.release()  # closes the connection if something of the answer is left
    return bytes(content)


def _object(entry: dict[str, Any]) -> S3Object:
    return S3Object(
        key=entry["Key"],
        size=entry["Size"],
        etag=entry["ETag"],
        modified_ns=int(entry["LastModified"].timestamp() * 1e9),
    )


def _code_of(error: BaseException) -> str:
    """Return the error code of a server's response, such as `NoSuchKey`; "" if there was no response."""
    answer = _answer(error)
    if answer is None:
        return ""
    return str(answer.response.get("Error", {}).get("Code", ""))


def _answer(error: BaseException) -> aws.ClientError | None:
    """Return the server's error: s3fs raises built-in errors and sets it as their cause."""
    candidates = (error, error.__cause__)
    return next((one for one in candidates if isinstance(one, aws.ClientError)), None)


def _refusal(answer: aws.ClientError, uri: str, at: str) -> TrackerError:
    code, message = _code_of(answer), str(answer.response.get("Error", {}).get("Message", ""))[:200]
    status = int(answer.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    what = f"{at}: {code} {message}".rstrip()
    if code in {"NoSuchBucket", "404"}:
        return ConfigError(f"no bucket {uri.split('/')[2]!r}: {what}", hint="fix run.output_dir")
    if code in _ELSEWHERE:
        return ConfigError(what, hint="set s3.region or AWS_REGION to the bucket's region")
    if status in {400, 401, 403} and code not in {"RequestTimeout", "SlowDown"}:
        return ConfigError(what, hint=_REFUSED_HINT)
    return StoreUnavailable(what, hint="retry later; `tracker watch` retries automatically")
