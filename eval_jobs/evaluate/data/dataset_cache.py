"""Copies of benchmark data, named by content: EvalScope deletes files in the folder that it is given.

A copy is made once per content and never changed; later edits of the user's data do not affect it. Its folder is named
by the content, because `datasets` caches by a folder's name and config: of two folders called `gsm8k` with equal
headers and different files, the second would silently get the rows of the first.
"""

import errno
import json
import shutil
import tempfile
from collections.abc import Collection, Iterable
from dataclasses import asdict
from pathlib import Path

from eval_jobs.errors import BadData
from eval_jobs.evaluate.data.files import raw_layout, read_data_digest, read_items, read_parts, visible_files
from eval_jobs.evaluate.data.known_benchmarks import OWN_ADAPTERS
from eval_jobs.evaluate.data.layouts import CachedDataset, DatasetSplit, Row, readme, split_file_name
from eval_jobs.host.storage import mapped_storage_errors
from eval_jobs.types import Benchmark

CACHE_VERSION = 1
"""Increased whenever the format of the copies changes."""
MANIFEST = "mirror.json"
"""Kept for compatibility with existing copies."""
OWN_SPLIT = "test"


def open_cached_dataset(benchmark: Benchmark, folder: Path) -> CachedDataset | None:
    """Return the copy of the benchmark's data below `folder`, made if missing; None for a benchmark without data.

    Raises:
        BadData: the data cannot be read, or no longer matches `benchmark.data_digest`.
        DiskFull, StoreError: the copy cannot be written.
    """
    if benchmark.data is None:
        return None
    digest = benchmark.data_digest or read_data_digest(benchmark.data)
    final = folder / f"{benchmark.adapter}-{digest[:32]}-v{CACHE_VERSION}"
    if not (final / MANIFEST).is_file():
        _check_unchanged(benchmark, digest)
        _write(benchmark, final)
    manifest = json.loads((final / MANIFEST).read_text(encoding="utf-8"))
    return CachedDataset(folder=final / final.name, subsets=tuple(manifest["subsets"]))


def _check_unchanged(benchmark: Benchmark, digest: str) -> None:
    if read_data_digest(benchmark.data or "") != digest:
        raise BadData(
            f"the data of `{benchmark.name}` changed since startup: {benchmark.data}",
            hint="restart the tracker to keep new results separate from the old ones",
        )


def _write(benchmark: Benchmark, final: Path) -> None:
    with mapped_storage_errors(final.parent):
        final.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=final.parent, prefix=".new-") as temporary:
            made = Path(temporary) / "copy"
            data = made / final.name
            data.mkdir(parents=True)
            subsets = _fill(benchmark, data)
            (made / MANIFEST).write_text(json.dumps({"subsets": subsets}), encoding="utf-8")
            _publish(made, final)


def _publish(made: Path, final: Path) -> None:
    """Move the copy to its final place, unless another worker has already put the same content there."""
    try:
        made.rename(final)
    except OSError as error:
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
            raise


def _fill(benchmark: Benchmark, folder: Path) -> tuple[str, ...]:
    if benchmark.adapter in OWN_ADAPTERS:
        items = read_items(benchmark)
        parts = _write_rows(((DatasetSplit(config=i.subset, split=OWN_SPLIT), asdict(i)) for i in items), folder)
        return tuple(sorted(part.config for part in parts))
    layout = raw_layout(benchmark)
    if layout is not None:
        parts = _write_rows(read_parts(benchmark, layout), folder)
        (folder / "README.md").write_text(readme(parts), encoding="utf-8")
        if layout.configs_are_subsets:
            return tuple(sorted({part.config for part in parts if part.split == layout.eval_split}))
        return ()
    _copy(Path(benchmark.data or ""), folder)
    return ()


def _write_rows(rows: Iterable[tuple[DatasetSplit, Row]], folder: Path) -> Collection[DatasetSplit]:
    by_part: dict[DatasetSplit, list[Row]] = {}
    for part, row in rows:
        by_part.setdefault(part, []).append(row)
    for part, of_part in by_part.items():
        with (folder / split_file_name(part)).open("w", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in of_part)
    return by_part.keys()


def _copy(source: Path, folder: Path) -> None:
    if source.is_file():
        shutil.copy2(source, folder / source.name)
        return
    for file in visible_files(source):
        target = folder / file.relative_to(source)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(file, target)
