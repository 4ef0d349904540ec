"""Held-out lines: chosen by the source text alone, equal sources together, everything in exactly one part."""

import unicodedata
from collections.abc import Callable
from pathlib import Path

import pytest

from transformer_cli.config.schema import Config
from transformer_cli.data.corpus import Pair
from transformer_cli.data.filters import FilterCounts
from transformer_cli.data.split import Splits
from transformer_cli.errors import ConfigError, DataError


def write(folder: Path, name: str, pairs: list[tuple[str, str]]) -> dict[str, str]:
    for side, column in (("src", 0), ("tgt", 1)):
        text = "".join(pair[column] + "\n" for pair in pairs)
        (folder / f"{name}.{side}").write_text(text, encoding="utf-8")
    return {"source": str(folder / f"{name}.src"), "target": str(folder / f"{name}.tgt")}


def config(folder: Path, pairs: list[tuple[str, str]], *, seed: int = 1, valid: object, **test: object) -> Config:
    corpus = write(folder, "all", pairs)
    return Config.model_validate({"name": "x", "seed": seed, "data": {"train": [corpus], "valid": valid, "test": test}})


PAIRS = [(f"source {i}", f"target {i}") for i in range(200)]


def test_each_pair_is_in_exactly_one_part(tmp_path: Path) -> None:
    splits = Splits(config(tmp_path, PAIRS, valid={"hold_out": 20}, one={"hold_out": 30}, two={"hold_out": 10}))
    counts = FilterCounts()
    parts = [list(splits.train(counts)), splits.valid(), *splits.tests().values()]
    assert [len(part) for part in parts] == [140, 20, 30, 10]
    assert sorted(pair for part in parts for pair in part) == sorted(Pair(*pair) for pair in PAIRS)
    assert (counts.read, counts.held_out, counts.kept) == (200, 60, 140)


def test_equal_sources_stay_together_and_the_set_grows(tmp_path: Path) -> None:
    pairs = [(f"source {i % 20}", f"target {i}") for i in range(200)]  # each source ten times
    splits = Splits(config(tmp_path, pairs, valid={"hold_out": 15}))
    held = splits.valid()
    assert len(held) == 20
    assert not {pair.source for pair in held} & {pair.source for pair in splits.train(FilterCounts())}


@pytest.mark.parametrize(
    "change", [lambda s: s + " ", lambda s: "\u00a0" + s, lambda s: s.replace(" ", "  "), lambda s: s + "\u200b",
               lambda s: unicodedata.normalize("NFD", s)],
)  # fmt: skip
def test_sources_that_differ_in_what_the_model_never_sees_stay_together(
    tmp_path: Path, change: Callable[[str], str]
) -> None:
    plain = [(f"Gr\u00fc\u00dfe {i}", f"target {i}") for i in range(100)]
    changed = [(change(source), target + "!") for source, target in plain]
    assert not {source for source, _ in plain} & {source for source, _ in changed}
    splits = Splits(config(tmp_path, plain + changed, valid={"hold_out": 20}))
    held = {pair.target.rstrip("!") for pair in splits.valid()}
    assert (len(splits.valid()), len(held)) == (20, 10)
    assert not held & {pair.target.rstrip("!") for pair in splits.train(FilterCounts())}


def test_the_choice_does_not_depend_on_the_order_of_lines(tmp_path: Path) -> None:
    forwards = Splits(config(tmp_path, PAIRS, valid={"hold_out": 20})).valid()
    backwards = Splits(config(tmp_path, PAIRS[::-1], valid={"hold_out": 20})).valid()
    assert forwards == backwards[::-1]


def test_another_seed_chooses_other_lines(tmp_path: Path) -> None:
    one = Splits(config(tmp_path, PAIRS, valid={"hold_out": 20})).valid()
    two = Splits(config(tmp_path, PAIRS, seed=2, valid={"hold_out": 20})).valid()
    assert one != two


def test_pairs_with_an_empty_side_are_never_held_out(tmp_path: Path) -> None:
    pairs = [(f"source {i}", "" if i % 2 else f"target {i}") for i in range(100)]
    splits = Splits(config(tmp_path, pairs, valid={"hold_out": 10}))
    assert all(pair.target for pair in splits.valid())
    counts = FilterCounts()
    assert len(list(splits.train(counts))) == 40
    assert (counts.empty, counts.held_out) == (50, 10)


def test_files_of_their_own_are_read_as_they_are(tmp_path: Path) -> None:
    valid = write(tmp_path, "valid", [("", "a"), ("b", "")])
    splits = Splits(config(tmp_path, PAIRS, valid=[valid]))
    assert splits.valid() == [("", "a"), ("b", "")]
    assert len(list(splits.train(FilterCounts()))) == 200
    assert splits.tests() == {}


def test_holding_out_everything_names_the_key_and_the_number_of_pairs(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"data\.test\.t: hold_out 150 .* 200 pairs"):
        Splits(config(tmp_path, PAIRS, valid={"hold_out": 50}, t={"hold_out": 150}))


def test_an_evaluation_set_without_lines_is_an_error(tmp_path: Path) -> None:
    valid = write(tmp_path, "valid", [])
    with pytest.raises(DataError, match=r"data\.valid has no lines"):
        Splits(config(tmp_path, PAIRS, valid=[valid])).valid()


def test_bytes_that_are_not_utf8_are_replaced_in_every_part_where_that_is_asked_for(tmp_path: Path) -> None:
    valid = write(tmp_path, "valid", [("v", "V")])
    held = config(tmp_path, PAIRS, valid=[valid], one={"hold_out": 20})
    for name in ("all.tgt", "valid.src"):
        path = tmp_path / name
        path.write_bytes(path.read_bytes() + b"\xff\n")
    for name in ("all.src", "valid.tgt"):
        path = tmp_path / name
        path.write_text(path.read_text() + "other\n")
    with pytest.raises(DataError, match=r"all\.tgt, line 201"):
        Splits(held)
    splits = Splits(held, "replace")
    assert splits.valid() == [("v", "V"), ("\ufffd", "other")]
    pairs = [*splits.train(FilterCounts()), *splits.tests()["one"]]
    assert len(pairs) == 201
    assert ("other", "\ufffd") in pairs
