"""One measure of one benchmark along a run: checkpoints x samples as bytes. Pure.

Products are computed only of the rows in use, some dozens in a run of any length: those of all pairs would take
gigabytes after some thousand checkpoints.

Values must be oriented so that higher is better. A matrix is immutable; adding a checkpoint returns another one.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
CodeArray = NDArray[np.unsignedinteger]
BoolArray = NDArray[np.bool_]

NO_VALUE = 0
"""Code of a sample without a score."""

RIGHT = 0.5
"""A score above this is correct."""

MIN_VARIANCE = 1e-12
"""Below this the mean square of differences is rounding noise."""

_ENOUGH = 0.5
"""A sample counts if more than this share of a block's checkpoints scored it. If all had to, one error in a hundred
answers, each at another sample, would leave nothing of two blocks to compare."""

_CODE_TYPES = (np.uint8, np.uint16, np.uint32)

_FEW = 4
"""Up to this many distinct values are compared one by one."""

_BLOCK_VALUES = 1 << 17
"""Values converted to floats at a time: 1 MiB, which stays in the processor's cache."""

_BLOCK_PRODUCTS = 1 << 18
"""Multiplications per BLAS call: with more it starts threads, which on a busy machine wait for each other far longer
than they compute."""


@dataclass(frozen=True, kw_only=True)
class Contrast:
    """A weighted sum of checkpoints, averaged over their common samples."""

    delta: float
    item_variance: float
    """Variance of `delta` with samples as the independent units; infinite with fewer than two."""
    n: int
    common_fraction: float
    """Samples used / samples of the benchmark."""
    checkpoint_weights: FloatArray | None = field(default=None, compare=False)
    """Weight of each checkpoint, shape (T,), on average over the samples; None: all samples weight them alike."""
    null_scale: float = 1.0
    """Factor of the variance before the new block, if that is known only for a part of the samples."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ScoreMatrix:
    """T checkpoints, ordered by step, and n samples. One byte per value with fewer than 256 distinct ones."""

    codes: CodeArray
    """Shape (T, n): index into `palette`; `NO_VALUE` where a sample has no score."""
    palette: FloatArray
    """Shape (P,): first an entry for "no value", which counts as 0; then the distinct values, ascending."""
    sums: FloatArray
    """Shape (T,): sum over samples."""
    missing: IntArray
    """Shape (T,): samples without a score."""

    @property
    def n_samples(self) -> int:
        """Number of samples, scored or not."""
        return int(self.codes.shape[1])

    @property
    def means(self) -> FloatArray:
        """Mean over the samples with a score, shape (T,); NaN if there is none."""
        counts = (self.n_samples - self.missing).astype(np.float64)
        means: FloatArray = np.divide(self.sums, counts, out=np.full(counts.shape, np.nan), where=counts > 0)
        return means

    def products(self, rows: IntArray) -> FloatArray:
        """Return the sums over samples of x_s * x_t between R checkpoints, shape (R, R); missing scores count as 0."""
        products = np.zeros((rows.size, rows.size))
        codes = self.codes[rows]
        width = max(1, _BLOCK_PRODUCTS // max(1, rows.size**2))
        for start in range(0, self.n_samples, width):
            block = np.take(self.palette, codes[:, start : start + width])
            products += block @ block.T
        return products

    def contrasts(self, weights: FloatArray) -> tuple[Contrast, ...]:
        """Return D and its item variance for every row of `weights`, shape (Q, T).

        With d_i = sum_s w_s x_si:  D = mean_i d_i,  v = sum_i (d_i - D)^2 / ((n - 1) n), from the products G of the
        checkpoints that count: D = w'y and mean_i d_i^2 = w'Gw. If one of them lacks scores, the samples are used
        instead: each side of a sample is the mean over the checkpoints that scored it, if they have more than half of
        the weight.
        """
        deltas, variances = _moments(self, weights)
        n = self.n_samples
        partial = (weights != 0) @ (self.missing > 0)
        return tuple(
            _direct(self, weights[q])
            if partial[q]
            else Contrast(delta=float(deltas[q]), item_variance=float(variances[q]), n=n, common_fraction=1.0)
            for q in range(weights.shape[0])
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class EncodedRow:
    """The values of one checkpoint as bytes."""

    codes: CodeArray
    """Shape (n,)."""
    palette: FloatArray
    """As in `ScoreMatrix`."""


def encoded(values: FloatArray, palette: FloatArray) -> EncodedRow:
    """Return `values`, shape (n,), as positions in `palette`, which is extended by the values that it lacks.

    NaN: no value.
    """
    codes = _codes(values, palette)
    if codes.all():  # the usual case, several times faster than a search for new values
        return EncodedRow(codes=codes, palette=palette)
    lacking = values[codes == NO_VALUE]
    lacking = lacking[~np.isnan(lacking)]
    if lacking.size:
        palette = np.concatenate([palette[:1], np.union1d(palette[1:], lacking)])
        codes = _codes(values, palette)
    return EncodedRow(codes=codes, palette=palette)


def matrix_of(rows: Sequence[EncodedRow], places: Sequence[IntArray | None], n_samples: int) -> ScoreMatrix:
    """Return the matrix of all checkpoints at once, as if each had been inserted; `rows` by step.

    `places` has for each row the sample of each of its values; None: one for each sample, in order.
    """
    palette = np.concatenate([np.zeros(1), np.unique(np.concatenate([row.palette[1:] for row in rows]))])
    codes = np.zeros((len(rows), n_samples), dtype=_code_type(palette))
    for t, (row, place) in enumerate(zip(rows, places, strict=True)):
        codes[t, slice(None) if place is None else place] = _recoded(row.codes, row.palette, palette)
    return ScoreMatrix(codes=codes, palette=palette, sums=_sums(codes, palette), missing=_missing(codes))


def empty_matrix(n_samples: int) -> ScoreMatrix:
    """Return a matrix of no checkpoints."""
    return ScoreMatrix(
        codes=np.zeros((0, n_samples), dtype=np.uint8),
        palette=np.zeros(1),
        sums=np.zeros(0),
        missing=np.zeros(0, dtype=np.int64),
    )


def inserted(matrix: ScoreMatrix, position: int, values: FloatArray) -> ScoreMatrix:
    """Return the matrix with one more checkpoint at `position`; `values` of shape (n,), NaN: no score."""
    row = encoded(values, matrix.palette)
    codes = _recoded(matrix.codes, matrix.palette, row.palette)
    return ScoreMatrix(
        codes=np.concatenate([codes[:position], row.codes[np.newaxis], codes[position:]]),
        palette=row.palette,
        sums=np.insert(matrix.sums, position, row.palette[row.codes].sum()),
        missing=np.insert(matrix.missing, position, np.count_nonzero(row.codes == NO_VALUE)),
    )


def without_rows(matrix: ScoreMatrix, positions: Sequence[int]) -> ScoreMatrix:
    """Return the matrix without the checkpoints at `positions`."""
    return replace(
        matrix,
        codes=np.delete(matrix.codes, positions, axis=0),
        sums=np.delete(matrix.sums, positions),
        missing=np.delete(matrix.missing, positions),
    )


def rearranged(matrix: ScoreMatrix, sources: IntArray) -> ScoreMatrix:
    """Return the matrix over other samples; only samples without any score may be left out.

    `sources` has for each new sample the old one; -1: a new one, without a score at any checkpoint.
    """
    codes = np.zeros((matrix.codes.shape[0], sources.size), dtype=matrix.codes.dtype)
    known = sources >= 0
    codes[:, known] = matrix.codes[:, sources[known]]
    return replace(matrix, codes=codes, missing=_missing(codes))


def values_at(matrix: ScoreMatrix, rows: IntArray) -> FloatArray:
    """Return the values of some checkpoints, shape (len(rows), n); NaN where a sample has no score."""
    palette = matrix.palette.copy()
    palette[NO_VALUE] = np.nan
    return palette[matrix.codes[rows]]


def is_varied(matrix: ScoreMatrix) -> bool:
    """Return whether there is more than one value."""
    return matrix.palette.size > 2


def columns_of_matrix(matrix: ScoreMatrix, columns: IntArray) -> ScoreMatrix:
    """Return the matrix of some of the samples."""
    codes = matrix.codes[:, columns]
    return replace(matrix, codes=codes, sums=_sums(codes, matrix.palette), missing=_missing(codes))


@dataclass(frozen=True, kw_only=True, eq=False)
class Flips:
    """Which samples changed between two sides, each of shape (n,)."""

    is_lost: BoolArray
    """Right at most checkpoints of the baseline, wrong at most of the new side."""
    is_gained: BoolArray
    is_kept: BoolArray
    """Right at most checkpoints of both sides."""
    is_scored: BoolArray
    """Scored at more than half of the checkpoints of each side."""

    def counts(self) -> tuple[int, int]:
        """Return the numbers of lost and of gained samples."""
        return int(np.count_nonzero(self.is_lost)), int(np.count_nonzero(self.is_gained))


def flips(matrix: ScoreMatrix, new: IntArray, base: IntArray) -> Flips:
    """Return the samples that changed from rows `base` to rows `new`; with as many right as wrong a side is neither."""
    right = replace(matrix, palette=(matrix.palette > RIGHT).astype(np.float64))
    now, now_scored = _side(right, new, np.ones(new.size))
    before, before_scored = _side(right, base, np.ones(base.size))
    scored = now_scored & before_scored
    was_right, was_wrong = before > base.size / 2, before < base.size / 2
    is_right, is_wrong = now > new.size / 2, now < new.size / 2
    return Flips(
        is_lost=scored & was_right & is_wrong,
        is_gained=scored & was_wrong & is_right,
        is_kept=scored & was_right & is_right,
        is_scored=scored,
    )


def contrast_of_samples(differences: FloatArray, n_samples: int) -> Contrast:
    """Return D and v of per-sample differences, shape (n_common,), out of `n_samples`."""
    n = differences.size
    delta = float(differences.mean()) if n else 0.0
    spread = float(np.mean((differences - delta) ** 2)) if n else 0.0
    variance = max(spread, MIN_VARIANCE) / (n - 1) if n > 1 else float("inf")
    return Contrast(delta=delta, item_variance=variance, n=n, common_fraction=n / n_samples if n_samples else 0.0)


def _moments(matrix: ScoreMatrix, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
    n = matrix.n_samples
    if n < 2:
        return np.asarray(weights @ matrix.sums, dtype=np.float64), np.full(weights.shape[0], np.inf)
    deltas: FloatArray = weights @ matrix.sums / n
    rows = np.flatnonzero(weights.any(axis=0))
    of_rows = weights[:, rows]
    squares = np.einsum("qt,qt->q", of_rows @ matrix.products(rows), of_rows) / n
    return deltas, np.maximum(squares - deltas * deltas, MIN_VARIANCE) / (n - 1)


def _direct(matrix: ScoreMatrix, weights: FloatArray) -> Contrast:
    differences, scored = np.zeros(matrix.n_samples), np.ones(matrix.n_samples, dtype=bool)
    for rows, sign in ((np.flatnonzero(weights > 0), 1.0), (np.flatnonzero(weights < 0), -1.0)):
        if rows.size:
            values, enough = _side(matrix, rows, np.abs(weights[rows]))
            differences += sign * values
            scored &= enough
    return contrast_of_samples(differences[scored], matrix.n_samples)


def _side(matrix: ScoreMatrix, rows: IntArray, weights: FloatArray) -> tuple[FloatArray, BoolArray]:
    """Return each sample's weighted sum (missing: the mean of the others), and whether enough scored it."""
    codes = matrix.codes[rows]
    present, total = weights @ (codes != NO_VALUE), weights.sum()
    # A missing score counts as 0 in the sum.
    values: FloatArray = total * (weights @ matrix.palette[codes]) / np.where(present > 0, present, 1.0)
    return values, present > total * _ENOUGH


