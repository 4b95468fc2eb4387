"""Copies of benchmark data, named by content: EvalScope deletes files in the folder that it is given.

A copy is made once per content and never changed; later edits of the user's data do not affect it. Its folder is named
by the content, because `datasets` caches by a folder's name and config: of two folders called `gsm8k` with equal
headers and different files, the second would silently get the rows of the first.
"""

import errno
import json
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path

from eval_jobs.errors import BadData
from eval_jobs.evaluate.data.files import raw_layout, read_data_digest, read_items, read_parts, visible_files
from eval_jobs.evaluate.data.known_benchmarks import OWN_ADAPTERS
from eval_jobs.evaluate.data.layouts import CachedDataset, DatasetSplit, Layout, readme, split_file_name
from eval_jobs.evaluate.data.rows import Item
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
        return _write_items(read_items(benchmark), folder)
    layout = raw_layout(benchmark)
    if layout is not None:
        return _write_parts(benchmark, layout, folder)
    _copy(Path(benchmark.data or ""), folder)
    return ()


def _write_items(items: Iterable[Item], folder: Path) -> tuple[str, ...]:
    by_subset: dict[str, list[Mapping[str, object]]] = {}
    for item in items:
        by_subset.setdefault(item.subset, []).append(asdict(item))
    for subset, rows in by_subset.items():
        _write_jsonl(folder / split_file_name(DatasetSplit(config=subset, split=OWN_SPLIT)), rows)
    return tuple(sorted(by_subset))


def _write_parts(benchmark: Benchmark, layout: Layout, folder: Path) -> tuple[str, ...]:
    by_part: dict[DatasetSplit, list[Mapping[str, object]]] = {}
    for part, row in read_parts(benchmark, layout):
        by_part.setdefault(part, []).append(row)
    for part, rows in by_part.items():
        _write_jsonl(folder / split_file_name(part), rows)
    (folder / "README.md").write_text(readme(by_part), encoding="utf-8")
    found = sorted({part.config for part in by_part if part.split == layout.eval_split})
    if layout.configs_are_subsets:
        return tuple(found)
    return ()


def _write_jsonl(path: Path, rows: Iterable[Mapping[str, object]]) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


def _copy(source: Path, folder: Path) -> None:
    if source.is_file():
        shutil.copy2(source, folder / source.name)
        return
    for file in visible_files(source):
        target = folder / file.relative_to(source)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(file, target)
