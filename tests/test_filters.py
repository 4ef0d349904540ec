"""Pairs that have no text on one side go together, and are counted."""

from pathlib import Path

from transformer_cli.config.schema import Corpus
from transformer_cli.data.corpus import Pair, read_pairs
from transformer_cli.data.filters import FilterCounts, drop_empty


def test_a_blank_side_takes_its_pair_along_and_shifts_no_other(tmp_path: Path) -> None:
    source, target = tmp_path / "train.src", tmp_path / "train.tgt"
    source.write_text("ba ce\n\ndi fo\ngu ha\nje ki\n" * 200, "utf-8")
    target.write_text("BA CE\nXX XX\nDI FO\n   \nJE KI\n" * 200, "utf-8")
    counts = FilterCounts()
    kept = list(drop_empty(read_pairs([Corpus(source=source, target=target)]), counts))
    assert kept == [Pair("ba ce", "BA CE"), Pair("di fo", "DI FO"), Pair("je ki", "JE KI")] * 200
    assert counts == FilterCounts(read=1000, empty=400, too_long=0)
    assert (
        counts.summary(max_length=256) == "1,000 pairs read, 400 skipped as empty, 0 longer than 256 pieces, 600 kept"
    )


def test_what_normalises_to_nothing_is_empty() -> None:
    blanks = ["", "   ", "\t\t", "\u200b", "\u3000", "\0", "\ufeff \u2028"]
    pairs = [Pair(blank, "x") for blank in blanks] + [Pair("x", blank) for blank in blanks] + [Pair("\u200d", "x")]
    counts = FilterCounts()
    assert list(drop_empty(pairs, counts)) == [Pair("\u200d", "x")]
    assert (counts.read, counts.empty, counts.kept) == (15, 14, 1)


def test_every_reason_lowers_what_is_kept() -> None:
    assert FilterCounts(read=10, empty=3, too_long=2).kept == 5
