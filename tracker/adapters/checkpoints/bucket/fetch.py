"""Downloads one checkpoint from a bucket into a hold: complete and of one version, or not at all.

Every request uses If-Match, so that a file never mixes two versions of an object. Downloaded bytes are kept over
dropped connections, outages and kills, and only the rest is requested again.
"""

import json
import logging
import threading
from collections.abc import Mapping, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import BinaryIO

from eval_jobs.backoff import Backoff
from eval_jobs.errors import ConfigError, StoreUnavailable
from eval_jobs.host.proc import boot_id
from eval_jobs.identity import content_hash
from eval_jobs.records.run_scope import is_of
from tracker.adapters.checkpoints.bucket.client import PACE_BYTES, Bucket, S3Object
from tracker.adapters.checkpoints.bucket.listing import Prefix, facts_of_listing
from tracker.adapters.checkpoints.pins.hold import HELD, new_hold, remove_folder, seal, store_error
from tracker.adapters.checkpoints.pins.manifest import MANIFEST
from tracker.adapters.checkpoints.pins.recovery import is_abandoned
from tracker.domain.checkpoints.completeness import Complete
from tracker.domain.checkpoints.pin import Pin

log = logging.getLogger(__name__)

BEGUN = ".fetch.json"
"""File in an unfinished hold that names its run, its URI and the versions of its objects."""

AT_ONCE = 4
"""Objects that are downloaded in parallel."""

TRIES = 5
BACKOFF = Backoff(first_s=0.1, longest_s=10.0)
"""Consecutive attempts without progress before a download is left to the next scan, and the waits between them."""


class SourceClosed(Exception):
    """The source is being closed; downloaded bytes are kept for the next start."""


class Fetcher:
    """Downloads of one bucket. One thread at a time."""

    def __init__(self, bucket: Bucket, pins_dir: Path, stopped: threading.Event) -> None:
        self._bucket = bucket
        self._pins_dir = pins_dir
        self._stopped = stopped
        self._begun: dict[str, tuple[str, Path]] = {}
        """URI of the checkpoint -> versions, and the folder with the bytes downloaded so far."""

    def adopt(self, run_name: str, now: datetime) -> None:
        """Take over the downloads of this run that other processes left unfinished; see `is_abandoned`."""
        for folder in self._pins_dir.absolute().glob(f"*/{HELD}*"):
            document = _read_begun(folder)
            if document is None or not is_abandoned(folder, now):
                continue
            run_id, uri = document["run_id"], document["uri"]
            if is_of(run_id, run_name):
                own = new_hold(run_id, self._pins_dir)
                folder.rename(own)
                self._begun[uri] = (document["version"], own)

    def hold(self, prefix: Prefix, complete: Complete) -> Pin | None:
        """Download the files that serving needs; return None if the listing is outdated.

        Raises:
            ConfigError, StoreUnavailable: the bucket cannot be read; downloaded bytes are kept.
            DiskFull, StoreError: nothing can be written; downloaded bytes are removed.
            SourceClosed: the source is being closed.
        """
        wanted = {name: prefix.objects[name] for name in complete.held}
        version = _version(wanted)
        folder = self._folder(prefix, version)
        pin = None
        with ExitStack() as undo:
            undo.callback(remove_folder, folder)
            try:
                if self._download(folder, wanted):
                    (folder / BEGUN).unlink()
                    pin = seal(prefix, facts_of_listing(prefix), complete, folder)
                    undo.pop_all()
            except (ConfigError, StoreUnavailable):
                undo.pop_all()
                self._begun[prefix.uri] = (version, folder)
                raise
            except SourceClosed:
                undo.pop_all()
                raise
            except OSError as error:
                raise store_error(error, f"cannot pin {prefix.uri} in {self._pins_dir}") from error
        return pin

    def keep(self, uris: Set[str]) -> None:
        """Remove partial downloads of checkpoints that are not in `uris`."""
        for uri in self._begun.keys() - uris:
            remove_folder(self._begun.pop(uri)[1])

    def _folder(self, prefix: Prefix, version: str) -> Path:
        begun, folder = self._begun.pop(prefix.uri, ("", None))
        if folder is not None and begun == version and folder.exists():
            log.info("resuming the download of %s", prefix.uri)
            return folder
        if folder is not None:
            remove_folder(folder)
        folder = new_hold(prefix.run_id, self._pins_dir)
        document = {"run_id": prefix.run_id, "uri": prefix.uri, "version": version}
        try:
            folder.mkdir(parents=True)
            (folder / BEGUN).write_text(json.dumps(document), encoding="utf-8")
        except OSError as error:
            raise store_error(error, f"cannot pin {prefix.uri} in {self._pins_dir}") from error
        return folder

    def _download(self, folder: Path, wanted: Mapping[str, S3Object]) -> bool:
        with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="bucket-fetch") as pool:
            return all(list(pool.map(lambda name: self._file(folder / name, wanted[name]), wanted)))

    def _file(self, path: Path, thing: S3Object) -> bool:
        with path.open("ab") as file:
            if file.tell() > thing.size:
                file.truncate(0)
            in_vain = 0
            while True:
                before = file.tell()
                try:
                    return self._bucket.download(
                        thing, start=before, stop=thing.size, take=partial(self._write, file, path)
                    )
                except StoreUnavailable as error:
                    in_vain = 0 if file.tell() - before >= PACE_BYTES else in_vain + 1
                    if in_vain == TRIES:
                        raise
                    log.info("%s: %s; resuming at byte %d", thing.key, error.message, file.tell())
                    if self._stopped.wait(BACKOFF.wait_s(in_vain + 1)):
                        raise SourceClosed from error

    def _write(self, file: BinaryIO, path: Path, block: bytes) -> None:
        if self._stopped.is_set():
            raise SourceClosed
        try:
            file.write(block)
            file.flush()  # so that a kill loses no bytes that count as downloaded
        except OSError as error:
            raise store_error(error, f"cannot write {path}") from error


def _version(wanted: Mapping[str, S3Object]) -> str:
    """Return a hash of the versions and the boot: after a power loss a file may have its length without its bytes."""
    return content_hash([boot_id(), sorted((name, thing.size, thing.etag) for name, thing in wanted.items())])


def _read_begun(folder: Path) -> dict[str, str] | None:
    if (folder / MANIFEST).exists():
        return None
    try:
        document = json.loads((folder / BEGUN).read_bytes())
        return {key: str(document[key]) for key in ("run_id", "uri", "version")}
    except (OSError, ValueError, KeyError, TypeError):
        return None
