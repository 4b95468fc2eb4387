"""Samples as one table with all texts, one Parquet file for each benchmark, for MLflow."""

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from eval_jobs.types import SampleScore
from tracker.adapters.samples.files_parquet import field_of, parquet_bytes, text_array, write_whole

_NUMBERS = {"repeat": pa.int32(), "score": pa.float64(), "output_tokens": pa.int64(), "answer_ms": pa.int64()}
_FIELDS = (
    "sample_id",
    "subset",
    "repeat",
    "score",
    "status",
    "cluster_id",
    "output_tokens",
    "answer_ms",
    "detail",
    "prompt",
    "target",
    "answer",
)


def write_samples(path: Path, samples: Sequence[SampleScore]) -> None:
    """Write samples, replacing an existing file; a crash leaves the old file or the new one.

    Raises:
        DiskFull: no space is left.
        StoreError: the file cannot be written.
    """
    values = {name: field_of(samples, name) for name in _FIELDS}
    columns = {
        name: pa.array(column, _NUMBERS[name]) if name in _NUMBERS else text_array(column)
        for name, column in values.items()
    }
    write_whole(path.parent, {path.name: parquet_bytes(pa.table(columns), _FIELDS)})
