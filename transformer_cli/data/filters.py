"""Which pairs are left out of training, and how many of each kind. Source and target always go together."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from transformer_cli.data.corpus import Pair
from transformer_cli.data.tokenizer import is_blank


@dataclass
class FilterCounts:
    """How many pairs were read, and how many left out for which reason; the filters count as the pairs go by."""

    read: int = 0
    empty: int = 0
    too_long: int = 0
    held_out: int = 0

    @property
    def kept(self) -> int:
        """Pairs that every filter let through."""
        return self.read - self.empty - self.too_long - self.held_out

    def summary(self, max_length: int) -> str:
        """The counts as one line of text."""
        held_out = f"{self.held_out:,} held out, " if self.held_out else ""
        return (
            f"{self.read:,} pairs read, {self.empty:,} skipped as empty, {held_out}{self.too_long:,} longer than "
            f"{max_length:,} pieces, {self.kept:,} kept"
        )


def drop_empty(pairs: Iterable[Pair], counts: FilterCounts) -> Iterator[Pair]:
    """The pairs that have text on both sides; `read` and `empty` are counted."""
    for pair in pairs:
        counts.read += 1
        if is_blank(pair.source) or is_blank(pair.target):
            counts.empty += 1
        else:
            yield pair
