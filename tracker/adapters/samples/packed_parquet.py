"""Per-sample results in Parquet: scores, which are kept, answers, which may be deleted, and shared questions.

    samples/<plan id>/scores-<version>.parquet     a row for each planned answer: score, status, output tokens
    samples/<plan id>/answers-<version>.parquet    the model's answers; the retention budget may delete them
    samples/questions/<digest>.parquet             the questions; see `questions_parquet`

    files.write(packed)                            # each file atomically
    files.columns(plan_id, version)                # the input of verdicts, without one object per sample
    files.samples(plan_id, version)                # everything, by benchmark

The version is a hash of the content. A plan that is evaluated again gets files of another version next to the old ones;
the row of the plan in the database decides which version counts. All are plain Parquet, also for pandas and DuckDB. A
record without any sample, such as one of imported means, has no files.
"""

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from eval_jobs.types import EvalRecord, EvalResult, SampleScore
from tracker.adapters.samples.files_parquet import (
    STATUS_OF_TEXT,
    field_of,
    numbers,
    parquet_bytes,
    reading,
    repeated,
    status_codes,
    text_array,
    write_whole,
)
from tracker.adapters.samples.questions_parquet import COLUMNS as OF_QUESTIONS
from tracker.adapters.samples.questions_parquet import QuestionFiles, StoredQuestions, asked_of
from tracker.domain.scores.sample_columns import SampleColumns, split_columns

NO_SAMPLES = ""
"""Version of a record that has none."""

_SCORES, _ANSWERS = "scores", "answers"
_OF_ANSWERS = ("answer", "detail")
_PARTS_KEY = b"benchmarks"
"""In the metadata of a scores file: its benchmarks in order, as JSON."""
_VERSION_CHARS = 16


@dataclass(frozen=True, kw_only=True)
class PackedSamples:
    """The samples of one record as the bytes of its files."""

    plan_id: str
    version: str
    scores: bytes
    answers: bytes
    asked: tuple[StoredQuestions, ...]


@dataclass(frozen=True, kw_only=True)
class StoredSamples:
    """The samples of one benchmark as they were read."""

    samples: tuple[SampleScore, ...]
    has_texts: bool
    """Whether answers and details exist; if they were deleted, they are empty texts."""


def pack(record: EvalRecord) -> PackedSamples:
    """Return the samples of every result of `record` in their stored form."""
    results = record.results
    if not any(result.samples for result in results):
        return PackedSamples(plan_id=record.plan.id, version=NO_SAMPLES, scores=b"", answers=b"", asked=())
    asked = tuple(asked_of(result.samples) for result in results)
    place = _place_columns(results, asked)
    samples = [sample for result in results for sample in result.samples]
    scores = _scores_file(record, samples, asked, place)
    answers = _answers_file(samples, place)
    version = hashlib.sha256(hashlib.sha256(scores).digest() + answers).hexdigest()[:_VERSION_CHARS]
    return PackedSamples(plan_id=record.plan.id, version=version, scores=scores, answers=answers, asked=asked)


