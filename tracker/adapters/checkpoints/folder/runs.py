"""Content of a training output folder, for `tracker init`: runs, checkpoints, logs, data. Only reads."""

import os
import re
import shlex
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path, PurePosixPath

from eval_jobs.errors import CheckpointNotFound, CheckpointsUnnamed, ConfigError
from eval_jobs.host.paths import canonical
from eval_jobs.serve.process.checkpoint_files import has_tokenizer
from tracker.adapters.checkpoints.files.listing import CheckpointLocation, models_beside, places_in
from tracker.adapters.checkpoints.folder.assessed import Assessed, newest_assessed
from tracker.domain.checkpoints.listing import (
    ADAPTER_CONFIG,
    CONFIG,
    EXPORT_HINT,
    is_training_data,
    is_training_log,
    single_files,
    single_files_text,
)
from tracker.domain.checkpoints.names import step_of, steps_in
from tracker.domain.checkpoints.unusable import NotYet, Rejected
from tracker.domain.records.display import names_text

MAX_FILES = 50
"""Maximum number of JSONL files that are considered in each place."""
_OF_TRAINING = ("trainer_state.json", "training_args.bin", "all_results.json")
"""A model with one of these was trained, and is not what another training started from."""
_NO_STEP_HINT = "save with the step in the name, such as checkpoint-100, or run `tracker evaluate FOLDER --step N`"
_NAME_OF_MODEL = re.compile(
    r"(?:^|[-_.])(?:ckpt|checkpoint|model|step|epoch|iter|latest|last|best|ba)(?![a-z])", re.IGNORECASE
)


@dataclass(frozen=True, kw_only=True)
class FoundRun:
    """One run: the output folder itself, or one of its sub-folders."""

    sub_folder: str
    """Name below the output folder; empty: the output folder itself."""
    checkpoints: int
    newest: str
    """Name of the newest checkpoint's folder or file."""
    complete: Assessed | None
    """The newest complete checkpoint; None: none is complete."""
    problem: NotYet | Rejected | None
    """Why the newest checkpoint is not complete or cannot be served; None: it can."""


@dataclass(frozen=True, kw_only=True)
class FoundFolder:
    """An output folder as `tracker init` uses it."""

    path: Path
    runs: tuple[FoundRun, ...]
    """The run with the newest checkpoint last."""
    data: tuple[Path, ...]
    """JSONL files in the folder, next to it and in the project's folder that may be evaluation data."""
    training_data: tuple[Path, ...]
    """Those that the model is trained on, by their names."""
    beside: tuple[Path, ...]
    """Models among the checkpoints that are none by their names."""
    models: tuple[Path, ...]
    """Models next to the output folder or in the project's folder, with which training may have started."""


def find_runs(folder: Path, project: Path | None = None) -> FoundFolder:
    """Describe an output folder, which may have no checkpoints, or not exist yet.

    `project`: folder of the configuration, which may have data in it or in its sub-folders.

    Raises:
        CheckpointNotFound: the folder cannot be listed.
    """
    folder, project = _without_dots(folder), _without_dots(project or folder)
    try:
        places = places_in(folder, run_name="") if folder.exists() else ()
    except OSError as error:
        raise CheckpointNotFound(
            f"cannot list {folder}: {error.strerror}",
            hint="pass the trainer's output folder, with checkpoint folders such as checkpoint-100, or an empty one",
        ) from error
    by_run: dict[str, list[CheckpointLocation]] = {}
    for place in places:
        by_run.setdefault(place.run_id, []).append(place)
    runs = sorted((_describe(run_id, group) for run_id, group in by_run.items()), key=lambda r: r.sub_folder)
    data: list[Path] = []
    training_data: list[Path] = []
    for path in sorted(_jsonl_files(folder, project)):
        if is_training_data(path.name):
            training_data.append(path)
        elif not is_training_log(path.name):
            data.append(path)
    return FoundFolder(
        path=folder,
        runs=tuple(runs),
        data=tuple(data),
        training_data=tuple(training_data),
        beside=tuple(model.path for model in models_beside(folder, places, run_name="")) if places else (),
        models=_models_near(folder, project),
    )


