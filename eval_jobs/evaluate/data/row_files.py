"""Reading rows from JSONL, JSON and CSV files; errors name the file and line of a broken row."""

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, AnyStr

from eval_jobs import limits
from eval_jobs.errors import BadData
from eval_jobs.host.bounded.files import open_regular, read_bytes
from eval_jobs.host.bounded.json_text import TooLarge, parse_json

NumberedRow = tuple[int, Mapping[str, object]]
"""The line of a row, counted from 1 (in a JSON document, the position in its list), and the row."""


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
    except ValueError as error:
        raise BadData(f"{path}: {error}", hint="divide it into several benchmarks, or write JSON as JSONL") from error


def row_name(path: Path) -> str:
    """Return what a row of a file is called, as its `NumberedRow` counts it."""
    return "row" if path.suffix.lower() == ".json" else "line"


def bad_row(path: Path, line: int, why: str) -> BadData:
    """Return the error for one broken row."""
    what = row_name(path)
    return BadData(f"{path}, {what} {line}: {why}", hint=f"fix or remove that {what}")


def _jsonl_rows(path: Path) -> Iterator[NumberedRow]:
    with open_regular(path) as file:
        for line, raw in enumerate(_lines(path, file), start=1):
            text = _decoded(path, line, raw)
            if text:
                yield line, _object(path, line, text)


def _lines(path: Path, file: IO[AnyStr]) -> Iterator[AnyStr]:
    line = 0
    while text := file.readline(limits.ROW.most + 1):
        line += 1
        if len(text) > limits.ROW.most:
            raise bad_row(path, line, str(TooLarge(limits.ROW)))
        yield text


def _decoded(path: Path, line: int, raw: bytes) -> str:
    try:
        return raw.decode("utf-8-sig" if line == 1 else "utf-8").strip()
    except UnicodeDecodeError as error:
        raise BadData(f"{path}, line {line}: not UTF-8 text", hint="save the file as UTF-8") from error


def _object(path: Path, line: int, text: str) -> Mapping[str, object]:
    try:
        value = parse_json(text)
    except json.JSONDecodeError as error:
        if line == 1 and text.startswith("["):
            what = f"{path}, line {line}: a JSON list; JSONL needs one object per line"
            raise BadData(what, hint="rename the file to .json, which may contain a list") from error
        raise bad_row(path, line, f"invalid JSON ({error.msg} at column {error.colno})") from error
    except ValueError as error:
        raise bad_row(path, line, str(error)) from error
    if not isinstance(value, dict):
        raise bad_row(path, line, f"expected a JSON object, got {text:.60}")
    return value


def _json_rows(path: Path) -> Iterator[NumberedRow]:
    try:
        document = parse_json(read_bytes(path, limits.ROW_DOCUMENT).decode("utf-8-sig"))
    except json.JSONDecodeError as error:
        raise BadData(f"{path}, line {error.lineno}: invalid JSON ({error.msg})", hint="fix that line") from error
    if isinstance(document, dict):
        document = document.get("examples", document.get("data"))
    if not isinstance(document, list):
        raise BadData(f"no list of rows in {path}", hint="use a list of objects, alone or under `examples` or `data`")
    for number, row in enumerate(document, start=1):
        if not isinstance(row, dict):
            raise bad_row(path, number, "expected a JSON object")
        yield number, row


def _csv_rows(path: Path, header: Sequence[str]) -> Iterator[NumberedRow]:
    csv.field_size_limit(limits.ROW.most)
    with io.TextIOWrapper(open_regular(path), encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(_lines(path, file), fieldnames=list(header) or None, strict=True)
        try:
            columns = list(reader.fieldnames or ())
            if len(set(columns)) < len(columns):
                raise bad_row(path, 1, "two columns have the same name")
            for row in reader:
                if None in row or None in row.values():
                    raise bad_row(path, reader.line_num, f"expected {len(columns)} columns")
                yield reader.line_num, row
        except csv.Error as error:
            raise bad_row(path, reader.line_num, f"invalid CSV ({error})") from error