class SampleFiles:
    """All samples below `folder`. Any number of processes may write and read concurrently."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._questions = QuestionFiles(folder)

    def write(self, packed: PackedSamples) -> None:
        """Write the samples of a record; a crash leaves no scores without their questions and answers.

        Raises:
            DiskFull: no space is left.
            StoreError: a file cannot be written.
        """
        if packed.version == NO_SAMPLES:
            return
        for asked in packed.asked:
            self._questions.keep(asked)
        answers, scores = (self._path(kind, packed.plan_id, packed.version) for kind in (_ANSWERS, _SCORES))
        write_whole(scores.parent, {answers.name: packed.answers, scores.name: packed.scores})

    def has_other_files(self, plan_id: str, version: str) -> bool:
        """Return whether the plan's folder holds replaced or incomplete files besides those of `version`."""
        return bool(self._others(plan_id, version))

    def remove_others(self, plan_id: str, version: str) -> None:
        """Delete all files in the plan's folder except those of `version`; no process may write there meanwhile."""
        for path in self._others(plan_id, version):
            path.unlink(missing_ok=True)

    def answers_bytes(self, plan_id: str) -> int:
        """Return the size of the answers of a plan; 0 when they were deleted."""
        return sum(path.stat().st_size for path in self._of_kind(_ANSWERS, plan_id))

    def forget_answers(self, plan_id: str) -> None:
        """Delete the answers of a plan; its scores and questions stay. No process may write there meanwhile."""
        for path in self._of_kind(_ANSWERS, plan_id):
            path.unlink(missing_ok=True)

    def columns(self, plan_id: str, version: str, *, only_scores: bool = False) -> Mapping[str, SampleColumns]:
        """Return `columns_of` the samples of every benchmark; the same questions are the same object.

        Return {} for a record without samples.

        Raises:
            StoreError: a file is missing or damaged.
        """
        if version == NO_SAMPLES:
            return {}
        path = self._path(_SCORES, plan_id, version)
        with reading(path), pq.ParquetFile(pa.BufferReader(path.read_bytes()), read_dictionary=["status"]) as file:
            parts = _parts(file)
            names = ["status", "score", *([] if only_scores else ["output_tokens"])]
            table = file.read(columns=names, use_threads=False)
            statuses, scores = status_codes(table.column("status")), numbers(table.column("score"))
            tokens = None if only_scores else numbers(table.column("output_tokens"))
        places = [(self._questions.read(part.questions), part.rows) for part in parts]
        columns = split_columns(places, statuses=statuses, scores=scores, output_tokens=tokens)
        return dict(zip((part.benchmark for part in parts), columns, strict=True))

    def samples(
        self, plan_id: str, version: str, benchmarks: Collection[str] | None = None
    ) -> Mapping[str, StoredSamples]:
        """Return the samples of every benchmark, or of those of `benchmarks`, in the order in which they were written.

        Raises:
            StoreError: a file is missing or damaged, other than answers that were deleted.
        """
        if version == NO_SAMPLES:
            return {}
        path = self._path(_SCORES, plan_id, version)
        with reading(path), pq.ParquetFile(path) as file:
            parts = [part for part in _parts(file) if benchmarks is None or part.benchmark in benchmarks]
            scores = file.read(columns=["score", "status", "output_tokens", "answer_ms"], use_threads=False)
        texts = self._answers(plan_id, version)
        with reading(path):
            return {
                part.benchmark: StoredSamples(
                    samples=_samples(self._questions.read_whole(part.questions), (scores, texts), part.rows),
                    has_texts=texts is not None,
                )
                for part in parts
            }

    def tables(self, plan_id: str, version: str, names: Sequence[str]) -> Mapping[str, Any]:
        """Return the columns `names` of the samples of every benchmark as a pyarrow table; deleted answers are null.

        Raises:
            StoreError: a file is missing or damaged, other than answers that were deleted.
        """
        if version == NO_SAMPLES:
            return {}
        path = self._path(_SCORES, plan_id, version)
        asked = [name for name in names if name in OF_QUESTIONS]
        own = [name for name in names if name not in (*OF_QUESTIONS, *_OF_ANSWERS)]
        with reading(path), pq.ParquetFile(path) as file:
            parts, scores = _parts(file), file.read(columns=own, use_threads=False)
        answers = self._answers(plan_id, version) if len(asked) + len(own) < len(names) else None
        found = {}
        for part in parts:
            tables = [(self._questions.table(part.questions, asked), slice(None)), (scores, part.rows)]
            if answers is not None:
                tables.append((answers, part.rows))
            with reading(path):
                found[part.benchmark] = _side_by_side(tables, names, part.rows.stop - part.rows.start)
        return found

    def _path(self, kind: str, plan_id: str, version: str) -> Path:
        return self._folder / plan_id / f"{kind}-{version}.parquet"

    def _of_kind(self, kind: str, plan_id: str) -> list[Path]:
        return list((self._folder / plan_id).glob(f"{kind}-*.parquet"))

    def _others(self, plan_id: str, version: str) -> list[Path]:
        folder = self._folder / plan_id
        own = {self._path(kind, plan_id, version).name for kind in (_SCORES, _ANSWERS)}
        if folder.is_dir():
            return [path for path in folder.iterdir() if path.name not in own]
        return []

    def _answers(self, plan_id: str, version: str) -> pa.Table | None:
        path = self._path(_ANSWERS, plan_id, version)
        if not path.exists():
            return None
        with reading(path), pq.ParquetFile(path) as file:
            return file.read(columns=list(_OF_ANSWERS), use_threads=False)


