"""What is known about a checkpoint folder: names, sizes, times, headers, documents. Pure records and name rules."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from tracker.domain.records.display import names_text

CONFIG = "config.json"
INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
ADAPTER_CONFIG = "adapter_config.json"
ADAPTER = "adapter_model.safetensors"
TRAINER_STATE = "trainer_state.json"
BIN_INDEX = "pytorch_model.bin.index.json"
DOCUMENTS = (CONFIG, INDEX, ADAPTER_CONFIG, TRAINER_STATE, BIN_INDEX)
"""JSON files whose content is read."""

DCP_INDEX = ".metadata"
"""Written last by torch.distributed.checkpoint."""
FSDP_FOLDER = "pytorch_model_fsdp_0"
"""Folder in which accelerate writes the sharded state of the model."""
LATEST = "latest"
"""Written last by DeepSpeed: contains the name of the folder with the state."""

OWN_FILES = frozenset((".pin.json", ".pin.json.tmp", ".fetch.json"))
"""Files with a meaning in our folders: in a trainer's folder they are no part of a checkpoint."""

REMOVAL_TOLERANCE_NS = 50_000_000
"""A folder that changed this much later than its newest file has lost an entry: its deletion may have begun."""

_PATH = re.compile("[^\x00-\x1f\ud800-\udfff]{1,4096}")
_RANK = re.compile(r"rng_state_([0-9]+)\.pth$")
_STATE_FOLDER = re.compile(rf"(?:{FSDP_FOLDER}|global_step[0-9]+|pytorch_model|weights|context|mp_rank_[0-9_]+)$")
_TRAINING_LOG = re.compile(
    r"(?<![a-z])(?:train(?:er)?)?_?(?:log(?:s|ging|ger|_history)?|metrics?)(?![a-z])", re.IGNORECASE
)
_TRAINING_DATA = re.compile(r"(?<![a-z])(?:pre)?train(?:ing)?(?![a-z])|训练", re.IGNORECASE)


class Site(Protocol):
    """Location of one checkpoint: a folder on a disk, or a prefix of a bucket."""

    @property
    def run_id(self) -> str:
        """Id of its run."""

    @property
    def step(self) -> int:
        """Training step, from its name."""

    @property
    def uri(self) -> str:
        """Absolute path, or s3://bucket/prefix."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FileFact:
    """File system metadata of one file. About a dozen per checkpoint of a run stay in memory."""

    name: str
    size: int
    mtime_ns: int
    inode: int
    outside: bool = False
    """It is a symbolic link to a path outside the watched folder."""


@dataclass(frozen=True, kw_only=True)
class Facts:
    """File system metadata of one folder, without the content of files."""

    path: str
    mtime_ns: int
    files: tuple[FileFact, ...]
    """Ordered by name."""
    folders: tuple[str, ...] = ()
    newest_folder_ns: int = 0
    problem: str = ""
    """Why the folder could not be listed; then the rest is empty."""

    def names(self) -> frozenset[str]:
        """Return the names of all files."""
        return frozenset(f.name for f in self.files)

    def file(self, name: str) -> FileFact | None:
        """Return the facts of one file, or None."""
        return next((f for f in self.files if f.name == name), None)

    def ranks(self) -> frozenset[int]:
        """Return the ranks with a rng_state_<rank>.pth file; a single process writes rng_state.pth."""
        matches = (_RANK.match(f.name) for f in self.files)
        return frozenset(int(match.group(1)) for match in matches if match)

    def newest_ns(self) -> int:
        """Return the newest modification time of any file, 0 for none."""
        return max((f.mtime_ns for f in self.files), default=0)


@dataclass(frozen=True, kw_only=True)
class Header:
    """The parts of a safetensors header that the completeness check needs."""

    end: int
    """8 + length of the header + largest offset: the size that the file must have."""
    tensors: frozenset[str]


@dataclass(frozen=True, kw_only=True)
class Broken:
    """A file that cannot be parsed."""

    code: str
    text: str


Document = Mapping[str, object]


class RawKind(StrEnum):
    """A form of weights that is converted to safetensors before serving."""

    TORCH = "torch"
    """Written by torch.save: pytorch_model.bin."""
    DCP = "dcp"
    """A folder of torch.distributed.checkpoint, as FSDP writes it."""
    ZERO = "zero"
    """The states of all ranks of DeepSpeed ZeRO."""
    OTHER = "other"
    """Any other form, for which the user has set a command."""


@dataclass(frozen=True, kw_only=True)
class StateIndex:
    """The parts of a DCP folder's index that concern the model."""

    files: Mapping[str, int]
    """All files of the state -> minimum size in bytes."""
    tensors: Mapping[str, tuple[int, ...]]
    """Names of the tensors in the model -> shapes."""
    keys: Mapping[str, str]
    """Names of the tensors in the model -> names in the state."""


