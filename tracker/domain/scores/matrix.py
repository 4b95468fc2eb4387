"""One measure of one benchmark along a run: checkpoints x samples as bytes. Pure.

Products are computed only of the rows in use, some dozens in a run of any length: those of all pairs would take
gigabytes after some thousand checkpoints.

Values must be oriented so that higher is better. A matrix is immutable; adding a checkpoint returns another one.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
CodeArray = NDArray[np.unsignedinteger]
BoolArray = NDArray[np.bool_]

NO_VALUE = 0
"""Code of a sample without a score."""

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


_EXACT = float(1 << 24)
"""Up to here a float32 has every integer."""


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
class Moments:
    """Q contrasts as arrays: see `Contrast`."""

    deltas: FloatArray
    """Shape (Q,)."""
    item_variances: FloatArray
    """Shape (Q,)."""
    n: IntArray
    """Shape (Q,)."""


def moments_of(contrasts: Sequence[Contrast]) -> Moments:
    """Return the numbers of `contrasts`."""
    return Moments(
        deltas=np.array([c.delta for c in contrasts]),
        item_variances=np.array([c.item_variance for c in contrasts]),
        n=np.array([c.n for c in contrasts], dtype=np.int64),
    )


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

    @cached_property
    def means(self) -> FloatArray:
        """Mean over the samples with a score, shape (T,); NaN if there is none."""
        counts = (self.n_samples - self.missing).astype(np.float64)
        means: FloatArray = np.divide(self.sums, counts, out=np.full(counts.shape, np.nan), where=counts > 0)
        return means

    def products(self, rows: IntArray) -> FloatArray:
        """Return the sums over samples of x_s * x_t between R checkpoints, shape (R, R); missing scores count as 0."""
        codes, constant = self.codes[rows], 0.0
        if self.palette.size <= _FEW:
            codes, constant = _varying(self.palette, codes)
        products = np.full((rows.size, rows.size), constant)
        width = max(1, _BLOCK_PRODUCTS // max(1, rows.size * (rows.size + 1)))
        palette = self.palette
        if float(np.abs(palette).max()) ** 2 * width <= _EXACT and not np.any(palette % 1):
            palette = palette.astype(np.float32)  # faster, and just as exact for integers as small as right and wrong
        for start in range(0, codes.shape[1], width):
            block = palette.take(codes[:, start : start + width])
            products += block @ block.T
        return products

    def contrasts(self, weights: FloatArray) -> tuple[Contrast, ...]:
        """Return D and its item variance for every row of `weights`, shape (Q, T); see `moments`."""
        rows = np.flatnonzero(weights.any(axis=0))
        found, planned = self.moments(rows, weights[:, rows]), max(self.n_samples, 1)
        numbers = zip(found.deltas.tolist(), found.item_variances.tolist(), found.n.tolist(), strict=True)
        return tuple(Contrast(delta=d, item_variance=v, n=n, common_fraction=n / planned) for d, v, n in numbers)

    def moments(self, rows: IntArray, weights: FloatArray) -> Moments:
        """Return contrasts of R checkpoints `rows`, one for every row of `weights`, shape (Q, R).

        With d_i = sum_s w_s x_si:  D = mean_i d_i,  v = sum_i (d_i - D)^2 / ((n - 1) n), from the products G of the
        checkpoints that count: D = w'y and mean_i d_i^2 = w'Gw. If a sample lacks a score, each of its sides is the
        mean over the checkpoints that scored it, and it counts if they have more than half of the weight of each side.
        """
        sums, squares = weights @ self.sums[rows], np.einsum("qr,qr->q", weights @ self.products(rows), weights)
        counts = np.full(sums.shape, self.n_samples)
        partial = np.flatnonzero((weights[:, self.missing[rows] > 0] != 0).any(axis=1)).tolist()
        if partial:
            lacking = self.codes[rows].compress((self.codes[rows] == NO_VALUE).any(axis=0), axis=1)
            for q in partial:
                is_used = weights[q] != 0
                change = _of_lacking(self.palette, lacking[is_used], weights[q, is_used])
                sums[q], squares[q], counts[q] = sums[q] + change[0], squares[q] + change[1], counts[q] + change[2]
        deltas = sums / np.maximum(counts, 1)
        spread = np.maximum(squares / np.maximum(counts, 1) - deltas * deltas, MIN_VARIANCE)
        variances = np.where(counts > 1, spread / np.maximum(counts - 1, 1), np.inf)
        return Moments(deltas=deltas, item_variances=variances, n=counts)


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


def _varying(palette: FloatArray, codes: CodeArray) -> tuple[CodeArray, float]:
    """Return the codes of samples whose value differs between rows, and the sum of squares of the other values.

    About half of the samples of a benchmark are right or wrong at all of some dozens of checkpoints.
    """
    varies = (codes != codes[:1]).any(axis=0)
    constant = palette.take(codes[:1, ~varies])
    return codes.compress(varies, axis=1), float((constant**2).sum())


def _of_lacking(palette: FloatArray, codes: CodeArray, weights: FloatArray) -> tuple[float, float, int]:
    """Return what samples that lack scores change if these no longer count as 0: the sum, of squares, and the number.

    `codes` of some samples at the R checkpoints of a contrast, shape (R, n).
    """
    codes = codes.compress((codes == NO_VALUE).any(axis=0), axis=1)
    before = weights @ palette.take(codes)
    now, scored = np.zeros(before.shape), np.ones(before.shape, dtype=bool)
    for side, sign in ((weights > 0, 1.0), (weights < 0, -1.0)):
        if side.any():
            values, enough = _side(palette, codes[side], np.abs(weights[side]))
            now += sign * values
            scored &= enough
    now = now[scored]
    return float(now.sum() - before.sum()), float(now @ now - before @ before), now.size - before.size


def _side(palette: FloatArray, codes: CodeArray, weights: FloatArray) -> tuple[FloatArray, BoolArray]:
    """Return each sample's weighted sum (missing: the mean of the others), and whether enough scored it."""
    present, total = weights @ (codes != NO_VALUE), weights.sum()
    values: FloatArray = total * (weights @ palette.take(codes)) / np.where(present > 0, present, 1.0)
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
