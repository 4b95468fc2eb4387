"""Facts of a folder that holds a training state instead of safetensors. Only reads, and runs nothing."""

import zipfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from eval_jobs.host.bounded.files import open_regular
from eval_jobs.host.bounded.json_text import TooLarge
from tracker.adapters.checkpoints.files.dcp_index import open_archive, read_index, read_world_size
from tracker.domain.checkpoints import listing

MODEL_FILES = (
    "config.json",
    "generation_config.json",
    "adapter_config.json",
    "tokenizer*",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.*",
    "merges.txt",
    "chat_template.*",
    "*.tiktoken",
    "*.model",
)
"""Files that a checkpoint without its own configuration takes from another folder."""


ReadDocument = Callable[[Path], listing.Document | listing.Broken]


def read_raw(facts: listing.Facts, config_from: str, beside: Path, read_document: ReadDocument) -> listing.RawFacts:
    """Return the facts of a training state, and configurations elsewhere of a checkpoint that has none.

    Args:
        facts: the checkpoint's folder.
        config_from: folder that the user set for files that the checkpoint lacks; empty: `beside`.
        beside: folder whose configuration may be that of a state, if it fits.
        read_document: reads a JSON file.
    """
    if any(f.outside for f in facts.files):
        return listing.RawFacts()
    names = facts.names()
    elsewhere = Path(config_from or beside)
    known = listing.RawFacts(config_from=str(elsewhere), is_given=bool(config_from))
    if not {listing.SINGLE, listing.INDEX, listing.ADAPTER}.isdisjoint(names):
        is_needed = bool(config_from) and names.isdisjoint((listing.CONFIG, listing.ADAPTER_CONFIG))
        documents = _configurations(elsewhere, read_document, is_given=True) if is_needed else {}
        return replace(known, elsewhere=documents) if documents else listing.RawFacts()
    folder = Path(facts.path)
    sub_folder, index = _index(folder, names)
    torch_files = [f.name for f in facts.files if f.name.endswith((".bin", "_states.pt", ".ckpt"))]
    if not torch_files and index is None:
        return listing.RawFacts()
    broken = _broken(folder, torch_files)
    return replace(
        known,
        folder=sub_folder,
        world_size=_world_size(folder, sorted(set(torch_files) - broken.keys())),
        index=index,
        latest=_latest(folder / listing.LATEST) if listing.LATEST in names else "",
        broken=broken,
        elsewhere=_configurations(elsewhere, read_document, is_given=known.is_given),
    )


def model_files(folder: Path) -> Iterator[Path]:
    """Yield the configuration and tokenizer files of a folder, ordered."""
    found = {path for pattern in MODEL_FILES for path in folder.glob(pattern) if path.is_file()}
    yield from sorted(found)


def _broken(folder: Path, names: Iterable[str]) -> dict[str, str]:
    found = {name: _why_broken(folder if folder.is_file() else folder / name) for name in names}
    return {name: why for name, why in found.items() if why}


def _configurations(
    folder: Path, read_document: ReadDocument, *, is_given: bool
) -> dict[str, listing.Document | listing.Broken]:
    """Read the files that may be used: one that links elsewhere, as in the Hugging Face cache, only if `is_given`."""
    found = [path for path in (folder / listing.CONFIG, folder / listing.ADAPTER_CONFIG) if path.is_file()]
    usable = [path for path in found if is_given or path.resolve().is_relative_to(folder.resolve())]
    return {path.name: read_document(path) for path in usable}


def _index(folder: Path, names: frozenset[str]) -> tuple[str, listing.StateIndex | listing.Broken | None]:
    for sub_folder in (listing.FSDP_FOLDER, ""):
        name = f"{sub_folder}/{listing.DCP_INDEX}" if sub_folder else listing.DCP_INDEX
        if name in names:
            return sub_folder, read_index(folder / name)
    return "", None


def _world_size(folder: Path, names: list[str]) -> int:
    first = min((name for name in names if name.endswith("mp_rank_00_model_states.pt")), default=None)
    if first is None:
        return 0
    return read_world_size(folder / first)


def _latest(path: Path) -> str:
    try:
        with open_regular(path) as file:
            return file.read(200).decode().strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _why_broken(path: Path) -> str:
    """Return why a file is incomplete, else "": torch.save writes a zip, whose table of contents comes last."""
    try:
        with open_archive(path) as archive:
            if archive.namelist():
                return ""
            return "is empty"
    except TooLarge as error:
        return f"has a table of contents that {error}"
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    except (zipfile.BadZipFile, ValueError, NotImplementedError):
        return "is not a complete torch.save file: still being written, truncated, or older than torch 1.6"