def _code_type(palette: FloatArray) -> type[np.unsignedinteger]:
    return next(t for t in _CODE_TYPES if palette.size <= np.iinfo(t).max + 1)


def _codes(values: FloatArray, palette: FloatArray) -> CodeArray:
    """Return the position of each value in `palette`; `NO_VALUE` if it is not in it."""
    known = palette[1:]
    if known.size <= _FEW:  # usually only 0 and 1: several times faster than a search
        codes = np.zeros(values.shape, dtype=np.uint8)
        for code, value in enumerate(known.tolist(), start=1):
            codes += np.uint8(code) * (values == value).view(np.uint8)
        return codes
    at = np.searchsorted(known, values)
    found = known[np.minimum(at, known.size - 1)] == values
    found_at: CodeArray = ((at + 1) * found).astype(_code_type(palette))
    return found_at


def _missing(codes: CodeArray) -> IntArray:
    missing: IntArray = np.count_nonzero(codes == NO_VALUE, axis=1).astype(np.int64)
    return missing


def _recoded(codes: CodeArray, old: FloatArray, new: FloatArray) -> CodeArray:
    """Return codes of `old` as codes of `new`, which has all its values."""
    if old.size == new.size:
        return codes
    table = np.zeros(old.size, dtype=_code_type(new))
    table[1:] = np.searchsorted(new[1:], old[1:]) + 1
    return table[codes]


def _sums(codes: CodeArray, palette: FloatArray) -> FloatArray:
    """Return the sum over samples of every checkpoint, shape (T,); no value counts as 0."""
    sums = np.zeros(codes.shape[0])
    width = max(1, _BLOCK_VALUES // max(1, codes.shape[0]))
    for start in range(0, codes.shape[1], width):
        sums += np.take(palette, codes[:, start : start + width]).sum(axis=1)
    return sums
