"""Where line N of one side stops being the translation of line N of the other, told by the lengths of lines alone.

A long sentence has a long translation. For a pair, the residual is the logarithm of the ratio of its lengths, less the
median of all pairs. Where the target has lost a line, the source fits the target of the line before it better than its
own, pair after pair: the sum of (residual as it is - residual d lines off) climbs there, and falls everywhere else. The
stretch with the largest such sum is the shift, and where it begins is known to a few lines.

Where no small d fits, as when many lines are lost or the order is, two normal distributions are fitted to the
residuals, one up to a line and one behind it, each with its own mean and variance. The best such line counts when the
lengths go together on one side of it and not on the other; a change of subject alone does not do that.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

_FARTHEST = 10  # lines that a side may be off to be called shifted
_SURE = 50.0  # what a shift must gain; clean corpora of 10,000 to 160,000 pairs reach 8 to 27
_MOST_FROM_ONE = 5.0  # of that gain: single odd pairs prove nothing
_TOGETHER = 0.7  # of the residuals; shifts of real corpora leave 0.2 to 0.67, chance 0.74 and more
_SHORTEST = 100  # pairs that each part of a fit must have
_FIT_GAIN = 50.0  # nats of likelihood by which two distributions must be better than one
_RELATED = 0.5  # of the correlation in the one part, the least that the other must have

Numbers = NDArray[np.float32]


@dataclass(frozen=True)
class Shift:
    """A stretch of pairs, counted from 1, in which source i belongs to target i + offset; an unknown one is None."""

    first: int
    last: int
    offset: int | None


def find_shift(source: ArrayLike, target: ArrayLike, sure: float = _SURE) -> Shift | None:
    """The stretch that is shifted most certainly, by the lengths of both sides of each pair, in characters; None where
    all seem to belong together. `sure` is the gain a shift must have."""
    a, b = np.log1p(np.asarray(source, dtype=np.float32)), np.log1p(np.asarray(target, dtype=np.float32))
    if len(a) < 2 * _FARTHEST:
        return None
    b -= np.median(b - a)
    offsets = [offset for offset in range(-_FARTHEST, _FARTHEST + 1) if offset]
    scale = min(float(np.median(_residuals(a, b, offset)[1])) for offset in (0, *offsets))
    # Residuals below 5 % are those of templates, and tell nothing.
    scale = max(scale, 0.05) / float(np.log(2))  # of a Laplace distribution, so that the gain is in nats
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
    """Whether the offset really brings a stretch together. Where nothing belongs together, some sum climbs by chance,
    and slowly."""
    lines, shifted = _residuals(a, b, offset)
    here = slice(max(first, lines.start), min(last, lines.stop))
    as_it_is = np.abs(b[here] - a[here])
    return bool(shifted[here.start - lines.start : here.stop - lines.start].mean() < _TOGETHER * as_it_is.mean())


def _residuals(a: Numbers, b: Numbers, offset: int) -> tuple[slice, Numbers]:
    """The lines that have a partner `offset` lines off, and how much the lengths of these two differ."""
    lines = slice(max(0, -offset), len(a) - max(0, offset))
    return lines, np.abs(b[lines.start + offset : lines.stop + offset] - a[lines])


def _largest_sum(values: NDArray[np.float64]) -> tuple[float, int, int]:
    """The slice with the largest sum: the sum, its start and its end."""
    sums = np.concatenate([[0.0], np.cumsum(values)])
    gains = sums - np.minimum.accumulate(sums)
    end = int(gains.argmax())
    return float(gains[end]), int(sums[: end + 1].argmin()), end


def _unrelated(a: Numbers, b: Numbers) -> Shift | None:
    """The part of the pairs, at their beginning or end, in which the lengths have nothing to do with each other."""
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
    if gain < _FIT_GAIN or min(first, second) >= _RELATED * max(first, second):
        return None
    return Shift(1, cut, None) if first < second else Shift(cut + 1, count, None)


def _log_variance(sums: NDArray[np.float64], squares: NDArray[np.float64], sizes: NDArray[np.int64]) -> Any:
    return np.log(np.maximum(squares / sizes - (sums / sizes) ** 2, 1e-4))


def _correlation(a: Numbers, b: Numbers) -> float:
    """Of the lengths; 1 where one side has hardly any variety, which proves nothing."""
    if min(a.std(), b.std()) < 0.1:
        return 1.0
    return float(np.corrcoef(a, b)[0, 1])
