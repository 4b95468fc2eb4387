"""Check and digest of a benchmark's local data, before any checkpoint is served.

digest = read_data_digest(path)      # goes into Benchmark.data_digest
check_benchmark(benchmark)           # its errors name file and line
"""

import hashlib
import re
import string
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path, PurePath

from eval_jobs import limits
from eval_jobs.errors import BadData
from eval_jobs.evaluate.data.known_benchmarks import CHOICE, EXACT, OWN_ADAPTERS, check_name, few_shot_of, subsets_of
from eval_jobs.evaluate.data.layouts import DATA_SUFFIXES, LAYOUTS, DatasetSplit, Layout, Row, evaluated
from eval_jobs.evaluate.data.row_files import bad_row, read_rows, row_name
from eval_jobs.evaluate.data.rows import Item, checked_row, choice_item, exact_item, plain
from eval_jobs.host.bounded.files import file_digest, open_regular
from eval_jobs.host.bounded.json_text import TooLarge
from eval_jobs.identity import content_hash
from eval_jobs.types import Benchmark

TEMPLATE_FIELDS = {EXACT: ({"question"}, {"question"}), CHOICE: ({"question", "choices"}, {"letters"})}
"""Fields that a prompt template must have, and those that it may also have."""


def read_data_digest(path: str | Path) -> str:
    """Return the hex SHA-256 of a file's content, or of a folder's relative names and contents; hidden files excluded.

    Raises:
        BadData: the data does not exist or cannot be read.
    """
    path = Path(path)
    try:
        if path.is_file():
            return _file_digest(path)
        total = hashlib.sha256()
        for file in visible_files(path):
            name = file.relative_to(path).as_posix()
            total.update(f"{len(name)}:{name}:{_file_digest(file)};".encode())
    except OSError as error:
        raise BadData(
            f"cannot read {error.filename or path}: {error.strerror}", hint="check its permissions"
        ) from error
    return total.hexdigest()


def check_benchmark(benchmark: Benchmark) -> tuple[str, ...]:
    """Check everything about a benchmark that can be checked without a model.

    Returns: what may be a mistake in its data and is evaluated as it is.

    Raises:
        UnknownBenchmark: no such benchmark.
        BadData: its data, subsets or template are invalid; names the line of a broken row.
        EvaluateError: it executes code that the model wrote.
    """
    check_name(benchmark.adapter)
    if benchmark.adapter in OWN_ADAPTERS:
        _check_own_settings(benchmark)
        return _check_items(benchmark)
    if benchmark.data is None:
        _check_subsets(benchmark, set(subsets_of(benchmark.adapter)))
    else:
        layout = raw_layout(benchmark)
        if layout is not None:
            _check_raw(benchmark, layout)
    return ()


def benchmark_of_folder(folder: Path) -> Benchmark | None:
    """Return the benchmark after which a folder is named, with `few_shot` 0 if it has no data for examples.

    Raises:
        BadData: its files are not those of that benchmark.
    """
    letters = re.sub(r"[\W_]", "", folder.resolve().name.lower())
    adapter = next((name for name in LAYOUTS if name.replace("_", "") == letters), None)
    if adapter is None:
        return None
    found = Benchmark(name=adapter, adapter=adapter, data=str(folder.absolute()))
    with suppress(BadData):
        check_benchmark(found)
        return found
    found = replace(found, few_shot=0)
    check_benchmark(found)
    return found


def read_items(benchmark: Benchmark) -> tuple[Item, ...]:
    """Read the rows of an `exact` or `choice` file.

    Raises:
        BadData: names file and line of the first broken row.
    """
    return tuple(item for _, item in _numbered_items(benchmark))


