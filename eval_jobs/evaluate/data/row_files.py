"""Reading rows from JSONL, JSON and CSV files; errors name the file and line of a broken row."""

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from eval_jobs.errors import BadData

CSV_FIELD_CHARS = 10_000_000


@dataclass(frozen=True, kw_only=True)
class NumberedRow:
    """One row and its position in the file."""

    line: int
    """Counted from 1; in a JSON document the position in its list."""
    row: Mapping[str, object]


def read_rows(path: Path, *, header: Sequence[str] = ()) -> Iterator[NumberedRow]:
    """Yield the rows of a .jsonl, .json or .csv file; `header` names the columns of a CSV file without a header line.

    A JSON document is a list of objects, or an object with such a list under `examples` or `data`.

    Raises:
        BadData: the file cannot be read or a row is broken; names file and line.
    """
    try:
        match path.suffix.lower():
            case ".json":
                yield from _json_rows(path)
            case ".csv":
                yield from _csv_rows(path, header)
            case _:
                yield from _jsonl_rows(path)
    except OSError as error:
        raise BadData(f"cannot read {path}: {error.strerror}", hint="check the path and its permissions") from error
    except UnicodeDecodeError as error:
        raise BadData(f"{path} is not UTF-8 text: {error.reason}", hint="save the file as UTF-8") from error


def bad_row(path: Path, line: int, why: str) -> BadData:
    """Return the error for one broken row."""
    what = "row" if path.suffix.lower() == ".json" else "line"
    return BadData(f"{path}, {what} {line}: {why}", hint=f"fix or remove that {what}", path=str(path), line=line)


def _jsonl_rows(path: Path) -> Iterator[NumberedRow]:
    with path.open("rb") as file:
        for line, raw in enumerate(file, start=1):
            text = _decoded(path, line, raw)
            if text:
                yield NumberedRow(line=line, row=_object(path, line, text))


def _decoded(path: Path, line: int, raw: bytes) -> str:
    try:
        return raw.decode("utf-8-sig" if line == 1 else "utf-8").strip()
    except UnicodeDecodeError as error:
        raise BadData(f"{path}, line {line}: not UTF-8 text", hint="save the file as UTF-8") from error


def _object(path: Path, line: int, text: str) -> Mapping[str, object]:
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        if line == 1 and text.startswith("["):
            what = f"{path}, line {line}: a JSON list; JSONL needs one object per line"
            raise BadData(what, hint="rename the file to .json, which may contain a list") from error
        raise bad_row(path, line, f"invalid JSON ({error.msg} at column {error.colno})") from error
    except RecursionError as error:
        raise bad_row(path, line, "nested too deeply") from error
    if not isinstance(value, dict):
        raise bad_row(path, line, f"expected a JSON object, got {text:.60}")
    return value


def _json_rows(path: Path) -> Iterator[NumberedRow]:
    try:
        document = json.loads(path.read_text(encoding="utf-8-sig"))
    except json.JSONDecodeError as error:
        raise BadData(f"{path}, line {error.lineno}: invalid JSON ({error.msg})", hint="fix that line") from error
    if isinstance(document, dict):
        document = document.get("examples", document.get("data"))
    if not isinstance(document, list):
        raise BadData(f"no list of rows in {path}", hint="use a list of objects, alone or under `examples` or `data`")
    for number, row in enumerate(document, start=1):
        if not isinstance(row, dict):
            raise bad_row(path, number, "expected a JSON object")
        yield NumberedRow(line=number, row=row)


def _csv_rows(path: Path, header: Sequence[str]) -> Iterator[NumberedRow]:
    csv.field_size_limit(CSV_FIELD_CHARS)
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(file, fieldnames=list(header) or None, strict=True)
        try:
            for row in reader:
                if None in row or None in row.values():
                    raise bad_row(path, reader.line_num, f"expected {len(reader.fieldnames or ())} columns")
                yield NumberedRow(line=reader.line_num, row=row)
        except csv.Error as error:
            raise bad_row(path, reader.line_num, f"invalid CSV ({error})") from error
