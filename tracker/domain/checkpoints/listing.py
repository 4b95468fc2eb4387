"""What is known about a checkpoint folder: names, sizes, times, headers, documents. Pure records and name rules."""

import fnmatch
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

CONFIG = "config.json"
INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
ADAPTER_CONFIG = "adapter_config.json"
ADAPTER = "adapter_model.safetensors"
TRAINER_STATE = "trainer_state.json"
BIN_INDEX = "pytorch_model.bin.index.json"
DOCUMENTS = (CONFIG, INDEX, ADAPTER_CONFIG, TRAINER_STATE, BIN_INDEX)
"""JSON files whose content decides."""

DCP_INDEX = ".metadata"
"""Written last by torch.distributed.checkpoint."""
FSDP_FOLDER = "pytorch_model_fsdp_0"
"""Where accelerate puts the sharded state of the model."""
LATEST = "latest"
"""Written last by DeepSpeed: the name of the folder that holds the state."""

REMOVAL_TOLERANCE_NS = 50_000_000
"""A folder that changed this much later than its newest file has lost an entry: its deletion may have begun."""

_STEP = re.compile(r"(?<![0-9])([0-9]{1,18})$")
_STATE_FOLDER = re.compile(rf"(?:{FSDP_FOLDER}|global_step[0-9]+|pytorch_model)$")
_STEP_NAMES = re.compile(r"(?:checkpoint|ckpt|step|global_?step|iter|iteration)[-_]?[0-9]+$", re.IGNORECASE)


class Site(Protocol):
    """Where one checkpoint lies: in a folder of a disk, or under a prefix of a bucket."""

    @property
    def run_id(self) -> str:
        """The run that it belongs to."""

    @property
    def step(self) -> int:
        """The training step that its name says."""

    @property
    def uri(self) -> str:
        """Absolute path, or s3://bucket/prefix."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FileFact:
    """What the file system says about one file; a dozen for every checkpoint of a run stay in memory."""

    name: str
    size: int
    mtime_ns: int
    inode: int
    outside: bool = False
    """A symbolic link to a place outside the watched folder."""


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What the file system says about one folder, without opening a file."""

    path: str
    mtime_ns: int
    files: tuple[FileFact, ...]
    """Ordered by name."""
    folders: tuple[str, ...] = ()
    newest_folder_ns: int = 0
    problem: str = ""
    """Why the folder could not be listed; the rest is empty then."""

    def names(self) -> frozenset[str]:
        """Return the names of all files."""
        return frozenset(f.name for f in self.files)

    def file(self, name: str) -> FileFact | None:
        """Return the facts of one file, or None."""
        return next((f for f in self.files if f.name == name), None)

    def newest_ns(self) -> int:
        """Return the newest modification time of any file, 0 for none."""
        return max((f.mtime_ns for f in self.files), default=0)


@dataclass(frozen=True, kw_only=True)
class Header:
    """A safetensors header, as far as completeness needs it."""

    end: int
    """8 + length of the header + largest offset: the size that the file must have."""
    tensors: frozenset[str]


@dataclass(frozen=True, kw_only=True)
class Broken:
    """A file that cannot be read as what it should be."""

    code: str
    text: str


Document = Mapping[str, object]


class RawKind(StrEnum):
    """A form of weights that is made into safetensors before anything is served."""

    TORCH = "torch"
    """What torch.save wrote: pytorch_model.bin."""
    DCP = "dcp"
    """A folder of torch.distributed.checkpoint, as FSDP writes it."""
    ZERO = "zero"
    """The states of all ranks of DeepSpeed ZeRO."""


@dataclass(frozen=True, kw_only=True)
class StateIndex:
    """What the index of a DCP folder says, as far as the model goes."""

    files: Mapping[str, int]
    """All files of the state -> bytes that each must have."""
    tensors: Mapping[str, tuple[int, ...]]
    """Names that the model gives its tensors -> shapes."""
    keys: Mapping[str, str]
    """Names that the model gives its tensors -> names in the state."""


@dataclass(frozen=True, kw_only=True)
class RawFacts:
    """What is known of a training state in a folder that holds no safetensors."""

    world_size: int = 0
    """Ranks that DeepSpeed's state says there were; 0: not known."""

    folder: str = ""
    """Sub-folder with the index of a DCP state; empty: the checkpoint's folder itself."""
    index: StateIndex | Broken | None = None
    latest: str = ""
    """Content of DeepSpeed's file."""
    broken: Mapping[str, str] = field(default_factory=dict)
    """Files of torch.save that are not whole -> why."""
    config_from: str = ""
    """Another folder that may hold what this one lacks."""
    is_given: bool = False
    """A person has named that folder, so it is certain that it belongs to the model."""
    elsewhere: Mapping[str, Document | Broken] = field(default_factory=dict)
    """Configurations in that folder."""


@dataclass(frozen=True, kw_only=True)
class Listing:
    """Everything that is known about one folder."""

    facts: Facts
    step: int | None
    """From the folder's name; None where the name says none."""
    headers: Mapping[str, Header | Broken] = field(default_factory=dict)
    """Of every safetensors file."""
    documents: Mapping[str, Document | Broken] = field(default_factory=dict)
    """Of those DOCUMENTS that are there."""
    raw: RawFacts = RawFacts()


def step_of(name: str, pattern: str) -> int | None:
    """Return the step that a folder's name says, or None when it is no checkpoint's name."""
    match = _STEP.search(name)
    if match is None or not fnmatch.fnmatchcase(name, pattern):
        return None
    return int(match.group(1))


def usual_step_of(name: str) -> int | None:
    """Return the step of a folder named as trainers do (`checkpoint-10`, `step_10`), whatever the pattern."""
    if _STEP_NAMES.search(name):
        return step_of(name, "*")
    return None


def is_state_folder(name: str) -> bool:
    """Return whether a sub-folder of this name holds a sharded state of the model."""
    return _STATE_FOLDER.match(name) is not None


def is_temporary(name: str) -> bool:
    """Return whether a file of this name is on its way to another name."""
    return name.startswith(".tmp") or name.endswith((".tmp", ".part", ".partial", ".incomplete"))


def has_lost_entry(facts: Facts) -> bool:
    """Return whether the folder itself changed clearly later than any file in it: something was deleted from it.

    A copied folder can look like this too, so it only calls for patience.
    """
    return facts.mtime_ns > max(facts.newest_ns(), facts.newest_folder_ns) + REMOVAL_TOLERANCE_NS


def is_training_log(name: str) -> bool:
    """Return whether a file of this name holds one line of metrics per step: logging.jsonl, trainer_log.jsonl."""
    return name.endswith(".jsonl") and re.search(r"log|metric", name, re.IGNORECASE) is not None
