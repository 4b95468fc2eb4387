"""`tracker export`: results as CSV, Parquet or JSON."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import click

from eval_jobs.errors import ConfigError
from eval_jobs.host.storage import written
from tracker.api.formats.files import Format, schema_text, write_batches
from tracker.api.place import found_place, opened_place
from tracker.api.reading import ChosenRuns
from tracker.cli.options import asked_as
from tracker.config import DEFAULT_NAME
from tracker.domain.tables.catalog import SAMPLES, TABLES

if TYPE_CHECKING:
    from tracker.domain.tables.columns import TableDefinition

STDOUT = "-"
FOLDER = "tracker-export"
_HINT = "pass another --output"


@dataclass(frozen=True, kw_only=True)
class _Asked:
    tables: tuple[str, ...]
    place: str
    runs: tuple[str, ...]
    kind: str | None
    output: str | None
    texts: bool


@click.command("export")
@click.argument("tables", nargs=-1, type=click.Choice(list(TABLES)), metavar="[TABLE...]")
@click.option(
    "--config",
    "place",
    default=DEFAULT_NAME,
    show_default=True,
    help="Project configuration, state folder or database URL.",
)
@click.option("--run", "runs", multiple=True, help="Run, by name or pattern (repeatable). [default: all]")
@click.option(
    "--format",
    "kind",
    type=click.Choice([str(kind) for kind in Format]),
    help="Format. [default: by the name of --output, or csv]",
)
@click.option("--output", help=f"File of one table, or - for stdout; folder of several. [default: -, or {FOLDER}]")
@click.option("--texts", is_flag=True, help="Also prompt, target, answer and detail of each sample.")
@asked_as(_Asked)
def command(asked: _Asked) -> None:
    """Write results as CSV, Parquet or JSON: the tables of the Python API.

    Without TABLE, all tables are written into a folder, with their columns, types and units in schema.json.
    """
    opened = opened_place(found_place(asked.place, samples=None, password_file=None))
    runs = ChosenRuns(opened=opened)
    if asked.runs:
        runs = runs.narrowed(asked.runs)
    if len(asked.tables) == 1:
        _one(runs, asked, asked.tables[0])
    else:
        _several(runs, asked)


def _one(runs: ChosenRuns, asked: _Asked, name: str) -> None:
    output = asked.output or STDOUT
    kind = Format(asked.kind or _kind_of(output))
    if output == STDOUT and kind is Format.PARQUET and sys.stdout.isatty():
        raise ConfigError("Parquet is not for a terminal", hint="pass a file to --output")
    with _opened(output) as file, _notes():
        _write(runs, name, kind, file, texts=asked.texts)


def _kind_of(output: str) -> str:
    """Return the format that the name of a file asks for."""
    suffix = Path(output).suffix.removeprefix(".").lower()
    if output == STDOUT or not suffix:
        return Format.CSV
    if suffix not in tuple(Format):
        raise ConfigError(
            f"unknown format .{suffix}", hint=f"pass --format, or a name that ends in .{', .'.join(Format)}"
        )
    return suffix


def _several(runs: ChosenRuns, asked: _Asked) -> None:
    if asked.output == STDOUT:
        raise ConfigError(
            "several tables cannot be written to stdout", hint="name one TABLE, or pass a folder to --output"
        )
    folder, kind = Path(asked.output or FOLDER), Format(asked.kind or Format.CSV)
    if folder.suffix.removeprefix(".") in tuple(Format):
        raise ConfigError(f"{folder} is the name of one file", hint="name one TABLE, or pass a folder to --output")
    definitions = []
    for name in asked.tables or TABLES:
        path = folder / f"{name}.{kind}"
        try:
            with written(path, hint=_HINT, makes_folder=True) as file, _notes():
                definition, rows = _write(runs, name, kind, file, texts=asked.texts)
        except ConfigError as error:
            if asked.tables:
                raise
            click.echo(f"left out {name}: {error.message}", err=True)
            continue
        definitions.append(definition)
        click.echo(f"{path}: {rows:,} rows")
    with written(folder / "schema.json", hint=_HINT, makes_folder=True) as file:
        file.write(schema_text(definitions).encode())


def _write(runs: ChosenRuns, name: str, kind: Format, file: BinaryIO, *, texts: bool) -> tuple[TableDefinition, int]:
    """Write a table, and return its definition and the number of rows."""
    from tracker.api.formats.arrow import arrow_schema, batch_of
    from tracker.api.samples import samples_of
    from tracker.api.tables import WHOLE_TABLES, sample_source

    if name == SAMPLES.name:
        samples = samples_of(*sample_source(runs), status=None, texts=texts)
        columns, reader = [c for c in SAMPLES.columns if c.name in samples.columns], samples.reader()
        return replace(SAMPLES, columns=tuple(columns)), write_batches(reader, reader.schema, kind, file)
    table, rows = WHOLE_TABLES[name](runs)
    return table, write_batches([batch_of(table, rows)], arrow_schema(table.columns), kind, file)


@contextmanager
def _opened(output: str) -> Iterator[BinaryIO]:
    if output == STDOUT:
        yield sys.stdout.buffer
        return
    with written(Path(output), hint=_HINT, makes_folder=True) as file:
        yield file


@contextmanager
def _notes() -> Iterator[None]:
    """Print warnings as notes."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always", UserWarning)
        yield
    for one in found:
        click.echo(f"note: {one.message}", err=True)
