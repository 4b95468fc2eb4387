"""Reads folders: where checkpoints are, which files they have, their headers and JSON. Never writes.

places_in(output_dir) -> CheckpointLocation...      facts_of_folder(folder) -> Facts      read_listing(facts) -> Listing
"""

import errno
import os
import stat
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice
from pathlib import Path

from eval_jobs import limits
from eval_jobs.host.bounded.json_text import amount
from tracker.adapters.checkpoints.files.documents import demand_present, read_document, read_or_broken
from tracker.adapters.checkpoints.files.raw_files import read_raw
from tracker.adapters.checkpoints.files.safetensors_file import read_header
from tracker.domain.checkpoints import listing
from tracker.domain.checkpoints.names import counts_epochs, series_in, step_of, steps_in, too_high

MAX_LOOKED = 64
"""Folders with other names that are searched for models, in each place."""
MAX_INSIDE = 8
"""Sub-folders of a checkpoint, and of each of these, that are searched for its model."""
_OTHER_MODELS = ("critic", "reward")
"""Beside the trained model, in trainers of reinforcement learning."""


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
    output_dir: Path, *, run_name: str, pattern: str = "", skip: Path | None = None
) -> tuple[CheckpointLocation, ...]:
    """Return the checkpoint folders in `output_dir` and one level below it, lowest step first.

    Symbolic links to folders are left out: `last-checkpoint` is a second name of a folder that is found anyway, and a
    link may point out of the output folder. The run of a sub-folder is `run_name/<sub-folder>`.

    Args:
        output_dir: output folder of the trainer.
        run_name: ID of the run whose checkpoints are directly in it.
        pattern: glob of their names; empty: as `domain.checkpoints.names` knows or learns them.
        skip: folder that is not searched.

    Raises:
        OSError: `output_dir` cannot be listed.
    """
    names = _folders(output_dir)
    steps = _steps(output_dir, names, pattern)
    found = [_location(run_name, step, output_dir, name) for name, step in steps.items()]
    for name in names:
        if name not in steps and not name.startswith(".") and output_dir / name != skip:
            found += _places_below(output_dir / name, f"{run_name}/{name}", pattern)
    return tuple(sorted(found, key=lambda p: (p.step, p.run_id, p.path)))


def model_in(folder: Path) -> Path:
    """Return the only trained model in the sub-folders of a checkpoint that is none itself; else `folder`."""
    models = () if _holds_model(folder) else _models_inside(folder)
    return models[0] if len(models) == 1 else folder


def step_named(model: Path) -> int | None:
    """Return the step in the name of a model's folder, or of the checkpoint that it is in."""
    for folder in (model, model.parent, model.parent.parent):
        step = step_of(folder.name)
        if step is not None and model_in(folder) == model:
            return step
    return None


@dataclass(frozen=True, kw_only=True)
class ModelBeside:
    """A folder with a model that is none of a run's checkpoints: a final save, `best`, or one with another name."""

    run_id: str
    path: Path
    step: int | None
    """From its name; None: it has none."""


def models_beside(output_dir: Path, places: Collection[CheckpointLocation], *, run_name: str) -> list[ModelBeside]:
    """Return the models in `output_dir` and in the runs below it that are none of `places`."""
    known = {place.path for place in places}
    runs = {output_dir: run_name} | {place.path.parent: place.run_id for place in places}
    found = [ModelBeside(run_id=run_id, path=run, step=None) for run, run_id in runs.items() if _holds_model(run)]
    for run, run_id in runs.items():
        with suppress(OSError):  # deleted, or not readable: the sweep reports it
            names = [name for name in _folders(run) if not name.startswith(".") and run / name not in known]
            for name in (name for name in names[:MAX_LOOKED] if _holds_model(run / name)):
                step = None if counts_epochs(name) else step_of(name)
                found.append(ModelBeside(run_id=run_id, path=run / name, step=step))
    return sorted(found, key=lambda model: model.path)


