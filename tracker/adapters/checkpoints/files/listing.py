"""Reads folders: where checkpoints are, which files they have, their headers and JSON. Never writes.

places_in(output_dir) -> CheckpointLocation...      facts_of_folder(folder) -> Facts      read_listing(facts) -> Listing
"""

import errno
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from eval_jobs.errors import CheckpointIncomplete, CheckpointUnreadable
from tracker.adapters.checkpoints.files.raw_files import read_raw
from tracker.adapters.checkpoints.files.safetensors_file import read_header
from tracker.domain.checkpoints import listing


@dataclass(frozen=True, kw_only=True)
class CheckpointLocation:
    """A folder with the name of a checkpoint."""

    run_id: str
    step: int
    path: Path

    @property
    def uri(self) -> str:
        """The path as text, as shown to users and stored in pins."""
        return str(self.path)


def places_in(
    output_dir: Path, *, run_name: str, pattern: str, skip: Path | None = None
) -> tuple[CheckpointLocation, ...]:
    """Return the checkpoint folders in `output_dir` and one level below it, lowest step first.

    Symbolic links to folders are left out: `last-checkpoint` is a second name of a folder that is found anyway, and a
    link may point out of the output folder. The run of a sub-folder is `run_name/<sub-folder>`.

    Raises:
        OSError: `output_dir` cannot be listed.
    """
    found = []
    for entry in sorted(_folders(output_dir), key=lambda e: e.name):
        place = _place(run_name, entry.path, entry.name, pattern)
        if place is not None:
            found.append(place)
        elif not entry.name.startswith(".") and Path(entry.path) != skip:
            found += _places_below(Path(entry.path), f"{run_name}/{entry.name}", pattern)
    return tuple(sorted(found, key=lambda p: (p.step, p.run_id, p.path)))


def facts_of_folder(folder: Path, root: Path | None = None) -> listing.Facts | None:
    """Return the file system's facts about a folder, or None if it does not exist.

    Links to files outside of `root` are marked; None: links are followed anywhere.

    Raises:
        OSError: the file server is unavailable, so the folder may still exist.
    """
    try:
        mtime_ns = folder.stat().st_mtime_ns
        with os.scandir(folder) as entries:
            listed = list(entries)
    except FileNotFoundError:
        return None
    except OSError as error:
        _demand_present(error)
        return listing.Facts(path=str(folder), mtime_ns=0, files=(), problem=error.strerror or str(error))
    files: list[listing.FileFact] = []
    folders, newest_folder_ns = [], 0
    for entry in listed:
        # A temporary file may have been renamed since the listing; it then counts as absent.
        try:
            status = entry.stat()
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.name)
                newest_folder_ns = max(newest_folder_ns, status.st_mtime_ns)
                files += _state_files(entry, root)
            elif entry.is_file():
                files.append(_file_fact(entry, status, root))
        except OSError as error:
            _demand_present(error)
    return listing.Facts(
        path=str(folder),
        mtime_ns=mtime_ns,
        files=tuple(sorted(files, key=lambda f: f.name)),
        folders=tuple(sorted(folders)),
        newest_folder_ns=newest_folder_ns,
    )


def read_listing(facts: listing.Facts, step: int | None, *, config_from: str = "") -> listing.Listing:
    """Return the facts with the content of the files that decide on completeness.

    Args:
        facts: of the folder.
        step: in the folder's name; None: the name has none.
        config_from: folder with the configuration of checkpoints that hold none; empty: the parent may have one.
    """
    folder = Path(facts.path)
    headers: dict[str, listing.Header | listing.Broken] = {}
    documents: dict[str, listing.Document | listing.Broken] = {}
    for fact in facts.files:
        if fact.outside:
            continue
        if fact.name.endswith(".safetensors"):
            headers[fact.name] = _header(folder / fact.name)
        elif fact.name in listing.DOCUMENTS:
            documents[fact.name] = read_document(folder / fact.name)
    raw = read_raw(facts, config_from, read_document)
    base = _base_folder(folder, listing.base_model_of(documents.get(listing.ADAPTER_CONFIG)))
    return listing.Listing(facts=facts, step=step, headers=headers, documents=documents, raw=raw, base_folder=base)


