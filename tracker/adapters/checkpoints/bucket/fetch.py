"""Brings one checkpoint from a bucket into a hold of ours: whole, of one version, or not at all.

    fetcher.adopt(now)                     # downloads that a killed process had begun
    pin = fetcher.hold(prefix, complete)   # None: an object was written again or deleted meanwhile

Every byte is asked for with If-Match, so that a file never mixes two versions of an object. What was downloaded is kept
over cut connections, outages and kills, and only the rest is asked for again.
"""

import json
import logging
import threading
from collections.abc import Mapping, Set
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import BinaryIO

from eval_jobs.backoff import Backoff
from eval_jobs.errors import ConfigError, StoreUnavailable
from eval_jobs.host.proc import boot_id
from eval_jobs.identity import content_hash
from eval_jobs.records.run_scope import is_of
from tracker.adapters.checkpoints.bucket.client import Bucket, S3Object
from tracker.adapters.checkpoints.bucket.listing import Prefix, facts_of_listing
from tracker.adapters.checkpoints.pins.hold import HELD, MANIFEST, new_hold, remove_folder, seal, store_error
from tracker.adapters.checkpoints.pins.recovery import is_abandoned
from tracker.domain.checkpoints.completeness import Complete
from tracker.domain.checkpoints.pin import Pin

log = logging.getLogger(__name__)

BEGUN = ".fetch.json"
"""In a hold that is not whole yet: which versions of which objects it will be."""

AT_ONCE = 4
"""Objects that are downloaded side by side."""

TRIES = 5
BACKOFF = Backoff(first_s=0.1, longest_s=10.0)
"""Attempts in a row that bring nothing before a download is left for the next look."""


class SourceClosed(Exception):
    """The source is being closed; what was downloaded stays for the next start."""


class Fetcher:
    """Downloads of one bucket. One thread at a time."""

    def __init__(self, bucket: Bucket, pins_dir: Path, stopped: threading.Event) -> None:
        self._bucket = bucket
        self._pins_dir = pins_dir
        self._stopped = stopped
        self._begun: dict[str, tuple[str, Path]] = {}
        """By the checkpoint's uri: the versions, and the folder that holds some of their bytes."""

    def adopt(self, run_name: str, now: datetime) -> None:
        """Take over what killed processes of this machine had begun to download for this run."""
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
        """Download what serving needs; None when the listing is not true any more.

        Raises:
            ConfigError, StoreUnavailable: the bucket cannot be read; what came so far is kept.
            DiskFull, StoreError: nothing can be written; what came so far is removed.
            Stopped: the source is being closed.
        """
        wanted = {name: prefix.objects[name] for name in complete.held}
        version = _version(wanted)
        folder = self._folder(prefix, version)
        pin = None
        try:
            if self._download(folder, wanted):
                (folder / BEGUN).unlink()
                pin = seal(prefix, facts_of_listing(prefix), complete, folder)
        except (ConfigError, StoreUnavailable):
            self._begun[prefix.uri] = (version, folder)
            raise
        except SourceClosed:
            raise
        except BaseException as error:
            remove_folder(folder)
            if isinstance(error, OSError):
                raise store_error(error, f"cannot pin {prefix.uri} in {self._pins_dir}") from error
            raise
        if pin is None:
            remove_folder(folder)
        return pin

    def keep(self, uris: Set[str]) -> None:
        """Remove what was downloaded of checkpoints that are not among `uris`."""
        for uri in self._begun.keys() - uris:
            remove_folder(self._begun.pop(uri)[1])

    # --- private

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
        """Return whether every object was there in its version."""
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
                    in_vain = 0 if file.tell() > before else in_vain + 1
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
            file.flush()  # so that a kill loses nothing of what is counted as there
        except OSError as error:
            raise store_error(error, f"cannot write {path}") from error


# --- private


def _version(wanted: Mapping[str, S3Object]) -> str:
    """Name the bytes; a machine that lost power may have kept a file's length without them."""
    return content_hash([boot_id(), sorted((name, thing.size, thing.etag) for name, thing in wanted.items())])


def _read_begun(folder: Path) -> dict[str, str] | None:
    if (folder / MANIFEST).exists():
        return None
    try:
        document = json.loads((folder / BEGUN).read_bytes())
        return {key: str(document[key]) for key in ("run_id", "uri", "version")}
    except (OSError, ValueError, KeyError, TypeError):
        return None