def too_high_in(runs: Collection[Path], pattern: str) -> list[str]:
    """Return the folders in `runs` that would be checkpoints if the numbers in their names could be steps."""
    found: list[str] = []
    for run in runs:
        with suppress(OSError):  # as above
            found += (str(run / name) for name in too_high(_folders(run), pattern))
    return sorted(found)


def facts_of_folder(folder: Path, root: Path | None = None) -> listing.Facts | None:
    """Return the file system's facts about a folder, or a checkpoint that is one file; None: it does not exist.

    Links to files outside of `root` are marked; None: links are followed anywhere.

    Raises:
        OSError: the file server is unavailable, so the folder may still exist.
    """
    try:
        status = folder.stat()
        if stat.S_ISREG(status.st_mode):
            only = _known_fact(folder.name, status.st_size, status.st_mtime_ns, status.st_ino, False)  # noqa: FBT003
            return listing.Facts(path=str(folder), mtime_ns=status.st_mtime_ns, files=(only,))
        mtime_ns = status.st_mtime_ns
        with os.scandir(folder) as entries:
            listed = _entries_of(entries)
    except FileNotFoundError:
        return None
    except OSError as error:
        demand_present(error)
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
            demand_present(error)
    return listing.Facts(
        path=str(folder),
        mtime_ns=mtime_ns,
        files=tuple(sorted(files, key=lambda f: f.name)),
        folders=tuple(sorted(folders)),
        newest_folder_ns=newest_folder_ns,
    )


def path_in(checkpoint: Path, name: str) -> Path:
    """Return the path of a file of a checkpoint, which may be a single file itself."""
    return checkpoint if checkpoint.name == name and checkpoint.is_file() else checkpoint / name


def read_listing(
    facts: listing.Facts, step: int | None, *, config_from: str = "", beside: Path | None = None
) -> listing.Listing:
    """Return the facts with the content of the files that decide on completeness.

    Args:
        facts: of the folder.
        step: in the folder's name; None: the name has none.
        config_from: folder with the configuration of checkpoints that hold none; empty: `beside` may have one.
        beside: folder next to the checkpoint; None: its parent.
    """
    folder = Path(facts.path)
    headers: dict[str, listing.Header | listing.Broken] = {}
    documents: dict[str, listing.Document | listing.Broken] = {}
    for fact in facts.files:
        if fact.outside:
            continue
        if fact.name.endswith(".safetensors"):
            headers[fact.name] = read_or_broken(folder / fact.name, read_header)
        elif fact.name in listing.DOCUMENTS:
            documents[fact.name] = read_document(folder / fact.name)
    raw = read_raw(facts, config_from, beside or folder.parent, read_document)
    base = _base_folder(folder, listing.base_model_of(documents.get(listing.ADAPTER_CONFIG)))
    return listing.Listing(facts=facts, step=step, headers=headers, documents=documents, raw=raw, base_folder=base)


def _base_folder(folder: Path, base: str) -> str:
    """Return the model folder that the relative path `base` means; empty: none, or more than one.

    It is relative to the trainer's working folder, which is usually above its output folder.
    """
    if not base or Path(base).is_absolute():
        return ""
    found = (parent / base for parent in folder.absolute().parents)
    # Unlike Path.is_file, it takes a name that is too long for a file.
    places = {place.resolve() for place in found if os.path.isfile(place / listing.CONFIG)}  # noqa: PTH113
    if len(places) != 1:
        return ""
    return str(places.pop())


def _entries_of(folder: Iterator[os.DirEntry[str]]) -> list[os.DirEntry[str]]:
    found = list(islice(folder, limits.FILES.most + 1))
    if len(found) > limits.FILES.most:
        raise OSError(errno.E2BIG, f"there are more than {amount(limits.FILES)}")
    return [entry for entry in found if entry.name not in listing.OWN_FILES]


