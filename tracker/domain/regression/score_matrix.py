"""One measure of one benchmark along a run: checkpoints x samples in bytes, with the Gram matrix of its rows. Pure.

    matrix = empty_matrix(n_samples)
    matrix = inserted(matrix, position, values)      # one checkpoint: reads the stored rows once
    matrix.contrasts(weights)                        # differences of pooled checkpoints: T x T numbers, no samples

Values are oriented before they come here: up is better. A matrix never changes; adding a checkpoint gives another one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
CodeArray = NDArray[np.unsignedinteger]

NO_VALUE = 0
"""Code of a sample without a score."""

RIGHT = 0.5
"""A score above this is right."""

_MIN_VARIANCE = 1e-12
"""Below this the mean square of differences is rounding noise."""

_CODE_TYPES = (np.uint8, np.uint16, np.uint32)


@dataclass(frozen=True, kw_only=True)
class Contrast:
    """A weighted sum of checkpoints, averaged over the samples that all of them scored."""

    delta: float
    item_variance: float
    """Variance of `delta` with samples as the independent units; infinite with fewer than two."""
    n: int
    common_fraction: float
    """Samples used / samples of the benchmark."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ScoreMatrix:
    """T checkpoints, ordered by step, and n samples. One byte a value while there are fewer than 256 distinct ones."""

    codes: CodeArray
    """Shape (T, n): index into `palette`; `NO_VALUE` where a sample has no score."""
    palette: FloatArray
    """Shape (P,): the distinct values; the first stands for no value and counts as 0."""
    gram: FloatArray
    """Shape (T, T): sum over samples of x_s * x_t, samples without a score counted as 0."""
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
        """Mean over the samples with a score, shape (T,); NaN where there is none."""
        counts = (self.n_samples - self.missing).astype(np.float64)
        means: FloatArray = np.divide(self.sums, counts, out=np.full(counts.shape, np.nan), where=counts > 0)
        return means

    def contrasts(self, weights: FloatArray) -> tuple[Contrast, ...]:
        """Return D and its item variance for every row of `weights`, shape (Q, T).

        With d_i = sum_s w_s x_si:  D = mean_i d_i,  v = sum_i (d_i - D)^2 / ((n - 1) n), from the Gram matrix alone:
        D = w'y and mean_i d_i^2 = w'Gw. Where a checkpoint that counts lacks scores, the samples that all such
        checkpoints share are read instead.
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


def empty_matrix(n_samples: int) -> ScoreMatrix:
    """Return a matrix of no checkpoints."""
    return ScoreMatrix(
        codes=np.zeros((0, n_samples), dtype=np.uint8),
        palette=np.zeros(1),
        gram=np.zeros((0, 0)),
        sums=np.zeros(0),
        missing=np.zeros(0, dtype=np.int64),
    )


def inserted(matrix: ScoreMatrix, position: int, values: FloatArray) -> ScoreMatrix:
    """Return the matrix with one more checkpoint at `position`; `values` of shape (n,), NaN: no score."""
    codes, palette = _encoded(matrix.palette, values)
    width = np.result_type(matrix.codes, codes)
    filled = palette[codes]
    products = _products(matrix, filled)
    grown = np.insert(np.insert(matrix.gram, position, products, axis=0), position, 0.0, axis=1)
    column = np.insert(products, position, float(filled @ filled))
    grown[position, :] = column
    grown[:, position] = column
    return ScoreMatrix(
        codes=np.insert(matrix.codes.astype(width, copy=False), position, codes, axis=0),
        palette=palette,
        gram=grown,
        sums=np.insert(matrix.sums, position, filled.sum()),
        missing=np.insert(matrix.missing, position, np.count_nonzero(codes == NO_VALUE)),
    )


def without_row(matrix: ScoreMatrix, position: int) -> ScoreMatrix:
    """Return the matrix without the checkpoint at `position`."""
    return replace(
        matrix,
        codes=np.delete(matrix.codes, position, axis=0),
        gram=np.delete(np.delete(matrix.gram, position, axis=0), position, axis=1),
        sums=np.delete(matrix.sums, position),
        missing=np.delete(matrix.missing, position),
    )


def widened(matrix: ScoreMatrix, extra: int) -> ScoreMatrix:
    """Return the matrix with `extra` more samples at the end, without a score at the checkpoints so far."""
    codes = np.pad(matrix.codes, ((0, 0), (0, extra)), constant_values=NO_VALUE)
    return replace(matrix, codes=codes, missing=matrix.missing + extra)


def values_at(matrix: ScoreMatrix, rows: IntArray) -> FloatArray:
    """Return the values of some checkpoints, shape (len(rows), n); NaN where a sample has no score."""
    palette = matrix.palette.copy()
    palette[NO_VALUE] = np.nan
    values: FloatArray = palette[matrix.codes[rows]]
    return values


def columns_of_matrix(matrix: ScoreMatrix, columns: IntArray) -> ScoreMatrix:
    """Return the matrix of some of the samples."""
    codes = matrix.codes[:, columns]
    values = matrix.palette[codes]
    return replace(
        matrix,
        codes=codes,
        gram=values @ values.T,
        sums=values.sum(axis=1),
        missing=np.count_nonzero(codes == NO_VALUE, axis=1),
    )


def flips(matrix: ScoreMatrix, new: IntArray, base: IntArray) -> tuple[int, int]:
    """Return how many samples were right (mean above .5) on the rows `base` and are not on `new`, and the reverse."""
    codes = matrix.codes
    scored = np.all(codes[np.concatenate([new, base])] != NO_VALUE, axis=0)
    now = matrix.palette[codes[new][:, scored]].mean(axis=0) > RIGHT
    before = matrix.palette[codes[base][:, scored]].mean(axis=0) > RIGHT
    return int(np.count_nonzero(before & ~now)), int(np.count_nonzero(now & ~before))


def contrast_of_samples(differences: FloatArray, n_samples: int) -> Contrast:
    """Return D and v of per-sample differences, shape (n_common,), out of `n_samples`."""
    n = differences.size
    delta = float(differences.mean()) if n else 0.0
    spread = float(np.mean((differences - delta) ** 2)) if n else 0.0
    variance = max(spread, _MIN_VARIANCE) / (n - 1) if n > 1 else float("inf")
    return Contrast(delta=delta, item_variance=variance, n=n, common_fraction=n / n_samples if n_samples else 0.0)


# --- private


def _moments(matrix: ScoreMatrix, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
    n = matrix.n_samples
    if n < 2:
        return np.asarray(weights @ matrix.sums, dtype=np.float64), np.full(weights.shape[0], np.inf)
    deltas: FloatArray = weights @ matrix.sums / n
    squares = np.einsum("qt,qt->q", weights @ matrix.gram, weights) / n
    return deltas, np.maximum(squares - deltas * deltas, _MIN_VARIANCE) / (n - 1)


def _direct(matrix: ScoreMatrix, weights: FloatArray) -> Contrast:
    rows = np.flatnonzero(weights)
    codes = matrix.codes[rows]
    scored = np.all(codes != NO_VALUE, axis=0)
    return contrast_of_samples(weights[rows] @ matrix.palette[codes[:, scored]], matrix.n_samples)


def _products(matrix: ScoreMatrix, filled: FloatArray) -> FloatArray:
    if _is_binary(matrix.palette):  # the common case: whole numbers, exact and fast
        ones = int(np.flatnonzero(matrix.palette == 1.0)[0]) if 1.0 in matrix.palette else -1
        used = filled == 1.0
        if np.all(used | (filled == 0.0)):
            products: FloatArray = np.count_nonzero((matrix.codes == ones) & used, axis=1).astype(np.float64)
            return products
    return np.array([matrix.palette[row] @ filled for row in matrix.codes], dtype=np.float64)


def _is_binary(palette: FloatArray) -> bool:
    return bool(np.all((palette == 0.0) | (palette == 1.0)))


def _encoded(palette: FloatArray, values: FloatArray) -> tuple[CodeArray, FloatArray]:
    scored = ~np.isnan(values)
    distinct, inverse = np.unique(values[scored], return_inverse=True)
    known = {value: code for code, value in enumerate(palette.tolist()) if code != NO_VALUE}
    new = [value for value in distinct.tolist() if value not in known]
    known.update({value: len(palette) + offset for offset, value in enumerate(new)})
    size = len(palette) + len(new)
    width = next(t for t in _CODE_TYPES if size <= np.iinfo(t).max + 1)
    codes = np.full(values.shape, NO_VALUE, dtype=width)
    table = np.array([known[value] for value in distinct.tolist()], dtype=width)
    codes[scored] = table[inverse] if distinct.size else NO_VALUE
    return codes, np.concatenate([palette, np.array(new, dtype=np.float64)])
