"""Shifts are found where they begin, and nowhere else: on made-up lengths, and on real corpora cut for it."""

import os
import random
from pathlib import Path

import pytest

from transformer_cli.config.schema import Corpus
from transformer_cli.data.alignment import Shift, find_shift
from transformer_cli.data.corpus import read_pairs
from transformer_cli.data.lines import read_lines
from transformer_cli.errors import DataError

DATA = Path(os.environ.get("TRANSFORMER_CLI_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
REAL = {
    "multi30k": ("en", "de"),
    "tatoeba-de-en": ("de", "en"),
    "mix-zh-en": ("zh", "en"),
    "autshumato-af-en": ("en", "af"),
    "tanaka-ja-en": ("ja", "en"),
    "eutrans-es-en": ("es", "en"),
    "g2p-eng_us": ("g", "p"),
    "sigmorphon17-german": ("src", "tgt"),
    "dates-made": ("src", "tgt"),
    "scan-simple": ("cmd", "act"),
}


def made_up(count: int, seed: int, spread: float = 0.2) -> tuple[list[int], list[int]]:
    """Lengths of sources, and of targets that are about as long."""
    generator = random.Random(seed)
    sources = [int(generator.lognormvariate(4, 0.5)) + 1 for _ in range(count)]
    return sources, [max(1, round(length * generator.lognormvariate(0.1, spread))) for length in sources]


def real(name: str) -> tuple[list[int], list[int]]:
    if not (DATA / name).is_dir():
        pytest.skip(f"{name} is not here")
    source, target = ([len(line) for line in read_lines(DATA / name / f"train.{side}")] for side in REAL[name])
    return source, target


@pytest.mark.parametrize("lost", [1, 3])
@pytest.mark.parametrize("at", [200, 1500, 2800])
def test_lost_lines_are_found_on_either_side_and_with_their_number(lost: int, at: int) -> None:
    sources, targets = made_up(3000, seed=at)
    cut = targets[: at - 1] + targets[at - 1 + lost :] + targets[:lost]
    found = find_shift(sources, cut)
    assert found is not None
    assert (abs(found.first - at) <= 20, found.offset) == (True, -lost)
    found = find_shift(cut, sources)
    assert found is not None
    assert (abs(found.first - at) <= 20, found.offset) == (True, lost)


def test_a_shift_that_is_made_good_again_ends_there() -> None:
    sources, targets = made_up(3000, seed=1)
    shifted = [*targets[:999], *targets[1000:2000], 50, *targets[2000:]]
    found = find_shift(sources, shifted)
    assert found is not None
    assert (abs(found.first - 1000) <= 20, abs(found.last - 2000) <= 20, found.offset) == (True, True, -1)


def test_sides_that_part_for_good_are_found_without_an_offset() -> None:
    sources, targets = made_up(3000, seed=2)
    order = targets[2000:]
    random.Random(3).shuffle(order)
    found = find_shift(sources, targets[:2000] + order)
    assert found is not None
    assert (abs(found.first - 2001) <= 20, found.last, found.offset) == (True, 3000, None)
    beginning = targets[:1000]
    random.Random(3).shuffle(beginning)
    found = find_shift(sources, beginning + targets[1000:])
    assert found is not None
    assert (found.first, abs(found.last - 1000) <= 20, found.offset) == (1, True, None)


def test_two_texts_that_have_nothing_to_do_with_each_other_are_told_as_a_whole() -> None:
    (sources, _), (_, others) = made_up(3000, seed=2), made_up(3000, seed=9)
    assert find_shift(sources, others) == Shift(1, 3000, None)
    assert find_shift(sources[:200], others[:200]) == Shift(1, 200, None)
    assert find_shift(sources[:199], others[:199]) is None  # too few to tell
    assert find_shift(sources + sources, others + [length * 3 for length in others]) == Shift(1, 6000, None)


def test_another_subject_with_longer_translations_and_more_variety_is_no_shift() -> None:
    sources, targets = made_up(2000, seed=4)
    others, theirs = made_up(2000, seed=5, spread=0.4)
    assert find_shift(sources + others, targets + [length * 2 for length in theirs]) is None


@pytest.mark.parametrize("lengths", [[], [5], [5] * 19, [5] * 3000, [1] * 1500 + [9] * 1500])
def test_texts_without_variety_or_lines_prove_nothing(lengths: list[int]) -> None:
    assert find_shift(lengths, lengths) is None
    assert find_shift(lengths, lengths[::-1]) is None


def test_single_odd_pairs_are_no_shift() -> None:
    sources, targets = made_up(3000, seed=6)
    for line in range(100, 3000, 100):
        targets[line] *= 40
    assert find_shift(sources, targets) is None


# Real corpora


@pytest.mark.parametrize("name", REAL)
def test_clean_corpora_raise_no_alarm(name: str) -> None:
    sources, targets = real(name)
    assert find_shift(sources, targets) is None
    for start in range(0, len(sources) - 3000, 3000):
        assert find_shift(sources[start : start + 3000], targets[start : start + 3000]) is None


@pytest.mark.parametrize("name", sorted(set(REAL) - {"dates-made"}))  # all dates are about as long
def test_shuffled_targets_are_told_as_a_whole(name: str) -> None:
    sources, targets = real(name)
    random.Random(1).shuffle(targets)
    for count in (len(sources), 3000, 400):
        assert find_shift(sources[:count], targets[:count]) == Shift(1, count, None)


@pytest.mark.parametrize("name", ["multi30k", "tatoeba-de-en", "mix-zh-en"])
def test_a_line_lost_in_3000_real_pairs_is_named_within_20(name: str) -> None:
    sources, targets = real(name)
    for start in range(0, 27_000, 4_500):
        for at in (500, 1500, 2500):
            shifted = targets[start : start + at - 1] + targets[start + at : start + 3001]
            found = find_shift(sources[start : start + 3000], shifted)
            assert found is not None
            assert abs(found.first - at) <= 20
            assert found.offset == -1
            assert 3000 - found.last <= 20


# Files of different length


def test_unequal_files_of_different_texts_are_told_to_be_that(tmp_path: Path) -> None:
    (tmp_path / "source").write_text("\n".join("x" * length for length in made_up(999, 7)[0]) + "\n")
    (tmp_path / "target").write_text("\n".join("x" * length for length in made_up(1000, 8)[1]) + "\n")
    with pytest.raises(DataError, match=r"lines, they are not of the same text$"):
        list(read_pairs([Corpus(source=tmp_path / "source", target=tmp_path / "target")]))


@pytest.mark.parametrize("lost", ["source", "target"])
def test_the_error_of_unequal_files_names_the_line_where_they_part(tmp_path: Path, lost: str) -> None:
    sides = dict(
        zip(("source", "target"), (["x" * length for length in side] for side in made_up(1000, 7)), strict=True)
    )
    del sides[lost][599]
    for name, lines in sides.items():
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    with pytest.raises(DataError) as caught:
        list(read_pairs([Corpus(source=tmp_path / "source", target=tmp_path / "target")]))
    counts = (999, 1000) if lost == "source" else (1000, 999)
    assert f"source has {counts[0]} lines and " in str(caught.value)
    assert f"target has {counts[1]}: " in str(caught.value)
    line = int(str(caught.value).rpartition("they part at about line ")[2])
    assert abs(line - 600) <= 20
