"""Filter training pairs, and count the pairs left out by reason. Source and target always go together.

Pairs with an empty side or more than `data.max_length` pieces are always left out; `data.filters` enables the other
filters. A pair is counted under the first reason that applies, in the order of the fields of `FilterCounts`.
"""

import hashlib
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, fields
from itertools import compress, islice

import numpy as np
from numpy.typing import NDArray

from transformer_cli.config.schema import DataConfig
from transformer_cli.data.corpus import Pair
from transformer_cli.data.scripts import expected_scripts, in_other_script
from transformer_cli.data.tokenizer import canonical, is_blank

_CHUNK = 10_000  # pairs checked for duplicates at a time

# Lengths count a Chinese, Japanese or Korean character as this many letters of an alphabet.
_HAN = re.compile("[\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
_SYLLABLE = re.compile("[\u3040-\u30ff\uac00-\ud7a3]")
_HAN_WORTH, _SYLLABLE_WORTH = 3, 2
# Added to both lengths, so that a short line may have a translation of several times its length.
_ALLOWANCE = 10

REASONS = {
    "empty": "with an empty side",
    "held_out": "held out",
    "overlap": "with a source of valid or test",
    "identical": "with equal sides",
    "length_ratio": "with very different lengths",
    "script": "in the script of another language",
    "duplicates": "duplicates",
    "too_long": "longer than data.max_length",
}
"""Why pairs are left out: the fields of `FilterCounts`, each in words that follow a count."""


@dataclass
class FilterCounts:
    """The number of pairs read, and of pairs left out for each reason; the filters update it as pairs are consumed."""

    read: int = 0
    empty: int = 0
    held_out: int = 0
    overlap: int = 0
    identical: int = 0
    length_ratio: int = 0
    script: int = 0
    duplicates: int = 0
    too_long: int = 0

    @property
    def kept(self) -> int:
        """Number of pairs that passed every filter."""
        left_out: int = sum(getattr(self, field.name) for field in fields(self)[1:])
        return self.read - left_out

    def summary(self, data: DataConfig) -> str:
        """The counts as one line of text, or as a table if `data.filters` enables any filter."""
        rows = [(self.read, "pairs read"), *self._left_out(data), (self.kept, "kept")]
        if any(data.filters.model_dump().values()):
            return "".join(f"\n{count:>14,}  {words}" for count, words in rows)
        return ", ".join(f"{count:,} {words}" for count, words in rows)

    def why_none(self, data: DataConfig) -> str:
        """The non-zero counts, to explain that no pair was kept."""
        reasons = [f"{count:,} {words}" for count, words in self._left_out(data) if count]
        return ", ".join([f"{self.read:,} pairs read", *reasons])

    def _left_out(self, data: DataConfig) -> Iterator[tuple[int, str]]:
        """The count of each reason that can apply, and the reason in words."""
        can_apply = data.filters.model_dump() | {"held_out": self.held_out}
        for reason, words in REASONS.items():
            if can_apply.get(reason, True):
                yield getattr(self, reason), words


def drop_empty(pairs: Iterable[Pair], counts: FilterCounts) -> Iterator[Pair]:
    """The pairs that have text on both sides; updates the counts `read` and `empty`."""
    for pair in pairs:
        counts.read += 1
        if is_blank(pair.source) or is_blank(pair.target):
            counts.empty += 1
        else:
            yield pair


def drop_chosen(
    pairs: Iterable[Pair], data: DataConfig, evaluated: Collection[str], seen: "SeenPairs", counts: FilterCounts
) -> Iterator[Pair]:
    """The pairs of a corpus that pass `data.filters`; the others are counted.

    `evaluated` holds the sources of the validation and test sets in `canonical` form; only `overlap` uses it. `seen`
    holds the pairs of the previous corpora; only `duplicates` reads and extends it.
    """
    checks = list(_checks(data, evaluated))
    remaining = _without(pairs, checks, counts) if checks else iter(pairs)
    return _first_ones(remaining, seen, counts) if data.filters.duplicates else remaining


def _checks(data: DataConfig, evaluated: Collection[str]) -> Iterator[tuple[str, Callable[[Pair], bool]]]:
    """The name of each enabled filter that looks at single pairs, and its predicate: true for a pair to leave out."""
    chosen = data.filters
    if chosen.overlap:
        yield "overlap", lambda pair: canonical(pair.source) in evaluated
    if chosen.identical:
        yield "identical", has_equal_sides
    if (limit := chosen.length_ratio) is not None:
        yield "length_ratio", lambda pair: length_ratio(pair) > limit
    if chosen.script:
        scripts = expected_scripts(data.source_lang), expected_scripts(data.target_lang)
        yield "script", lambda pair: any(map(in_other_script, pair, scripts))


def _without(
    pairs: Iterable[Pair], checks: list[tuple[str, Callable[[Pair], bool]]], counts: FilterCounts
) -> Iterator[Pair]:
    for pair in pairs:
        reason = next((name for name, leaves_out in checks if leaves_out(pair)), None)
        if reason is None:
            yield pair
        else:
            setattr(counts, reason, getattr(counts, reason) + 1)


def _first_ones(pairs: Iterable[Pair], seen: "SeenPairs", counts: FilterCounts) -> Iterator[Pair]:
    remaining = iter(pairs)
    while chunk := list(islice(remaining, _CHUNK)):
        new = seen.add(chunk)
        counts.duplicates += len(chunk) - int(new.sum())
        yield from compress(chunk, new)


def has_equal_sides(pair: Pair) -> bool:
    """Whether both sides are equal, apart from surrounding whitespace."""
    return pair.source.strip() == pair.target.strip()


def length_ratio(pair: Pair) -> float:
    """The length of the longer side divided by that of the shorter one, in letters, with 10 added to both. A Chinese
    character counts as three letters, a Japanese or Korean one as two."""
    lengths = _length(pair.source) + _ALLOWANCE, _length(pair.target) + _ALLOWANCE
    return max(lengths) / min(lengths)


def _length(text: str) -> int:
    if text.isascii():
        return len(text)
    more_of_han, more_of_syllables = _HAN_WORTH - 1, _SYLLABLE_WORTH - 1
    return len(text) + more_of_han * len(_HAN.findall(text)) + more_of_syllables * len(_SYLLABLE.findall(text))


class SeenPairs:
    """A set of pairs, stored as 8-byte hashes in sorted arrays that are merged as they grow.

    It takes 8 bytes for each distinct pair, and twice that while merging: at most 0.8 GB for 50 million pairs. With
    that many, the chance that any two pairs have the same hash is below 1 in 10,000.
    """

    def __init__(self) -> None:
        self._runs: list[NDArray[np.uint64]] = []

    def add(self, pairs: list[Pair]) -> NDArray[np.bool_]:
        """Add pairs, and return which of them are new: neither in the set before nor earlier in the list."""
        digests = b"".join(_digest(pair) for pair in pairs)
        hashes, first = np.unique(np.frombuffer(digests, dtype=np.uint64), return_index=True)
        unseen = np.ones(len(hashes), dtype=bool)
        for run in self._runs:
            places = np.minimum(np.searchsorted(run, hashes), len(run) - 1)
            unseen &= run[places] != hashes
        new = np.zeros(len(pairs), dtype=bool)
        new[first[unseen]] = True
        if unseen.any():
            self._runs.append(hashes[unseen])
        while len(self._runs) > 1 and len(self._runs[-2]) < 2 * len(self._runs[-1]):
            merged = np.concatenate([self._runs.pop(), self._runs.pop()])
            merged.sort(kind="stable")  # fast on two sorted halves
            self._runs.append(merged)
        return new


def _digest(pair: Pair) -> bytes:
    text = f"{pair.source}\n{pair.target}".encode("utf-8", "surrogatepass")
    return hashlib.blake2b(text, digest_size=8).digest()