@dataclass(frozen=True, kw_only=True)
class _Part:
    """The rows of one benchmark in the files of a plan."""

    benchmark: str
    questions: str
    rows: slice


def _parts(file: pq.ParquetFile) -> list[_Part]:
    """Return where each benchmark's rows are; raises KeyError or ValueError if the tracker did not write the file."""
    parts, start = [], 0
    for benchmark, questions, count in json.loads((file.metadata.metadata or {})[_PARTS_KEY]):
        parts.append(_Part(benchmark=benchmark, questions=questions, rows=slice(start, start + count)))
        start += count
    if start != file.metadata.num_rows:
        raise ValueError(f"{file.metadata.num_rows} rows instead of {start}")
    return parts


def _side_by_side(tables: Sequence[tuple[pa.Table, slice]], names: Sequence[str], length: int) -> pa.Table:
    """Return the columns `names` of several tables as one, null where no table has them."""
    columns = dict.fromkeys(names, pa.nulls(length, pa.string()))
    for table, rows in tables:
        start = rows.start or 0
        columns |= {name: table.column(name).slice(start, length) for name in table.column_names if name in columns}
    return pa.table(columns)


def _place_columns(results: Sequence[EvalResult], asked: Sequence[StoredQuestions]) -> dict[str, Any]:
    counts = [len(result.samples) for result in results]
    positions = [np.arange(count, dtype=np.int32) for count in counts]
    return {
        "benchmark": repeated([r.benchmark for r in results], counts),
        "questions": repeated([a.digest for a in asked], counts),
        "position": pa.array(np.concatenate([np.zeros(0, dtype=np.int32), *positions])),
    }


def _scores_file(
    record: EvalRecord, samples: Sequence[SampleScore], asked: Sequence[StoredQuestions], place: Mapping[str, Any]
) -> bytes:
    checkpoint = record.plan.checkpoint
    columns = {
        "run_id": repeated([checkpoint.run_id], [len(samples)]),
        "step": pa.array(np.full(len(samples), checkpoint.step, dtype=np.int64)),
        **place,
        "score": pa.array(field_of(samples, "score"), pa.float64()),
        "status": text_array(field_of(samples, "status")),
        "output_tokens": pa.array(field_of(samples, "output_tokens"), pa.int64()),
        "answer_ms": pa.array(field_of(samples, "answer_ms"), pa.int64()),
    }
    parts = [(r.benchmark, a.digest, len(r.samples)) for r, a in zip(record.results, asked, strict=True)]
    metadata = {_PARTS_KEY: json.dumps(parts, separators=(",", ":"))}
    # Few distinct values each: correct or wrong takes a bit, the number of tokens a byte or slightly more.
    varied = dict.fromkeys(("position", "answer_ms"), "DELTA_BINARY_PACKED")
    few = [name for name in columns if name not in varied]
    return parquet_bytes(pa.table(columns), few, varied, metadata)


def _answers_file(samples: Sequence[SampleScore], place: Mapping[str, Any]) -> bytes:
    columns = {**place, **{name: text_array(field_of(samples, name)) for name in _OF_ANSWERS}}
    return parquet_bytes(pa.table(columns), ["benchmark", "questions", "detail"], {"position": "DELTA_BINARY_PACKED"})


def _samples(asked: Mapping[str, list[Any]], tables: Sequence[pa.Table | None], rows: slice) -> tuple[SampleScore, ...]:
    columns = dict(asked)
    for table in tables:
        if table is not None:
            part = table.slice(rows.start, rows.stop - rows.start)
            columns |= {name: part.column(name).to_pylist() for name in part.column_names}
    columns["status"] = [STATUS_OF_TEXT[text] for text in columns["status"]]
    return tuple(SampleScore(**dict(zip(columns, row, strict=True))) for row in zip(*columns.values(), strict=True))