def _numbered_items(benchmark: Benchmark) -> Iterator[tuple[int, Item]]:
    if benchmark.data is None:
        raise BadData(f"benchmark `{benchmark.name}` has no data", hint="set `data` to the path of a JSONL file")
    path = Path(benchmark.data)
    if path.is_dir():
        raise BadData(f"{path} is a folder", hint="set `data` to the path of a JSONL file")
    read = exact_item if benchmark.adapter == EXACT else choice_item
    line = 0
    for line, row in read_rows(path):
        try:
            yield line, read(row)
        except ValueError as error:
            raise bad_row(path, line, str(error)) from error
    if not line:
        raise BadData(f"no rows in {path}", hint="write one JSON object per line, with a question and an answer")


def _check_items(benchmark: Benchmark) -> tuple[str, ...]:
    """Check that no question has two answers, and that there are the chosen subsets; return what may be a mistake."""
    path = Path(benchmark.data or "")
    first: dict[str, tuple[int, str]] = {}
    asked, subsets, repeated = set(), set(), []
    for line, item in _numbered_items(benchmark):
        subsets.add(item.subset)
        prompt = content_hash([item.subset, plain(item.question), *map(plain, item.choices)])
        if prompt in asked:
            repeated.append(line)
        asked.add(prompt)  # with its choices in another order, a question is another prompt
        question, answer = map(content_hash, item.meaning())
        earlier, known = first.setdefault(question, (line, answer))
        if known != answer:
            raise bad_row(path, line, f"the question of {row_name(path)} {earlier} with another answer")
        if len(asked) > limits.ROWS.most:
            raise bad_row(path, line, str(TooLarge(limits.ROWS)))
    _check_subsets(benchmark, subsets)
    if not repeated:
        return ()
    first_ones = ", ".join(map(str, repeated[:5]))
    rows = "1 row repeats" if len(repeated) == 1 else f"{len(repeated)} rows repeat"
    return (f"{path}: {rows} an earlier one, first in {row_name(path)} {first_ones}",)


def raw_layout(benchmark: Benchmark) -> Layout | None:
    """Return how to read the benchmark's raw folder, or None if it describes itself or has no known layout.

    Raises:
        BadData: the data does not exist.
    """
    folder = Path(benchmark.data or "")
    if not folder.exists():
        raise BadData(f"no data for `{benchmark.name}` at {folder}", hint="check the path in `data`")
    if describes_itself(folder):
        return None
    return LAYOUTS.get(benchmark.adapter)


def describes_itself(folder: Path) -> bool:
    """Return whether the folder has a README with a `configs:` header, as data sets on the hubs have."""
    card = folder / "README.md"
    if not card.is_file():
        return False
    with open_regular(card) as file:
        return b"\nconfigs:" in file.read(limits.CARD.most).split(b"\n---", 1)[0]


def read_parts(benchmark: Benchmark, layout: Layout) -> Iterator[tuple[DatasetSplit, Row]]:
    """Yield the rows of a raw folder with the config and split they belong to, in the order of file names.

    Raises:
        BadData: no rows to evaluate, or a broken row.
    """
    root = Path(benchmark.data or "")
    files = _raw_files(root, layout)
    target = evaluated(layout, files.values())
    to_evaluate = 0
    for file, part in files.items():
        for row in _converted(file, file.relative_to(root) if root.is_dir() else PurePath(file.name), layout):
            to_evaluate += target[part].split == layout.eval_split
            yield target[part], row
    if not to_evaluate:
        raise BadData(f"no data for `{benchmark.adapter}` in {root}", hint=f"expected: {layout.expects}")


def visible_files(folder: Path) -> tuple[Path, ...]:
    """Return all files below a folder, sorted by relative name; hidden files and folders excluded.

    Raises:
        BadData: the folder does not exist or is empty.
    """
    if not folder.exists():
        raise BadData(f"no data at {folder}", hint="check the path in `data`")
    files = [
        file
        for file in folder.rglob("*")
        if not file.is_dir() and not any(p.startswith(".") for p in file.relative_to(folder).parts)
    ]
    unreadable = [file for file in files if not file.is_file()]
    if unreadable:
        raise BadData(f"{unreadable[0]} is a broken link or not a regular file", hint="replace it by the file itself")
    if not files:
        raise BadData(f"the data folder {folder} is empty", hint="check the path in `data`")
    return tuple(sorted(files, key=lambda f: f.relative_to(folder).as_posix()))


