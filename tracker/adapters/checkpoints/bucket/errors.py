"""Errors of S3 servers, networks and credentials -> our errors."""

from botocore import exceptions as aws

from eval_jobs.errors import ConfigError, StoreUnavailable, TrackerError

GONE = {"NoSuchKey", "404", "PreconditionFailed", "412", "InvalidRange", "416"}
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
_ELSEWHERE = {"PermanentRedirect", "301", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException"}


def code_of(error: BaseException) -> str:
    """Return the error code of a server's response, such as `NoSuchKey`; "" if there was no response."""
    answer = _answer(error)
    if answer is None:
        return ""
    return str(answer.response.get("Error", {}).get("Code", ""))


def mapped(error: Exception, uri: str, endpoint: str) -> TrackerError:
    """Return the error for the user: a ConfigError if a setting must change, else StoreUnavailable."""
    at = f"cannot read {uri} from {endpoint or 'AWS'}"
    answer = _answer(error)
    if answer is not None:
        return _refusal(answer, uri, at)
    if isinstance(error, _CREDENTIALS):
        return ConfigError(f"{at}: {error}", hint=_CREDENTIALS_HINT)
    if isinstance(error, _SETTINGS):
        return ConfigError(f"{at}: {error}", hint="fix run.output_dir, s3.endpoint_url or s3.region")
    what = " ".join(str(error).split())[:200] or type(error).__name__
    return StoreUnavailable(f"{at}: {what}", hint="check the network and s3.endpoint_url, or retry later")


def _answer(error: BaseException) -> aws.ClientError | None:
    """Return the server's error: s3fs raises built-in errors and sets it as their cause."""
    for candidate in (error, error.__cause__):
        if isinstance(candidate, aws.ClientError):
            return candidate
    return None


def _refusal(answer: aws.ClientError, uri: str, at: str) -> TrackerError:
    code, said = code_of(answer), str(answer.response.get("Error", {}).get("Message", ""))[:200]
    status = int(answer.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    what = f"{at}: {code} {said}".rstrip()
    if code in {"NoSuchBucket", "404"}:
        return ConfigError(f"no bucket {uri.split('/')[2]!r}: {what}", hint="fix run.output_dir")
    if code in _ELSEWHERE:
        return ConfigError(what, hint="set s3.region or AWS_REGION to the bucket's region")
    if status in {400, 401, 403} and code not in {"RequestTimeout", "SlowDown"}:
        return ConfigError(what, hint=_REFUSED_HINT)
    return StoreUnavailable(what, hint="retry later; `tracker watch` retries automatically")