def _places_below(folder: Path, run_id: str, pattern: str) -> list[CheckpointLocation]:
    try:
        steps = _steps(folder, _folders(folder), pattern)
    except OSError:
        return []  # deleted, or not readable; neither holds a checkpoint for us
    return [_location(run_id, step, folder, name) for name, step in steps.items()]


def _steps(folder: Path, names: Sequence[str], pattern: str) -> Mapping[str, int]:
    steps = steps_in(names, pattern)
    if steps or pattern:
        return steps
    return series_in(name for name in names[:MAX_LOOKED] if _holds_model(folder / name))


@lru_cache(maxsize=1 << 16)  # the same thousands of places are found every second
def _location(run_id: str, step: int, folder: Path, name: str) -> CheckpointLocation:
    return CheckpointLocation(run_id=run_id, step=step, path=folder / name)


def _models_inside(folder: Path, *, is_deeper: bool = True) -> tuple[Path, ...]:
    """Return the Hugging Face models that were trained and are in sub-folders of a checkpoint."""
    found: list[Path] = []
    with suppress(OSError):  # a file, deleted, or not readable: the sweep reports it
        for name in _folders(folder)[:MAX_INSIDE]:
            inner = folder / name
            if name in _OTHER_MODELS or listing.is_state_folder(name):
                continue
            if _is_model(inner):
                found.append(inner)
            elif is_deeper:
                found += _models_inside(inner, is_deeper=False)
    return tuple(found)


def _is_model(folder: Path) -> bool:
    with os.scandir(folder) as entries:
        names = {entry.name for entry in entries}
    is_configured = not names.isdisjoint((listing.CONFIG, listing.ADAPTER_CONFIG))
    return is_configured and any(name.endswith(".safetensors") for name in names)


def _holds_model(folder: Path) -> bool:
    try:
        return _held_model(str(folder), folder.stat().st_mtime_ns)
    except OSError:
        return False


@lru_cache(maxsize=1 << 12)
def _held_model(folder: str, mtime_ns: int) -> bool:
    del mtime_ns  # a part of the key: the content has changed
    with os.scandir(folder) as entries:
        return any(listing.is_of_model(entry.name) for entry in entries)


def _folders(folder: Path) -> list[str]:
    with os.scandir(folder) as entries:
        return sorted(entry.name for entry in entries if _is_folder(entry))


def _is_folder(entry: os.DirEntry[str]) -> bool:
    """Return whether it is a folder, or a file that is a checkpoint."""
    try:
        is_one = entry.is_file(follow_symlinks=False) if entry.name.endswith(".ckpt") else False
        # A name that is not valid text cannot be used in run ids, messages and databases.
        return (is_one or entry.is_dir(follow_symlinks=False)) and bool(entry.name.encode())
    except (OSError, UnicodeEncodeError):
        return False


def _state_files(folder: os.DirEntry[str], root: Path | None) -> Iterator[listing.FileFact]:
    """Return the files of a sub-folder with a sharded training state, named relative to the checkpoint."""
    if listing.is_state_folder(folder.name):
        with os.scandir(folder) as entries:
            for entry in _entries_of(entries):
                if entry.is_file():
                    fact = _file_fact(entry, entry.stat(), root)
                    yield replace(fact, name=f"{folder.name}/{entry.name}")


def _file_fact(entry: os.DirEntry[str], status: os.stat_result, root: Path | None) -> listing.FileFact:
    is_outside = root is not None and entry.is_symlink() and not Path(entry.path).resolve().is_relative_to(root)
    return _known_fact(entry.name, status.st_size, status.st_mtime_ns, status.st_ino, is_outside)


@lru_cache(maxsize=1 << 17)  # every scan finds the same facts of a finished checkpoint: one object, fast to compare
def _known_fact(name: str, size: int, mtime_ns: int, inode: int, outside: bool) -> listing.FileFact:  # noqa: FBT001 - private
    return listing.FileFact(name=name, size=size, mtime_ns=mtime_ns, inode=inode, outside=outside)
