"""Reads a bucket as if it had folders: where checkpoints are, which files they have, their headers and JSON.

group(objects) -> Prefix...      facts_of_listing(prefix) -> Facts      Reader(bucket).listing(prefix) -> Listing

Headers and documents are read once for each version of an object.
"""

import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from eval_jobs.errors import CheckpointIncomplete, CheckpointUnreadable
from eval_jobs.host.bounded.json_text import TooLarge
from eval_jobs.identity import content_hash
from eval_jobs.limits import DOCUMENT
from tracker.adapters.checkpoints.bucket.client import Bucket, S3Object
from tracker.adapters.checkpoints.files.documents import parse_document
from tracker.adapters.checkpoints.files.safetensors_file import header_end, header_in
from tracker.domain.checkpoints.buckets import S3Location
from tracker.domain.checkpoints.listing import DOCUMENTS, OWN_FILES, Broken, Document, Facts, FileFact, Header, Listing
from tracker.domain.checkpoints.names import steps_in

HEAD_BYTES = 256 << 10
"""Size of the first read: most headers are shorter."""

MAX_NAME_BYTES = 255
"""A longer name is valid for an object but not for a file."""

RESERVED = OWN_FILES | {".", ".."}
"""Names with another meaning in our folders."""


@dataclass(frozen=True, kw_only=True)
class Prefix:
    """The bucket's equivalent of a checkpoint folder: `tracker.domain.checkpoints.listing.Site`, with its objects."""

    run_id: str
    step: int
    uri: str
    objects: Mapping[str, S3Object] = field(default_factory=dict)
    """Objects by file name."""
    folders: frozenset[str] = frozenset()
    """Names of its sub-folders."""


def group(objects: Iterable[S3Object], location: S3Location, *, run_name: str, pattern: str) -> tuple[Prefix, ...]:
    """Return the checkpoints among all objects below `location` and one level deeper, lowest step first."""
    found: dict[str, tuple[str, int, dict[str, S3Object], set[str]]] = {}
    paths = [(thing, thing.key.removeprefix(location.prefix).split("/")) for thing in objects]
    steps = _steps([parts for _, parts in paths], pattern)
    for thing, parts in paths:
        place = _place(parts, run_name, steps)
        if place is None:
            continue
        folder, run_id, step, rest = place
        _, _, files, folders = found.setdefault(folder, (run_id, step, {}, set()))
        if len(rest) > 1:
            folders.add(rest[0])
        elif _is_file_name(rest[0]):
            files[rest[0]] = thing
    prefixes = (
        Prefix(run_id=r, step=s, uri=f"{location.uri}/{folder}", objects=files, folders=frozenset(folders))
        for folder, (r, s, files, folders) in found.items()
    )
    return tuple(sorted(prefixes, key=lambda p: (p.step, p.run_id, p.uri)))


def at_prefix(objects: Iterable[S3Object], location: S3Location, *, run_id: str, step: int) -> Prefix:
    """Return the objects directly below `location` as one checkpoint."""
    named = {thing.key.removeprefix(location.prefix): thing for thing in objects}
    return Prefix(
        run_id=run_id,
        step=step,
        uri=location.uri,
        objects={name: thing for name, thing in named.items() if "/" not in name and _is_file_name(name)},
        folders=frozenset(name.partition("/")[0] for name in named if "/" in name),
    )


def facts_of_listing(prefix: Prefix) -> Facts:
    """Return the facts of the listing; the ETag replaces the inode, which identifies the bytes of a file."""
    files = (
        FileFact(name=name, size=o.size, mtime_ns=o.modified_ns, inode=int(content_hash(o.etag)[:15], 16))
        for name, o in prefix.objects.items()
    )
    return Facts(
        path=prefix.uri,
        mtime_ns=0,
        files=tuple(sorted(files, key=lambda f: f.name)),
        folders=tuple(sorted(prefix.folders)),
    )


class Reader:
    """Reads the files that decide on completeness, and caches them per object version. One thread at a time."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket
        self._headers: dict[S3Object, Header | Broken] = {}
        self._documents: dict[S3Object, Document | Broken] = {}

    def listing(self, prefix: Prefix) -> Listing:
        """Return everything that is known about one checkpoint.

        Raises:
            ConfigError, StoreUnavailable: the bucket cannot be read.
        """
        headers: dict[str, Header | Broken] = {}
        documents: dict[str, Document | Broken] = {}
        for name, thing in prefix.objects.items():
            if name.endswith(".safetensors"):
                headers[name] = self._headers[thing] = self._headers.get(thing) or self._header(name, thing)
            elif name in DOCUMENTS:
                documents[name] = self._documents[thing] = self._documents.get(thing) or self._document(thing)
        return Listing(facts=facts_of_listing(prefix), step=prefix.step, headers=headers, documents=documents)

    def forget(self, prefix: Prefix) -> None:
        """Drop the cached files of a checkpoint that is finished or deleted."""
        for thing in prefix.objects.values():
            self._headers.pop(thing, None)
            self._documents.pop(thing, None)

    def _header(self, name: str, thing: S3Object) -> Header | Broken:
        head = self._bucket.read(thing, size=HEAD_BYTES)
        if head is not None and len(head) < header_end(head):
            head = self._bucket.read(thing, size=header_end(head))
        if head is None:
            return _CHANGED
        return header_in(io.BytesIO(head), name)

    def _document(self, thing: S3Object) -> Document | Broken:
        if thing.size > DOCUMENT.most:
            return Broken(code=CheckpointUnreadable.code, text=str(TooLarge(DOCUMENT)))
        content = self._bucket.read(thing, size=thing.size)
        if content is None:
            return _CHANGED
        return parse_document(content)


_CHANGED = Broken(code=CheckpointIncomplete.code, text="was overwritten or deleted while being read")


def _steps(paths: Iterable[list[str]], pattern: str) -> Mapping[str, Mapping[str, int]]:
    """Return the steps of the checkpoint folders in each folder, which is named by its path; "" is the uppermost."""
    names: dict[str, set[str]] = {}
    for parts in paths:
        for depth in range(min(2, len(parts) - 1)):
            names.setdefault("/".join(parts[:depth]), set()).add(parts[depth])
    return {folder: steps_in(inside, pattern) for folder, inside in names.items()}


def _place(
    parts: list[str], run_name: str, steps: Mapping[str, Mapping[str, int]]
) -> tuple[str, str, int, list[str]] | None:
    """Return (folder, run id, step, rest of the key) of an object in a checkpoint's folder, else None."""
    if not all(map(_is_file_name, parts[:2])):
        return None
    if len(parts) > 1 and (step := steps[""].get(parts[0])) is not None:
        return parts[0], run_name, step, parts[1:]
    if len(parts) > 2 and not parts[0].startswith(".") and (step := steps[parts[0]].get(parts[1])) is not None:
        return f"{parts[0]}/{parts[1]}", f"{run_name}/{parts[0]}", step, parts[2:]
    return None


def _is_file_name(name: str) -> bool:
    return bool(name) and name not in RESERVED and "\0" not in name and len(name.encode()) <= MAX_NAME_BYTES
