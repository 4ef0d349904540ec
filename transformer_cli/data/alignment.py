"""Detect misaligned parallel text, where line N is no translation of line N, from the lengths of the lines alone.

A long sentence has a long translation. The residual of a pair is the logarithm of the ratio of its lengths, minus the
median over all pairs. Where the target has lost a line, each source fits the target one line earlier better than its
own: the running sum of |residual at offset 0| - |residual at offset d| rises there and falls everywhere else. The
stretch with the largest such sum is the shift; its start is accurate to a few lines.

If no small offset d fits, because many lines are lost or the order differs, two normal distributions are fitted to the
residuals, one before a cut and one after it, each with its own mean and variance. The best cut counts if the lengths
correlate on one side of it and not on the other; a mere change of topic keeps the correlation. If there is no such cut
and the lengths do not correlate at all, the two sides are different texts, or one of them is in another order.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

_FARTHEST = 10  # largest offset to try, in lines
_SURE = 50.0  # minimum gain of a shift, in nats; clean corpora of 10,000 to 160,000 pairs reach 8 to 27
_MOST_FROM_ONE = 5.0  # maximum contribution of one pair to the gain, so that no outlier decides
_TOGETHER = 0.7  # maximum ratio of mean residuals, shifted to unshifted; real shifts have 0.2 to 0.67, chance >= 0.74
_SHORTEST = 100  # minimum number of pairs on each side of a cut
_FIT_GAIN = 50.0  # minimum gain in log-likelihood, in nats, of two distributions over one
_RELATED = 0.5  # a side is unrelated if its correlation is below this share of the other side's
# Minimum correlation of lengths that have to do with each other; parallel text has 0.59 to 0.98, and at least 0.46 in
# 200 pairs; shuffled text at most 0.08 in 400 pairs.
_CORRELATED = 0.2

Numbers = NDArray[np.float32]


@dataclass(frozen=True)
class Shift:
    """A stretch of pairs, numbered from 1, where source i belongs to target i + offset; `offset` is None if unknown."""

    first: int
    last: int
    offset: int | None


def find_shift(source: ArrayLike, target: ArrayLike, sure: float = _SURE) -> Shift | None:
    """Find the most certain shift from the lengths of both sides of each pair, in characters; None if the text seems
    aligned. `sure` is the minimum gain of a shift, in nats."""
    a, b = np.log1p(np.asarray(source, dtype=np.float32)), np.log1p(np.asarray(target, dtype=np.float32))
    if len(a) < 2 * _FARTHEST:
        return None
    b -= np.median(b - a)
    offsets = [offset for offset in range(-_FARTHEST, _FARTHEST + 1) if offset]
    scale = min(float(np.median(_residuals(a, b, offset)[1])) for offset in (0, *offsets))
    # Text made from templates has residuals below 5 %, which prove nothing.
    scale = max(scale, 0.05) / float(np.log(2))  # median -> scale of a Laplace distribution; gains are then in nats
    as_it_is = np.minimum(_residuals(a, b, 0)[1] / scale, _MOST_FROM_ONE)
    best, found = sure, None
    for offset in offsets:
        lines, shifted = _residuals(a, b, offset)
        gains = np.zeros(len(a))
        gains[lines] = as_it_is[lines] - np.minimum(shifted / scale, _MOST_FROM_ONE)
        gain, first, last = _largest_sum(gains)
        if gain > best and _fits(a, b, offset, first, last):
            best, found = gain, Shift(first + 1, last, offset)
    return found or _unrelated(a, b)


def _fits(a: Numbers, b: Numbers, offset: int, first: int, last: int) -> bool:
    """Whether the offset clearly reduces the residuals of a stretch. In unrelated text some sum rises by chance, but
    slowly."""
    lines, shifted = _residuals(a, b, offset)
    here = slice(max(first, lines.start), min(last, lines.stop))
    as_it_is = np.abs(b[here] - a[here])
    return bool(shifted[here.start - lines.start : here.stop - lines.start].mean() < _TOGETHER * as_it_is.mean())


def _residuals(a: Numbers, b: Numbers, offset: int) -> tuple[slice, Numbers]:
    """The lines that have a partner `offset` lines away, and the absolute residuals of these pairs."""
    lines = slice(max(0, -offset), len(a) - max(0, offset))
    return lines, np.abs(b[lines.start + offset : lines.stop + offset] - a[lines])


def _largest_sum(values: NDArray[np.float64]) -> tuple[float, int, int]:
    """The sum, start and end of the slice with the largest sum."""
    sums = np.concatenate([[0.0], np.cumsum(values)])
    gains = sums - np.minimum.accumulate(sums)
    end = int(gains.argmax())
    return float(gains[end]), int(sums[: end + 1].argmin()), end


def _unrelated(a: Numbers, b: Numbers) -> Shift | None:
    """The part at the beginning or end of the text where the lengths are unrelated, or all of it, as a shift without an
    offset."""
    count = len(a)
    if count < 2 * _SHORTEST:
        return None
    residuals = (b - a).astype(np.float64)
    sums, squares = np.cumsum(residuals), np.cumsum(residuals**2)
    sizes = np.arange(_SHORTEST, count - _SHORTEST + 1)
    before = _log_variance(sums[sizes - 1], squares[sizes - 1], sizes)
    behind = _log_variance(sums[-1] - sums[sizes - 1], squares[-1] - squares[sizes - 1], count - sizes)
    costs = sizes * before + (count - sizes) * behind
    cut = int(sizes[costs.argmin()])
    gain = (count * _log_variance(sums[-1], squares[-1], np.array(count)) - costs.min()) / 2
    first, second = _correlation(a[:cut], b[:cut]), _correlation(a[cut:], b[cut:])
    is_clear = max(first, second) >= _CORRELATED and min(first, second) < _RELATED * max(first, second)
    if gain >= _FIT_GAIN and is_clear:
        return Shift(1, cut, None) if first < second else Shift(cut + 1, count, None)
    return Shift(1, count, None) if abs(_correlation(a, b)) < _CORRELATED else None


def _log_variance(sums: NDArray[np.float64], squares: NDArray[np.float64], sizes: NDArray[np.int64]) -> Any:
    return np.log(np.maximum(squares / sizes - (sums / sizes) ** 2, 1e-4))


def _correlation(a: Numbers, b: Numbers) -> float:
    """The correlation of the log-lengths; 1 if one side hardly varies, since its correlation proves nothing."""
    if min(a.std(), b.std()) < 0.1:
        return 1.0
    return float(np.corrcoef(a, b)[0, 1])