def _base_folder(folder: Path, base: str) -> str:
    """Return the model folder that the relative path `base` means; empty: none, or more than one.

    It is relative to the trainer's working folder, which is usually above its output folder.
    """
    if not base or Path(base).is_absolute():
        return ""
    found = (parent / base for parent in folder.absolute().parents)
    places = {place.resolve() for place in found if (place / listing.CONFIG).is_file()}
    if len(places) != 1:
        return ""
    return str(places.pop())


def read_document(path: Path) -> listing.Document | listing.Broken:
    """Return the JSON object in a file, or why there is none."""
    try:
        content = path.read_bytes()
    except OSError as error:
        _demand_present(error)
        return listing.Broken(code=CheckpointIncomplete.code, text=f"cannot be read: {error.strerror}")
    return parse_document(content)


def parse_document(content: bytes) -> listing.Document | listing.Broken:
    """Return the JSON object in `content`, or why there is none."""
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        return listing.Broken(code=CheckpointUnreadable.code, text=f"is not valid JSON: {error}")
    if not isinstance(document, dict):
        return listing.Broken(code=CheckpointUnreadable.code, text="is not a JSON object")
    return document


_AWAY = {
    errno.EHOSTDOWN,
    errno.EHOSTUNREACH,
    errno.EIO,
    errno.ENODEV,
    errno.ENOTCONN,
    errno.EREMOTEIO,
    errno.ESTALE,
    errno.ETIMEDOUT,
}
"""Errors of an unavailable file server or a failing disk: the file may still exist."""


def _demand_present(error: OSError) -> None:
    """Raise `error` again if the file may still exist."""
    if error.errno in _AWAY:
        raise error


def _places_below(folder: Path, run_id: str, pattern: str) -> Iterator[CheckpointLocation]:
    try:
        entries = list(_folders(folder))
    except OSError:
        return  # deleted, or not readable; neither holds a checkpoint for us
    for entry in entries:
        place = _place(run_id, entry.path, entry.name, pattern)
        if place is not None:
            yield place


@lru_cache(maxsize=1 << 16)  # the same thousands of names are checked every second
def _place(run_id: str, path: str, name: str, pattern: str) -> CheckpointLocation | None:
    step = listing.step_of(name, pattern)
    if step is None:
        return None
    return CheckpointLocation(run_id=run_id, step=step, path=Path(path))


def _folders(folder: Path) -> Iterator[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        yield from (entry for entry in entries if _is_folder(entry))


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        # A name that is not valid text cannot be used in run ids, messages and databases.
        return entry.is_dir(follow_symlinks=False) and bool(entry.name.encode())
    except (OSError, UnicodeEncodeError):
        return False


def _state_files(folder: os.DirEntry[str], root: Path | None) -> Iterator[listing.FileFact]:
    """Return the files of a sub-folder with a sharded training state, named relative to the checkpoint."""
    if listing.is_state_folder(folder.name):
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_file():
                    fact = _file_fact(entry, entry.stat(), root)
                    yield replace(fact, name=f"{folder.name}/{entry.name}")


def _file_fact(entry: os.DirEntry[str], status: os.stat_result, root: Path | None) -> listing.FileFact:
    is_outside = root is not None and entry.is_symlink() and not Path(entry.path).resolve().is_relative_to(root)
    return _known_fact(entry.name, status.st_size, status.st_mtime_ns, status.st_ino, is_outside)


@lru_cache(maxsize=1 << 17)  # every scan finds the same facts of a finished checkpoint: one object, fast to compare
def _known_fact(name: str, size: int, mtime_ns: int, inode: int, outside: bool) -> listing.FileFact:  # noqa: FBT001 - private
    return listing.FileFact(name=name, size=size, mtime_ns=mtime_ns, inode=inode, outside=outside)


def _header(path: Path) -> listing.Header | listing.Broken:
    try:
        return read_header(path)
    except OSError as error:
        _demand_present(error)
        return listing.Broken(code=CheckpointIncomplete.code, text=f"cannot be read: {error.strerror}")
