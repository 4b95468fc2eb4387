"""Name, parameters and commit of a training run, from the files that its trainer left. Pure.

The files come from outside: only values of known names are used, as short texts. Parameters have the names of Hugging
Face's TrainingArguments, so that runs that a trainer wrote itself have the same columns.
"""

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tracker.domain.checkpoints.listing import ADAPTER_CONFIG
from tracker.domain.records.display import one_line
from tracker.domain.records.tracking import TrainerFacts

COMMIT_TAG = "mlflow.source.git.commit"
MAX_VALUE_CHARS = 250
MAX_NAME_CHARS = 100
MAX_LIST = 50

_SAME = "warmup_steps warmup_ratio max_steps gradient_accumulation_steps weight_decay max_grad_norm seed data_seed"
PARAMS: Mapping[str, tuple[str, ...]] = {
    "base_model": ("base_model", "model_name_or_path", "model"),
    "dataset": ("dataset", "dataset_name"),
    "learning_rate": ("learning_rate", "lr"),
    "lr_scheduler_type": ("lr_scheduler_type", "lr_scheduler"),
    "max_length": ("max_length", "max_seq_length", "sequence_len", "cutoff_len"),
    "num_train_epochs": ("num_train_epochs", "num_epochs", "epochs"),
    "optim": ("optim", "optimizer"),
    "per_device_train_batch_size": ("per_device_train_batch_size", "micro_batch_size"),
    "train_batch_size": ("train_batch_size", "global_batch_size"),
    **{name: (name,) for name in _SAME.split()},
}
"""Names of trainers for each parameter, in order of preference."""

ADAPTER_PARAMS: Mapping[str, tuple[str, ...]] = {
    "base_model": ("base_model_name_or_path",),
    "lora_r": ("r",),
    "lora_alpha": ("lora_alpha",),
    "lora_dropout": ("lora_dropout",),
    "target_modules": ("target_modules",),
}
"""Only from the adapter's own file: some trainers write defaults for LoRA where they train all weights."""

_NAMES = ("run_name", "wandb_name", "trial_name")
_COMMITS = ("git_commit", "git_commit_hash", "git_hash", "git_sha", "commit_hash", "commit")
_COMMIT = re.compile(r"[0-9a-fA-F]{7,40}")
_USER_IN_ADDRESS = re.compile(r"//[^/\s]*@")
_LONGEST_INT = 1 << 64
_UNSET = {"", "null", "none", "~", "-1"}
"""Trainers write -1 for a limit that is not set."""

Document = Mapping[str, object]


def trainer_facts(documents: Mapping[str, Document]) -> TrainerFacts:
    """Return what `documents`, file name -> content, say of a training run; of equal names, the first file counts."""
    adapter = documents.get(ADAPTER_CONFIG, {})
    others = [document for name, document in documents.items() if name != ADAPTER_CONFIG]
    commit = next((text for text in _texts(_COMMITS, others) if _COMMIT.fullmatch(text)), "")
    return TrainerFacts(
        name=_name(others),
        params=_params(PARAMS, others) | _params(ADAPTER_PARAMS, [adapter]),
        tags={COMMIT_TAG: commit} if commit else {},
    )


@dataclass(frozen=True, kw_only=True)
class NamedRun:
    """What a run may be called."""

    name: str
    """The trainer's name of the run, or the tracker's; others may have the same."""
    seed: str
    """Empty if unknown."""
    run_id: str

    def choices(self) -> tuple[str, ...]:
        """Return its possible names, the shortest first."""
        seed = f", seed {self.seed}" if self.seed else ""
        return self.name, f"{self.name}{seed}", f"{self.name} ({self.run_id})"


def display_names(runs: Sequence[NamedRun]) -> list[str]:
    """Return for each run its name; runs of equal names get their seeds or, if those are equal, the tracker's names."""
    groups: dict[str, list[NamedRun]] = defaultdict(list)
    for run in runs:
        groups[run.name].append(run)
    return [run.choices()[_level(groups[run.name])] for run in runs]


def _level(group: Sequence[NamedRun]) -> int:
    levels = list(zip(*(run.choices() for run in group), strict=True))
    return next((level for level, names in enumerate(levels) if len(set(names)) == len(names)), 0)


def _name(documents: Sequence[Document]) -> str:
    """Return the trainer's name for its run; some use the output folder, which the tracker knows better."""
    folders = set(_texts(("output_dir",), documents))
    names = (text for text in _texts(_NAMES, documents) if text not in folders and not {"/", "\\"} & set(text))
    return next(names, "")[:MAX_NAME_CHARS]


def _params(allowed: Mapping[str, tuple[str, ...]], documents: Sequence[Document]) -> dict[str, str]:
    found = ((param, next(map(_normal, _texts(names, documents)), "")) for param, names in allowed.items())
    return {param: text for param, text in found if text}


def _texts(names: Iterable[str], documents: Sequence[Document]) -> Iterator[str]:
    for name in names:
        for document in documents:
            text = _text(document.get(name))
            if text.lower() not in _UNSET:
                yield text[:MAX_VALUE_CHARS]


def _text(value: object) -> str:
    """Return a plain value, or a list of them, as text; empty for anything else."""
    if isinstance(value, list | tuple):
        plain = (_text(one) for one in value[:MAX_LIST] if not isinstance(one, list | tuple))
        return ", ".join(sorted(filter(None, plain)))  # PEFT writes sets, in another order each time
    if isinstance(value, str):
        return one_line(_USER_IN_ADDRESS.sub("//", value[: 4 * MAX_VALUE_CHARS]))
    if isinstance(value, bool) or not isinstance(value, int | float):
        return ""
    if isinstance(value, float) or abs(value) < _LONGEST_INT:
        return str(value)
    return ""


def _normal(text: str) -> str:
    """Return equal numbers as equal texts: files of one run have 1e-4 and 0.0001, or 3 and 3.0."""
    try:
        number = float(text)
    except ValueError:
        return text
    if text.isdecimal():
        return text
    if not math.isfinite(number):
        return ""
    if number.is_integer():
        return f"{number:.0f}"
    return repr(number)
