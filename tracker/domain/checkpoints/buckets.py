"""Checkpoints in a bucket: where they are, and when an upload has ended. Pure.

A bucket has no folders and no order: objects appear whole, one by one, in the order of the uploader, and a large one
stays invisible until its last part has arrived. So the trainer's last file proves nothing here. Only a time without
changes does, and a longer one while files are missing that the run's earlier checkpoint had.
"""

import re
from collections.abc import Set
from dataclasses import dataclass

from eval_jobs.errors import ConfigError
from eval_jobs.records.served_files import SUFFIXES
from tracker.domain.checkpoints.completeness import Complete
from tracker.domain.checkpoints.listing import DCP_INDEX, LATEST, Facts, is_state_folder
from tracker.domain.checkpoints.unusable import NotYet, not_yet
from tracker.domain.checkpoints.watching import STALLED_S

SCHEME = "s3://"

FIRST_S = 30.0
"""Minimum quiet time for the first checkpoint of a run, whose expected files are unknown."""

PASSED_S = 60.0
"""Minimum quiet time before an upload that a later one overtook is a gap: uploads can overtake each other."""


@dataclass(frozen=True, kw_only=True)
class S3Location:
    """A prefix of a bucket."""

    bucket: str
    prefix: str
    """Ends in "/", or is empty: the whole bucket."""

    @property
    def uri(self) -> str:
        """URI without the trailing slash."""
        return f"{SCHEME}{self.bucket}/{self.prefix}".rstrip("/")


@dataclass(frozen=True, kw_only=True)
class S3Access:
    """How a bucket is reached; keys come from AWS's own environment variables and files."""

    endpoint_url: str = ""
    """URL of an S3-compatible server, such as https://minio:9000. Default: AWS_ENDPOINT_URL, then AWS."""
    region: str = ""
    """Region of the bucket. Default: AWS_REGION, then the profile's region."""
    anonymous: bool = False
    """Read a public bucket without credentials."""


def parse_location(uri: str) -> S3Location:
    """Return the bucket and prefix of `s3://bucket/prefix`.

    Raises:
        ConfigError: `uri` has another form.
    """
    bucket, _, prefix = uri.removeprefix(SCHEME).partition("/")
    if not uri.startswith(SCHEME) or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9.:_-]*", bucket):
        raise ConfigError(f"invalid checkpoint location {uri!r}", hint="use a folder or s3://bucket/prefix")
    prefix = prefix.strip("/")
    return S3Location(bucket=bucket, prefix=f"{prefix}/" if prefix else "")


def demand_whole_weights(facts: Facts) -> NotYet | None:
    """Return why a checkpoint without safetensors cannot be used in a bucket; None: it has some, or no weights yet."""
    names = sorted(f.name for f in facts.files)
    if any(name.endswith(".safetensors") for name in names):
        return None
    weights = [name for name in facts.folders if is_state_folder(name)]
    weights += [name for name in names if _is_of_a_state(name)]
    if not weights:
        return None
    return not_yet(
        f"found {weights[0]} but no safetensors (the only format supported in buckets)",
        hint="upload safetensors, or mount the bucket and watch the folder with watch.polling = true",
    )


def patience_s(names: Set[str], earlier: Set[str] | None, settle_s: float) -> float:
    """Return the quiet time in seconds after which an upload counts as ended.

    `earlier` are the small files of the run's newest known checkpoint; None: this is the first.
    """
    if earlier is None:
        return max(settle_s, FIRST_S)
    if earlier <= names:
        return settle_s
    return max(settle_s, STALLED_S)


def late_files(names: Set[str], taken: Complete) -> tuple[str, ...]:
    """Return the files of a checkpoint that arrived after it was pinned and would have been pinned with it."""
    return tuple(sorted(name for name in names - set(taken.held) if name.endswith(SUFFIXES)))


def _is_of_a_state(name: str) -> bool:
    is_state = name in {DCP_INDEX, LATEST} or name.endswith((".distcp", ".bin"))
    return is_state and not name.startswith("optimizer")
