"""Pairs that are left out go together, both sides, and are counted under one reason."""

import random
from pathlib import Path
from typing import Any

import pytest

from transformer_cli.config.schema import Config, Corpus, DataConfig, FilterConfig
from transformer_cli.data.corpus import Pair, read_pairs
from transformer_cli.data.filters import FilterCounts, SeenPairs, drop_chosen, drop_empty, length_ratio
from transformer_cli.data.split import Splits


def test_a_blank_side_takes_its_pair_along_and_shifts_no_other(tmp_path: Path) -> None:
    source, target = tmp_path / "train.src", tmp_path / "train.tgt"
    source.write_text("ba ce\n\ndi fo\ngu ha\nje ki\n" * 200, "utf-8")
    target.write_text("BA CE\nXX XX\nDI FO\n   \nJE KI\n" * 200, "utf-8")
    counts = FilterCounts()
    kept = list(drop_empty(read_pairs([Corpus(source=source, target=target)]), counts))
    assert kept == [Pair("ba ce", "BA CE"), Pair("di fo", "DI FO"), Pair("je ki", "JE KI")] * 200
    assert counts == FilterCounts(read=1000, empty=400, too_long=0)
    assert (
        counts.summary(DataConfig())
        == "1,000 pairs read, 400 with an empty side, 0 longer than data.max_length, 600 kept"
    )


def test_what_normalises_to_nothing_is_empty() -> None:
    blanks = ["", "   ", "\t\t", "\u200b", "\u3000", "\0", "\ufeff \u2028"]
    pairs = [Pair(blank, "x") for blank in blanks] + [Pair("x", blank) for blank in blanks] + [Pair("\u200d", "x")]
    counts = FilterCounts()
    assert list(drop_empty(pairs, counts)) == [Pair("\u200d", "x")]
    assert (counts.read, counts.empty, counts.kept) == (15, 14, 1)


def test_every_reason_lowers_what_is_kept() -> None:
    assert FilterCounts(read=10, empty=3, too_long=2).kept == 5
    counts = FilterCounts(100, *range(1, 9))
    assert counts.kept == 100 - (1 + 2 + 3 + 4 + 5 + 6 + 7 + 8)


# The filters of data.filters


def left(pairs: list[Pair], evaluated: set[str] | None = None, **filters: Any) -> tuple[list[Pair], FilterCounts]:
    counts = FilterCounts(read=len(pairs))
    data = DataConfig(source_lang="en", target_lang="ru", filters=FilterConfig(**filters))
    return list(drop_chosen(pairs, data, evaluated or set(), SeenPairs(), counts)), counts


NOISE = [
    Pair("A dog runs.", "Собака бежит."),
    Pair("A dog runs.", "Собака бежит."),  # a duplicate
    Pair("A dog runs.", "Бежит собака."),
    Pair(" 12 ", "12"),  # equal sides
    Pair("a" * 101, "б" * 26),  # 111 against 36: 3.08
    Pair("A cat.", "A small cat."),  # another script
    Pair("Stand.", "Стой."),  # in the validation set
]


def test_nothing_but_what_is_named_is_left_out() -> None:
    assert left(NOISE) == (NOISE, FilterCounts(read=7))


@pytest.mark.parametrize(
    ("filters", "gone"),
    [
        ({"duplicates": True}, 1),
        ({"identical": True}, 3),
        ({"length_ratio": 3.0}, 4),
        ({"script": True}, 5),
        ({"overlap": True}, 6),
    ],
)
def test_each_filter_leaves_out_its_own_kind_and_counts_it(filters: dict[str, Any], gone: int) -> None:
    found, counts = left(NOISE, {"Stand."}, **filters)
    assert found == [pair for index, pair in enumerate(NOISE) if index != gone]
    assert counts == FilterCounts(read=7, **dict.fromkeys(filters, 1))