def demand_output_folder(folder: Path) -> None:
    """Raise CheckpointNotFound if the folder is a checkpoint, holds runs, or only has single files."""
    if any((folder / name).is_file() for name in (CONFIG, ADAPTER_CONFIG)):
        hint = "evaluate it with `tracker evaluate`, or use --yes if the trainer will write checkpoints into it"
        if step_of(folder.name) is not None:
            hint = f"run `tracker init {shlex.quote(str(folder.parent))}`"
        raise CheckpointNotFound(f"{folder} is a checkpoint, not the output folder of a trainer", hint=hint)
    if run := _run_below(folder):
        hint = f"run `tracker init {shlex.quote(str(run))}`, or use --yes if the trainer will write to {folder}"
        raise CheckpointNotFound(f"no checkpoint in {folder}, but in {run}", hint=hint)
    _demand_other_than_files(folder)


def demand_outside_checkpoints(files: Iterable[Path | None], output_dir: str | Path, pattern: str = "") -> None:
    """Raise ConfigError if a file to write is inside a checkpoint of an output folder: these are never changed."""
    root = PurePosixPath(canonical(str(output_dir)))
    for path in filter(None, files):
        place = PurePosixPath(canonical(str(path)))
        if place.is_relative_to(root) and steps_in(place.relative_to(root).parts[:-1], pattern):
            raise ConfigError(f"{path} is inside a checkpoint of the trainer", hint="choose a file outside of it")


def no_names(folder: Path, unnumbered: list[str]) -> CheckpointsUnnamed | None:
    """Return why no model that a trainer seems to save in an output folder is a checkpoint; None: it saves none.

    `unnumbered`: models in it without a step in the name.
    """
    if len(unnumbered) > 1:
        return CheckpointsUnnamed(f"{names_text(unnumbered)} have no step in their names", hint=_NO_STEP_HINT)
    files = single_files(path.name for path in folder.glob("*"))
    numbers = sorted(path.name for path in folder.glob("[0-9][0-9]*/") if path.name.isdecimal())
    if any(map(_NAME_OF_MODEL.search, files)):
        return CheckpointsUnnamed(single_files_text(str(folder), files), hint=EXPORT_HINT)
    run = _run_below(folder)
    if run is not None and any(run.glob(f"*/{CONFIG}")):
        return CheckpointsUnnamed(f"no checkpoint in {folder}, but in {run}", hint="set run.output_dir to that folder")
    if len(numbers) > 1:
        return CheckpointsUnnamed(f"no Hugging Face model in {names_text(numbers)} of {folder}", hint=EXPORT_HINT)
    return None


def _run_below(folder: Path) -> Path | None:
    for child in islice(sorted(folder.glob("[!.]*/")), MAX_FILES):
        if child.is_symlink():
            continue
        with suppress(OSError):
            for place in places_in(child, run_name=""):
                return place.path.parent
    return None


def _demand_other_than_files(folder: Path) -> None:
    patterns = ("*", "*/*.ckpt", "*/*/*.ckpt")  # Lightning's are in lightning_logs/version_0/checkpoints
    names = [str(path.relative_to(folder)) for pattern in patterns for path in islice(folder.glob(pattern), MAX_FILES)]
    if models := single_files(names):
        raise CheckpointNotFound(single_files_text(str(folder), models), hint=f"{EXPORT_HINT}; or use --yes")


def _without_dots(path: Path) -> Path:
    return Path(os.path.abspath(path))  # noqa: PTH100 - symbolic links stay


def _jsonl_files(folder: Path, project: Path) -> frozenset[Path]:
    places = [(folder, "*.jsonl"), (folder, "*/*.jsonl"), (folder.parent, "*.jsonl")]
    places += [(project, "*.jsonl"), (project, "*/*.jsonl")]
    return frozenset(path for place, pattern in places for path in islice(place.glob(pattern), MAX_FILES))


def _models_near(folder: Path, project: Path) -> tuple[Path, ...]:
    near = set()
    for place in (folder.parent, project):
        for config in islice(place.glob(f"*/{CONFIG}"), MAX_FILES):
            model = config.parent
            is_result = any((model / name).exists() for name in _OF_TRAINING)
            if model != folder and step_of(model.name) is None and has_tokenizer(model) and not is_result:
                near.add(model)
    return tuple(sorted(near))


def _describe(run_id: str, places: list[CheckpointLocation]) -> FoundRun:
    """Describe one run; `places` are ordered by step."""
    newest, complete = newest_assessed(places)
    return FoundRun(
        sub_folder=run_id.removeprefix("/"),
        checkpoints=len(places),
        newest=places[-1].path.name,
        complete=complete,
        problem=newest.problem,
    )
