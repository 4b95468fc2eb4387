"""Reads result files of other programs, anywhere below the paths that the user passes."""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from eval_jobs import limits
from eval_jobs.errors import BadData
from eval_jobs.harness.fields import Fields
from eval_jobs.host.bounded.files import lines_of, text_of
from eval_jobs.host.bounded.json_text import TooLarge, parse_json
from tracker.domain.checkpoints.watching import known_time
from tracker.domain.imports.bench_serve import is_bench_serve, sheet_of_bench_serve
from tracker.domain.imports.evalscope import EvalScopeFolder, sheet_of_evalscope
from tracker.domain.imports.lm_eval import is_lm_eval, sheets_of_lm_eval
from tracker.domain.imports.types import Given, LeftOut, Sheet

_CONFIG = Path("configs") / "task_config.yaml"
_SAMPLES = re.compile(r"samples_(?P<task>.+?)(?:_(?P<time>\d{4}-\d{2}-\d{2}T[\d.:-]+))?\.jsonl")
_RESULTS_TIME = re.compile(r".*_(?P<time>\d{4}-\d{2}-\d{2}T[\d.:-]+)\.json")
_HALF_PAIR = re.compile(r"\\u[dD][89a-fA-F]")
SUPPORTED_HINT = (
    'supported: lm-evaluation-harness, EvalScope, vllm bench serve (see "Import results" in the documentation)'
)


@dataclass(frozen=True, kw_only=True)
class ImportRequest:
    """The user's options for an import."""

    step: int | None = None
    metrics: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class FoundResults:
    """Everything that was read."""

    sheets: tuple[Sheet, ...]
    passed_over: tuple[LeftOut, ...]
    """Files in folders that are not results."""


def read_results(paths: Sequence[Path], asked: ImportRequest, *, progress: Callable[[str], None]) -> FoundResults:
    """Read every result at or below `paths`.

    Raises:
        BadData: a path is missing, a file in `paths` is not a result, or a result cannot be read.
    """
    reading = _Reading(asked=asked, progress=progress)
    for path in paths:
        if not path.exists():
            raise BadData(f"{path} does not exist", hint="pass a result file or a folder with result files")
        reading.read(path.absolute())
    return FoundResults(sheets=tuple(reading.sheets), passed_over=tuple(reading.passed_over))


class _Rows(Mapping[str, tuple[dict[str, object], ...]]):
    """The rows of JSONL files by name, each file read when it is needed: together they may not fit into memory."""

    def __init__(self, files: Mapping[str, Path]) -> None:
        self._files = files

    def __getitem__(self, name: str) -> tuple[dict[str, object], ...]:
        return _rows(self._files[name])

    def __contains__(self, name: object) -> bool:
        return name in self._files

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)


@dataclass(kw_only=True)
class _Reading:
    asked: ImportRequest
    progress: Callable[[str], None]
    sheets: list[Sheet] = field(default_factory=list)
    passed_over: list[LeftOut] = field(default_factory=list)
    _seen: set[Path] = field(default_factory=set)
    _samples: dict[Path, dict[str | None, dict[str, Path]]] = field(default_factory=dict)
    """Folder -> its files with samples, by the time of their evaluation and by task."""

    def read(self, named: Path) -> None:
        if named.is_file():
            self._read_named(named)
            return
        folders = sorted({config.parent.parent for config in named.rglob(str(_CONFIG)) if config.is_file()})
        for folder in folders:
            if folder not in self._seen:
                self._seen.add(folder)
                self.progress(_shown(folder))
                self.sheets.append(_evalscope_sheet(folder, self._given(folder, named)))
        inside = frozenset(folders)
        for file in sorted(_files(named, ".json")):
            if inside.isdisjoint(file.parents):
                self._read_json(file, named, is_named=False)

    def _read_named(self, file: Path) -> None:
        if file.suffix == ".jsonl":
            match = _SAMPLES.fullmatch(file.name)
            results = _results_beside(file, match.group("time")) if match else None
            if results is None:
                raise BadData(
                    f"missing results file of the same evaluation beside {_shown(file)}",
                    hint=f"pass the folder that contains both; {SUPPORTED_HINT}",
                )
            file = results
        self._read_json(file, file.parent, is_named=True)

    def _read_json(self, file: Path, named: Path, *, is_named: bool) -> None:
        if file in self._seen:
            return
        self._seen.add(file)
        self.progress(_shown(file))
        given = self._given(file, named)
        document = _json_object(file) if is_named or file.name.startswith("results") else _json_or_nothing(file)
        fields = Fields(source=_shown(file), values=document)
        if is_lm_eval(document):
            self.sheets += sheets_of_lm_eval(fields, self._samples_beside(file), given)
        elif is_bench_serve(document):
            self.sheets.append(sheet_of_bench_serve(fields, given))
        elif is_named:
            keys = ", ".join(list(document)[:8]) or "none"
            raise BadData(f"{_shown(file)} is not a supported result file (fields: {keys})", hint=SUPPORTED_HINT)
        else:
            self.passed_over.append(LeftOut(source=_shown(file), name=file.name, reason="not a supported result file"))

    def _samples_beside(self, results: Path) -> _Rows:
        """Return the samples that were written with a results file, by task; each folder is listed once."""
        if results.parent not in self._samples:
            self._samples[results.parent] = _samples_in(results.parent)
        match = _RESULTS_TIME.fullmatch(results.name)
        return _Rows(self._samples[results.parent].get(match.group("time") if match else None, {}))

    def _given(self, path: Path, named: Path) -> Given:
        inside = path.relative_to(named).parents if path != named else ()
        names = [path.name, *(folder.name for folder in inside if folder.name)]
        if path == named or named.is_dir():
            names += [named.name] if path != named else [named.parent.name]
        now = datetime.now(UTC)
        modified_at = known_time(path.stat().st_mtime_ns, now) or now
        return Given(
            source=_shown(path),
            names=tuple(names),
            modified_at=modified_at.replace(microsecond=0),
            step=self.asked.step,
            metrics=self.asked.metrics,
        )