def test_all_together_count_each_pair_once() -> None:
    found, counts = left(
        NOISE, {"Stand."}, length_ratio=3.0, identical=True, duplicates=True, overlap=True, script=True
    )
    assert found == [NOISE[0], NOISE[2]]
    assert counts.kept == 2
    twice = [Pair("same", "same"), Pair("same", "same")]
    assert left(twice, {"same"}, identical=True, duplicates=True, overlap=True)[1] == FilterCounts(read=2, overlap=2)


def test_the_table_tells_each_filter_that_is_on_and_adds_up() -> None:
    data = DataConfig(max_length=9, filters=FilterConfig(duplicates=True, length_ratio=2.5))
    counts = FilterCounts(read=12000, empty=3, too_long=2, length_ratio=1000)
    assert counts.summary(data).split("\n") == [
        "",
        "        12,000  pairs read",
        "             3  with an empty side",
        "         1,000  with very different lengths",
        "             0  duplicates",
        "             2  longer than data.max_length",
        "        10,995  kept",
    ]


@pytest.mark.parametrize(
    ("source", "target", "ratio"),
    [
        ("a" * 20, "b" * 50, 2.0),  # (50 + 10) / (20 + 10)
        ("b" * 50, "a" * 20, 2.0),
        ("", "b" * 10, 2.0),
        ("x" * 20, "中" * 10, 40 / 30),  # 20 + 10 and 3 * 10 + 10
        ("x" * 20, "かカ한" * 5, 40 / 30),  # 2 * 15 + 10
        ("x" * 35, "中ü" * 5, 45 / 30),  # 4 * 5 + 10
    ],
)
def test_the_ratio_counts_letters_with_ten_more_on_both_sides(source: str, target: str, ratio: float) -> None:
    assert length_ratio(Pair(source, target)) == pytest.approx(ratio)


def test_pairs_seen_before_are_those_a_set_would_find() -> None:
    generator = random.Random(1)
    seen, known, largest = SeenPairs(), set[Pair](), 0
    for size in [1, 5, 0, 700, 1, 1, 300, 1000, 2, 50]:
        pairs = [Pair(str(generator.randrange(900)), generator.choice("ab")) for _ in range(size)]
        expected = []
        for pair in pairs:
            expected.append(pair not in known)
            known.add(pair)
        assert seen.add(pairs).tolist() == expected
        largest = max(largest, len(seen._runs))
        assert sum(map(len, seen._runs)) == len(known)  # 8 bytes each
    assert largest <= 10


def test_a_pair_differs_from_one_whose_words_stand_on_the_other_side() -> None:
    assert SeenPairs().add([Pair("a b", "c"), Pair("a", "b c"), Pair("a", "b\tc")]).all()


def test_training_text_goes_through_the_filters_and_meets_no_test_source(tmp_path: Path) -> None:
    def corpus(name: str, lines: list[str]) -> dict[str, str]:
        for side in ("src", "tgt"):
            (tmp_path / f"{name}.{side}").write_text("".join(f"{line} {side}\n" for line in lines))
        return {"source": str(tmp_path / f"{name}.src"), "target": str(tmp_path / f"{name}.tgt")}

    train = [f"line {i % 80}" for i in range(100)]
    data = {
        "train": [corpus("train", train[:70]), corpus("more", train[70:])],
        "valid": [corpus("valid", ["line 1", "other"])],
        "test": {"t": [corpus("test", [" line 2"])], "h": {"hold_out": 5}},
        "filters": {"overlap": True, "duplicates": True},
    }
    splits = Splits(Config.model_validate({"name": "x", "data": data}))
    counts = FilterCounts()
    found = [pair.source for pair in splits.train(counts)]
    held = {pair.source for pair in splits.tests()["h"]}
    assert sorted(found) == sorted({f"{line} src" for line in train} - held - {"line 1 src", "line 2 src"})
    assert counts.read == 100
    assert counts.kept == len(found)