@dataclass(frozen=True, kw_only=True)
class RawFacts:
    """What is known of a training state in a folder without safetensors."""

    world_size: int = 0
    """Number of ranks according to DeepSpeed's state; 0: unknown."""
    folder: str = ""
    """Sub-folder with the index of a DCP state; empty: the checkpoint's folder itself."""
    index: StateIndex | Broken | None = None
    latest: str = ""
    """Content of DeepSpeed's `latest` file."""
    broken: Mapping[str, str] = field(default_factory=dict)
    """Files of torch.save that are incomplete or unreadable -> reason."""
    config_from: str = ""
    """Another folder that may have the configuration that this one lacks."""
    is_given: bool = False
    """That folder was configured by a user, so it belongs to the model for certain."""
    elsewhere: Mapping[str, Document | Broken] = field(default_factory=dict)
    """Configurations in that folder."""


@dataclass(frozen=True, kw_only=True)
class Listing:
    """All input to the assessment of one folder."""

    facts: Facts
    step: int | None
    """From the folder's name; None if the name has none."""
    headers: Mapping[str, Header | Broken] = field(default_factory=dict)
    """Header of every safetensors file."""
    documents: Mapping[str, Document | Broken] = field(default_factory=dict)
    """Content of the `DOCUMENTS` that exist."""
    raw: RawFacts = RawFacts()
    base_folder: str = ""
    """Absolute path of an adapter's base model if the document has a relative one that exists."""


def base_model_of(document: Document | Broken | None) -> str:
    """Return the base model in an adapter's configuration: a path or a name; empty: none, or what can be neither."""
    base = document.get("base_model_name_or_path") if isinstance(document, Mapping) else None
    if isinstance(base, str) and _PATH.fullmatch(base):
        return base
    return ""


def is_state_folder(name: str) -> bool:
    """Return whether a sub-folder of this name contains a sharded state of the model."""
    return _STATE_FOLDER.match(name) is not None


def is_of_model(name: str) -> bool:
    """Return whether a folder with a file of this name holds a model."""
    return name in {CONFIG, ADAPTER_CONFIG, DCP_INDEX} or name.endswith((".safetensors", ".distcp", ".gguf"))


def is_temporary(name: str) -> bool:
    """Return whether a file of this name is temporary and will be renamed."""
    return name.startswith(".tmp") or name.endswith((".tmp", ".part", ".partial", ".incomplete"))


def single_files(names: Iterable[str]) -> tuple[str, ...]:
    """Return the files of whole models among `names`, such as ckpt.pt: a form that no engine here loads."""
    return tuple(sorted(name for name in names if name.endswith((".pt", ".pth", ".ckpt", ".gguf"))))


EXPORT_HINT = "write each checkpoint with `save_pretrained`, and its tokenizer too"


def single_files_text(folder: str, models: tuple[str, ...]) -> str:
    """Return that a folder has no checkpoint but `single_files`."""
    return f"no checkpoint folder in {folder}, but {names_text(models)}: such files cannot be evaluated"


def has_lost_entry(facts: Facts) -> bool:
    """Return whether the folder itself changed later than any file in it, so an entry was probably deleted.

    A copied folder can have such times too, so this only delays publishing.
    """
    return facts.mtime_ns > max(facts.newest_ns(), facts.newest_folder_ns) + REMOVAL_TOLERANCE_NS


def is_training_log(name: str) -> bool:
    """Return whether a file of this name has one line of metrics per step: logging.jsonl, trainer_log.jsonl."""
    return name.endswith(".jsonl") and _TRAINING_LOG.search(name) is not None


def is_training_data(name: str) -> bool:
    """Return whether a file of this name has the rows that a model is trained on: train.jsonl."""
    return _TRAINING_DATA.search(name) is not None and not is_training_log(name)
