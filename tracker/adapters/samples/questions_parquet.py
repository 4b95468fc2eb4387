"""The questions of benchmarks: one file for each list, shared by all checkpoints evaluated on it.

    samples/questions/<digest of its content>.parquet

A file never changes, and the program never deletes one: any plan of any run may use it.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from eval_jobs.errors import StoreError
from eval_jobs.identity import DIGEST_CHARS
from eval_jobs.types import SampleScore
from tracker.adapters.samples import files_parquet
from tracker.domain.scores.sample_columns import Questions, object_array

FOLDER = "questions"

_TEXTS = ("sample_id", "subset", "cluster_id", "prompt", "target")
_READ = ("sample_id", "subset", "cluster_id")
COLUMNS = ("sample_id", "subset", "repeat", "cluster_id", "prompt", "target")
_MAX_TABLES = 64
"""In memory: the benchmarks of one suite, and not all there ever were."""


@dataclass(frozen=True, kw_only=True)
class StoredQuestions:
    """A list of questions in its stored form."""

    digest: str
    columns: Mapping[str, pa.Array]
    """Arrow arrays, by name."""


def asked_of(samples: Sequence[SampleScore]) -> StoredQuestions:
    """Return the questions of `samples`, in their order."""
    columns = {name: files_parquet.text_array(files_parquet.field_of(samples, name)) for name in _TEXTS}
    columns["repeat"] = pa.array(files_parquet.field_of(samples, "repeat"), pa.int32())
    return StoredQuestions(digest=_digest(columns), columns=columns)


class QuestionFiles:
    """The questions below `folder`. Any number of processes may write and read concurrently."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / FOLDER
        self._whole: set[str] = set()
        """Digests whose file this process found complete."""
        self._read: dict[str, Questions] = {}
        self._tables: dict[tuple[str, tuple[str, ...]], Any] = {}
        """The newest lists that were read as tables."""

    def path(self, digest: str) -> Path:
        """Return the path of a list of questions."""
        return self._folder / f"{digest}.parquet"

    def keep(self, asked: StoredQuestions) -> None:
        """Write a list of questions unless it exists.

        Raises:
            DiskFull, StoreError: it cannot be written.
        """
        path = self.path(asked.digest)
        if asked.digest not in self._whole or not path.exists():
            if not _is_whole(path):  # concurrent processes write the same bytes
                files_parquet.write_whole(path.parent, {path.name: _file_of(asked)})
            self._whole.add(asked.digest)

    def read(self, digest: str) -> Questions:
        """Return a list of questions without its texts; the same object every time.

        Raises:
            StoreError: it is missing or damaged.
        """
        if digest not in self._read:
            with files_parquet.reading(self.path(digest)), pq.ParquetFile(self.path(digest)) as file:
                table = file.read(columns=list(_READ), use_threads=False)
                self._read[digest] = Questions(
                    sample_ids=object_array(table.column("sample_id").to_pylist()),
                    subsets=files_parquet.shared_texts(table.column("subset")),  # few distinct texts for many samples
                    cluster_ids=files_parquet.shared_texts(table.column("cluster_id")),
                )
        return self._read[digest]

    def read_whole(self, digest: str) -> Mapping[str, list[Any]]:
        """Return a list of questions with its texts, one list for each field of `SampleScore` about a question.

        Raises:
            StoreError: it is missing or damaged.
        """
        with files_parquet.reading(self.path(digest)), pq.ParquetFile(self.path(digest)) as file:
            table = file.read(columns=list(COLUMNS), use_threads=False)
            return {name: table.column(name).to_pylist() for name in COLUMNS}

    def table(self, digest: str, names: Sequence[str]) -> Any:  # noqa: ANN401 - pyarrow has no types
        """Return some columns of a list of questions as a pyarrow table, as large texts; the same memory every time.

        Raises:
            StoreError: it is missing or damaged.
        """
        key = digest, tuple(names)
        if key not in self._tables:
            path = self.path(digest)
            with files_parquet.reading(path), pq.ParquetFile(path) as file:
                found = file.read(columns=list(names), use_threads=False)
            while len(self._tables) >= _MAX_TABLES:
                self._tables.pop(next(iter(self._tables)))
            self._tables[key] = found.cast(_with_large_texts(found.schema))
        return self._tables[key]


def _with_large_texts(schema: Any) -> Any:  # noqa: ANN401 - pyarrow has no types
    return pa.schema([(f.name, pa.large_string() if pa.types.is_string(f.type) else f.type) for f in schema])


def _digest(columns: Mapping[str, Any]) -> str:
    """Return a hash of texts and numbers as stored in memory: lengths first, so that no two lists share one."""
    found = hashlib.sha256()
    for name in sorted(columns):
        array = columns[name]
        n = len(array)
        found.update(f"{name} {array.type} {n}\n".encode())
        if pa.types.is_string(array.type):
            _, offsets, data = array.buffers()
            ends = np.frombuffer(offsets, dtype="<i4")[: n + 1]
            found.update(ends.tobytes())
            found.update(memoryview(data)[: int(ends[-1])] if data is not None and n else b"")
        else:
            found.update(np.frombuffer(array.buffers()[1], dtype="<i4")[:n].tobytes())
    return found.hexdigest()[:DIGEST_CHARS]


def _file_of(asked: StoredQuestions) -> bytes:
    n = len(asked.columns["repeat"])
    columns = {
        "questions": files_parquet.repeated([asked.digest], [n]),
        "position": pa.array(np.arange(n, dtype=np.int32)),
        **{name: asked.columns[name] for name in COLUMNS},
    }
    few = ("questions", "subset", "repeat", "cluster_id", "target")
    return files_parquet.parquet_bytes(pa.table(columns), few, {"position": "DELTA_BINARY_PACKED"})


def _is_whole(path: Path) -> bool:
    """Return whether the file exists and its end, which is written last, can be read."""
    try:
        with files_parquet.reading(path):
            pq.read_metadata(path)
    except StoreError:
        return False
    return True