def _shown(path: Path) -> str:
    here = Path.cwd()
    if path.is_relative_to(here):
        return str(path.relative_to(here))
    return str(path)


def _files(folder: Path, suffix: str) -> Iterator[Path]:
    return (path for path in folder.rglob(f"*{suffix}") if path.is_file())


def _json_or_nothing(file: Path) -> dict[str, object]:
    try:
        return _json_object(file)
    except BadData:
        return {}


def _json_object(file: Path) -> dict[str, object]:
    try:
        document = _parsed(text_of(file, limits.RESULTS))
    except (OSError, ValueError) as error:
        raise BadData(
            f"cannot read {_shown(file)} as JSON: {error}",
            hint=f"if it is truncated, copy it again or wait until it is complete; {SUPPORTED_HINT}",
        ) from error
    if not isinstance(document, dict):
        raise BadData(f"{_shown(file)} is not a JSON object", hint=SUPPORTED_HINT)
    return document


def _parsed(text: str) -> Any:  # noqa: ANN401 - JSON of others
    """Return the value of a JSON text; a lone surrogate, which cannot be stored, becomes a question mark."""
    value = parse_json(text)
    if _HALF_PAIR.search(text) is None:
        return value
    return json.loads(json.dumps(value, ensure_ascii=False).encode(errors="replace"))


def _rows(file: Path) -> tuple[dict[str, object], ...]:
    """Return the objects of a JSONL file; a broken line is an error, because skipping it would lose a sample."""
    rows: list[dict[str, object]] = []
    number = 0
    try:
        if file.stat().st_size > limits.SAMPLES.most:
            raise TooLarge(limits.SAMPLES)
        for number, line in enumerate(lines_of(file, limits.ROW), start=1):  # noqa: B007 - named in errors
            if line.strip():
                rows.append(_row(line))
    except OSError as error:
        raise BadData(f"cannot read {_shown(file)}: {error}", hint=SUPPORTED_HINT) from error
    except ValueError as error:
        raise BadData(f"{_shown(file)}, line {number}: invalid JSON ({error})", hint="copy it again") from error
    return tuple(rows)


def _row(line: bytes) -> dict[str, object]:
    row = _parsed(line.decode())
    if not isinstance(row, dict):
        raise ValueError("not a JSON object")  # noqa: TRY004 - the file is wrong, not the call
    return row


def _samples_in(folder: Path) -> dict[str | None, dict[str, Path]]:
    """Return the files with samples of a folder, by the time of their evaluation and by task."""
    found: dict[str | None, dict[str, Path]] = {}
    for file in sorted(folder.glob("samples_*.jsonl")):
        if (match := _SAMPLES.fullmatch(file.name)) is not None:
            found.setdefault(match.group("time"), {})[match.group("task")] = file
    return found


def _results_beside(samples: Path, time: str | None) -> Path | None:
    for file in sorted(samples.parent.glob("*.json")):
        match = _RESULTS_TIME.fullmatch(file.name)
        if (match.group("time") if match else None) == time and is_lm_eval(_json_object(file)):
            return file
    return None


def _evalscope_sheet(folder: Path, given: Given) -> Sheet:
    config_file = folder / _CONFIG
    try:
        config: Any = yaml.load(text_of(config_file, limits.RESULT_SETTINGS), _PlainLoader)  # noqa: S506 - a safe loader
        _demand_few_values(config)
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise BadData(f"cannot read {_shown(config_file)}: {error}", hint=SUPPORTED_HINT) from error
    if not isinstance(config, dict):
        raise BadData(f"no settings in {_shown(config_file)}", hint=SUPPORTED_HINT)
    reports = {}
    for file in _of_one_model(folder, "reports", ".json"):
        report = Fields(source=_shown(file), values=_json_object(file))
        reports[report.text("dataset_name") or file.stem] = report
    read = EvalScopeFolder(
        config=Fields(source=_shown(config_file), values=config),
        reports=reports,
        predictions=_Rows(_by_stem(_of_one_model(folder, "predictions", ".jsonl"))),
        reviews=_Rows(_by_stem(_of_one_model(folder, "reviews", ".jsonl"))),
    )
    return sheet_of_evalscope(read, given)


class _PlainLoader(yaml.SafeLoader):  # type: ignore[misc]
    """A loader for which `<<` is an error: a few such lines can make billions of values."""

    def flatten_mapping(self, node: object) -> None: ...


def _demand_few_values(value: object) -> None:
    """Raise TooLarge if a value is too large when its aliases are written out: each may stand for many others."""
    left, count = [value], 0
    while left:
        one, count = left.pop(), count + 1
        if count > limits.VALUES.most:
            raise TooLarge(limits.VALUES)
        if isinstance(one, dict):
            left += one.values()
        elif isinstance(one, list):
            left += one


def _by_stem(files: Iterable[Path]) -> dict[str, Path]:
    return {file.stem: file for file in files}


def _of_one_model(folder: Path, kind: str, suffix: str) -> tuple[Path, ...]:
    """Return the files of one kind; an evaluation of several models does not belong to one checkpoint."""
    files = tuple(sorted(_files(folder / kind, suffix))) if (folder / kind).is_dir() else ()
    models = sorted({file.parent.name for file in files})
    if len(models) > 1:
        raise BadData(
            f"{_shown(folder / kind)} contains results of {len(models)} models: {', '.join(models)}",
            hint="give each evaluation its own folder",
        )
    return files
