"""The samples of evaluations, read when they are asked for and never all at once."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal

from eval_jobs.errors import ConfigError, StoreError
from eval_jobs.types import SampleStatus
from tracker.api.steps import known_names_hint
from tracker.domain.tables.catalog import SAMPLES
from tracker.domain.tables.columns import Column, Rows

if TYPE_CHECKING:
    from pandas import DataFrame

    from tracker.adapters.history.tables_sql import ResultTables
    from tracker.adapters.samples.packed_parquet import SampleFiles

Errors = Literal["raise", "skip"]

_OF_PLAN = ("run", "step", "suite", "benchmark", "plan_id")
_TEXTS = ("prompt", "target", "answer", "detail")


@dataclass(frozen=True, kw_only=True)
class SamplesOf:
    """One evaluation, and those of its benchmarks that count."""

    run: str
    step: int
    suite: str
    plan_id: str
    benchmarks: tuple[str, ...]

    def values_for(self, benchmark: str) -> dict[str, str | int]:
        """Return what is the same in each row of a benchmark, by column."""
        return {
            "run": self.run,
            "step": self.step,
            "suite": self.suite,
            "benchmark": benchmark,
            "plan_id": self.plan_id,
        }


class SampleReader:
    """Reads the samples of evaluations, in the version that counts."""

    def __init__(self, tables: Callable[[], ResultTables], files: SampleFiles, errors: Errors) -> None:
        """Take the files, and what returns the database, or refuses it to a fork of the process.

        Raises:
            ConfigError: `errors` is something else.
        """
        if errors not in ("raise", "skip"):
            raise ConfigError(f"errors={errors!r} is unknown", hint='pass "raise" or "skip"')
        self._tables, self._files, self._errors = tables, files, errors
        self.skipped: dict[str, None] = {}
        """What could not be read and was left out."""

    def read(
        self, evaluations: Sequence[SamplesOf], names: Sequence[str]
    ) -> Iterator[tuple[SamplesOf, Mapping[str, Any]]]:
        """Yield the columns `names` of each evaluation, as pyarrow tables by benchmark.

        Raises:
            StoreError: a file is missing or damaged, unless errors are skipped.
        """
        versions = self._tables().sample_versions([one.plan_id for one in evaluations])
        for one in evaluations:
            yield one, self._read(one.plan_id, versions.get(one.plan_id, ""), names)

    def _read(self, plan_id: str, version: str, names: Sequence[str]) -> Mapping[str, Any]:
        while True:
            try:
                return self._files.tables(plan_id, version, names)
            except StoreError as error:
                newer = self._tables().sample_versions([plan_id]).get(plan_id, "")
                if newer != version:
                    version = newer  # replaced while its files were read
                    continue
                if self._errors == "raise":
                    raise
                self.skipped[error.message] = None
                return {}


class Samples:
    """Samples that are not read yet: one row for each planned answer."""

    def __init__(
        self, columns: tuple[str, ...], evaluations: tuple[SamplesOf, ...], reader: SampleReader, status: str | None
    ) -> None:
        """Take what is asked for; `status`: only these, None: all."""
        self.columns = columns
        self._evaluations, self._reader, self._status = evaluations, reader, status

    def __repr__(self) -> str:
        """Return the columns and the number of evaluations; nothing is read."""
        return f"Samples({len(self._evaluations)} evaluations: {', '.join(self.columns)})"

    def __len__(self) -> int:
        """Return the number of samples, which reads their statuses."""
        return sum(batch.num_rows for batch in self._batches(("status",)))

    @property
    def skipped(self) -> tuple[str, ...]:
        """What could not be read so far and was left out."""
        return tuple(self._reader.skipped)

    def to_pandas(self, columns: Sequence[str] | None = None) -> DataFrame:
        """Return the samples as a DataFrame.

        Raises:
            ConfigError: there is no such column.
            StoreError: a file is missing or damaged, unless errors are skipped.
        """
        from tracker.api.formats.frames import frame_of_batches

        chosen = self._chosen(columns)
        return frame_of_batches(chosen, self._batches([column.name for column in chosen]))

    def reader(self, columns: Sequence[str] | None = None, rows: int = 65_536) -> Any:  # noqa: ANN401 - pyarrow has no types
        """Return a pyarrow.RecordBatchReader, which reads one evaluation at a time.

        Args:
            columns: which ones; None: all.
            rows: largest number of rows of a batch.

        Raises:
            ConfigError: there is no such column, or `rows` is not positive.
        """
        import pyarrow as pa

        from tracker.api.formats.arrow import arrow_schema

        if rows < 1:
            raise ConfigError(f"rows={rows} is not positive", hint="pass the largest number of rows of a batch")
        chosen = self._chosen(columns)
        names = [column.name for column in chosen]
        batches = (part for batch in self._batches(names) for part in _cut(batch, rows))
        return pa.RecordBatchReader.from_batches(arrow_schema(chosen), batches)

    def _chosen(self, names: Sequence[str] | None) -> list[Column]:
        if names is None:
            names = self.columns
        if isinstance(names, str) or not names:
            raise ConfigError(f"columns={names!r} is not a list of columns", hint="pass their names, or None for all")
        by_name = {column.name: column for column in SAMPLES.columns}
        for name in names:
            if name not in self.columns:
                hint = known_names_hint("columns", self.columns, name)
                if name in by_name:
                    hint = "pass texts=True to Project.samples"
                raise ConfigError(f"no column {name!r} in these samples", hint=hint)
        return [by_name[name] for name in names]

    def _batches(self, names: Sequence[str]) -> Iterator[Any]:
        """Yield the samples of each benchmark of each evaluation as a record batch."""
        from tracker.api.formats.arrow import arrow_batch

        stored = [name for name in dict.fromkeys((*names, "status")) if name not in _OF_PLAN]
        deleted = 0
        for one, tables in self._reader.read(self._evaluations, stored):
            for benchmark in sorted(tables.keys() & set(one.benchmarks)):
                table = tables[benchmark]
                if self._status is not None:
                    table = _with_status(table, self._status)
                deleted += table.column("answer").null_count if "answer" in names else 0
                yield arrow_batch(names, table, one.values_for(benchmark))
        if deleted:
            what = f"the answers of {deleted:,} samples were deleted to save space ([keep] in tracker.toml)"
            warnings.warn(what, stacklevel=2)


def samples_of(scores: Rows, reader: SampleReader, *, status: str | None, texts: bool) -> Samples:
    """Return the samples behind the rows of the table `scores`.

    Raises:
        ConfigError: there is no such status.
    """
    if status is not None and status not in tuple(SampleStatus):
        raise ConfigError(f"no status {status!r}", hint=known_names_hint("statuses", SampleStatus, status))
    columns = tuple(name for name in SAMPLES.names if texts or name not in _TEXTS)
    return Samples(columns, tuple(_evaluations(scores)), reader, status)


def _evaluations(scores: Rows) -> Iterator[SamplesOf]:
    names = ("run", "step", "suite", "plan_id", "benchmark", "failure")
    rows: Iterable[Any] = zip(*(scores[name] for name in names), strict=True)
    for (run, step, suite, plan_id), same in groupby(rows, key=lambda row: row[:4]):
        benchmarks = tuple(row[4] for row in same if not row[5])
        yield SamplesOf(run=run, step=step, suite=suite, plan_id=plan_id, benchmarks=benchmarks)


def _with_status(table: Any, status: str) -> Any:  # noqa: ANN401 - pyarrow has no types
    import pyarrow.compute as pc

    return table.filter(pc.equal(table.column("status"), status))


def _cut(batch: Any, rows: int) -> Collection[Any]:  # noqa: ANN401 - pyarrow has no types
    return [batch.slice(start, rows) for start in range(0, batch.num_rows, rows)]