def _file_digest(path: Path) -> str:
    try:
        return file_digest(path, limits.DATA_FILE)
    except TooLarge as error:
        raise BadData(f"{path} {error}", hint="divide it into several benchmarks") from error


def _check_own_settings(benchmark: Benchmark) -> None:
    if benchmark.few_shot:
        raise BadData(
            f"`{benchmark.name}`: `{benchmark.adapter}` does not support few_shot",
            hint="remove few_shot and write the examples into the questions or the prompt_template",
        )
    if benchmark.prompt_template is None:
        return
    needed, allowed = TEMPLATE_FIELDS[benchmark.adapter]
    try:
        fields = {name for _, name, _, _ in string.Formatter().parse(benchmark.prompt_template) if name is not None}
    except ValueError as error:
        raise _bad_template(benchmark, f"is malformed ({error})") from error
    if not needed <= fields <= needed | allowed:
        raise _bad_template(benchmark, f"has the fields {sorted(fields)}")


def _bad_template(benchmark: Benchmark, what: str) -> BadData:
    needed = " and ".join(f"{{{name}}}" for name in sorted(TEMPLATE_FIELDS[benchmark.adapter][0]))
    return BadData(
        f"the prompt_template of `{benchmark.name}` {what}",
        hint=f"include {needed}; write other braces as {{{{ and }}}}",
    )


def _check_subsets(benchmark: Benchmark, known: set[str]) -> None:
    unknown = [subset for subset in benchmark.subsets if subset not in known]
    if unknown and known:
        raise BadData(
            f"benchmark `{benchmark.name}` has no subset {', '.join(f'`{s}`' for s in unknown)}",
            hint=f"choose from: {', '.join(sorted(known))}",
        )


def _check_raw(benchmark: Benchmark, layout: Layout) -> None:
    parts = {part for part, _ in read_parts(benchmark, layout)}
    if layout.configs_are_subsets:
        _check_subsets(benchmark, {part.config for part in parts if part.split == layout.eval_split})
    by_default, split = few_shot_of(benchmark.adapter)
    wanted = by_default if benchmark.few_shot is None else benchmark.few_shot
    if wanted and split and split not in {part.split for part in parts}:
        raise BadData(
            f"`{benchmark.name}` needs {wanted} few-shot examples, but {benchmark.data} has no `{split}` split",
            hint=f"add it, or set few_shot = 0; expected: {layout.expects}",
        )


def _raw_files(root: Path, layout: Layout) -> Mapping[Path, DatasetSplit]:
    files = (root,) if root.is_file() else visible_files(root)
    found = {}
    for file in files:
        part = layout.part(file.relative_to(root) if root.is_dir() else PurePath(file.name))
        if part is not None and file.suffix.lower() in DATA_SUFFIXES:
            found[file] = part
    return found


def _converted(file: Path, relative: PurePath, layout: Layout) -> Iterator[Row]:
    for line, row in read_rows(file, header=_header(file, layout)):
        try:
            yield checked_row(layout.convert(row, relative))
        except KeyError as error:
            raise bad_row(file, line, f"missing key `{error.args[0]}`; expected {layout.expects}") from error
        except (ValueError, TypeError, IndexError, AttributeError) as error:
            raise bad_row(file, line, f"{error}; expected {layout.expects}") from error


def _header(file: Path, layout: Layout) -> tuple[str, ...]:
    """Return the column names for a CSV file without a header line; () if it has one."""
    if file.suffix.lower() != ".csv" or not layout.header:
        return ()
    with open_regular(file) as content:
        first = content.readline(limits.ROW.most).lower()
    if b"question" in first and b"answer" in first:
        return ()
    return layout.header
