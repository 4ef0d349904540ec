"""Pairs, from files of any kind, which are never shifted or cut."""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from transformer_cli.config.schema import Corpus, Table
from transformer_cli.data.corpus import Pair, files_of, read_corpus, read_pairs, records_by_file
from transformer_cli.errors import DataError


@pytest.fixture
def corpus(tmp_path: Path) -> Callable[[str, str], Corpus]:
    counter: Iterator[int] = iter(range(100))

    def write(source: str, target: str) -> Corpus:
        folder = tmp_path / str(next(counter))
        folder.mkdir()
        (folder / "train.src").write_bytes(source.encode())
        (folder / "train.tgt").write_bytes(target.encode())
        return Corpus(source=folder / "train.src", target=folder / "train.tgt")

    return write


def test_pairs_come_in_order_one_corpus_after_the_other(corpus: Callable[[str, str], Corpus]) -> None:
    first, second = corpus("a\n\nc\n", "A\nB\n\n"), corpus("d", "D\n")
    assert list(read_pairs([first, second])) == [Pair("a", "A"), Pair("", "B"), Pair("c", ""), Pair("d", "D")]
    assert list(read_pairs([])) == []


def test_bytes_that_are_not_utf8_are_refused_or_replaced_on_both_sides(corpus: Callable[[str, str], Corpus]) -> None:
    bad = corpus("a\n", "A\n")
    for path in (bad.source, bad.target):
        path.write_bytes(b"\xffx\n")
    with pytest.raises(DataError, match=r"train\.src, line 1: byte 1 of the line is 0xFF"):
        list(read_pairs([bad]))
    assert list(read_pairs([bad], "replace")) == [Pair("\ufffdx", "\ufffdx")]


@pytest.mark.parametrize(("sources", "targets"), [(1000, 999), (999, 1000), (3, 40), (0, 2)])
def test_files_of_different_length_are_refused_with_both_names_and_counts(
    corpus: Callable[[str, str], Corpus], sources: int, targets: int
) -> None:
    uneven = corpus("a\n" * sources, "b\n" * targets)
    with pytest.raises(DataError) as caught:
        list(read_pairs([uneven]))
    assert f"train.src has {sources} lines" in str(caught.value)
    assert f"train.tgt has {targets}:" in str(caught.value)


def test_reading_logs_nothing_when_nothing_is_wrong(
    corpus: Callable[[str, str], Corpus], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        list(read_pairs([corpus("a\n", "b\n")]))
    assert not caplog.records


# Several files


def write(folder: Path, **texts: str) -> None:
    for name, text in texts.items():
        (folder / name.replace("_", ".")).write_text(text)


def test_lists_are_paired_in_their_order_and_names_with_a_star_in_that_of_the_names(tmp_path: Path) -> None:
    write(tmp_path, b_en="b1\n", a_en="a1\na2", c_en="c1\n", b_de="B1\n", a_de="A1\nA2\n", c_de="C1\n")
    starred = Corpus(source=tmp_path / "*.en", target=tmp_path / "[a-c].de")
    assert [pair.source for pair in read_pairs([starred])] == ["a1", "a2", "b1", "c1"]
    assert all(pair.source.upper() == pair.target for pair in read_pairs([starred]))
    listed = Corpus(
        source=(tmp_path / "c.en", tmp_path / "[ab].en"),
        target=(tmp_path / "c.de", tmp_path / "a.de", tmp_path / "b.de"),
    )
    assert list(read_corpus(listed)) == [Pair("c1", "C1"), Pair("a1", "A1"), Pair("a2", "A2"), Pair("b1", "B1")]
    assert files_of(listed) == [tmp_path / name for name in ("c.en", "a.en", "b.en", "c.de", "a.de", "b.de")]


def test_the_lines_of_each_file_are_counted_from_one(tmp_path: Path) -> None:
    write(tmp_path, a_en="1\n2\n", b_en="3\n", a_de="1\n2\n", b_de="3\n")
    parts = list(records_by_file(Corpus(source=tmp_path / "*.en", target=tmp_path / "*.de")))
    assert [(Path(part.source).name, Path(part.target).name, part.unit) for part in parts] == [
        ("a.en", "a.de", "line"),
        ("b.en", "b.de", "line"),
    ]
    assert [[record.number for record in part.records] for part in parts] == [[1, 2], [1]]


def test_lines_missing_in_one_file_are_not_made_up_for_by_the_next(tmp_path: Path) -> None:
    write(tmp_path, a_en="1\n2\n", b_en="3\n", a_de="1\n", b_de="2\n3\n")
    with pytest.raises(DataError, match=r"a\.en has 2 lines and .*a\.de has 1:"):
        list(read_pairs([Corpus(source=tmp_path / "*.en", target=tmp_path / "*.de")]))


def test_numbers_of_files_that_do_not_agree_are_an_error_that_names_the_files(tmp_path: Path) -> None:
    write(tmp_path, a_en="1\n", b_en="2\n", a_de="1\n")
    with pytest.raises(DataError, match=r"2 files of sources and 1 of targets .*: a\.en, b\.en \| a\.de"):
        list(read_pairs([Corpus(source=tmp_path / "*.en", target=tmp_path / "*.de")]))
    with pytest.raises(DataError, match=r"no file fits .*\*\.fr"):
        list(read_pairs([Corpus(source=tmp_path / "*.en", target=tmp_path / "*.fr")]))


def test_a_file_whose_own_name_has_a_star_is_that_file(tmp_path: Path) -> None:
    folder = tmp_path / "[old] *"
    folder.mkdir()
    write(folder, a_en="a\n", b_en="b\n")
    (folder / "*.en").write_text("star\n")
    star = Corpus(source=folder / "*.en", target=folder / "*.en")
    assert list(read_pairs([star])) == [Pair("star", "star")]
    letters = Corpus(source=folder / "[ab].en", target=folder / "?.en")
    assert [pair.source for pair in read_corpus(letters.model_copy(update={"target": letters.source}))] == ["a", "b"]


def test_corpora_of_several_kinds_follow_each_other(tmp_path: Path) -> None:
    write(tmp_path, a_en="one\n", a_de="eins\n", t_tsv="zwei\ttwo\n", u_tsv="drei\tthree\n")
    text = Corpus(source=tmp_path / "a.en", target=tmp_path / "a.de")
    tables = Table(path=tmp_path / "*.tsv", source_field=2, target_field=1)
    assert list(read_pairs([tables, text])) == [("two", "zwei"), ("three", "drei"), ("one", "eins")]
    assert files_of(tables) == [tmp_path / "t.tsv", tmp_path / "u.tsv"]


def test_names_with_a_star_are_paired_by_what_it_stands_for(tmp_path: Path) -> None:
    for name in ("part.1.en", "part.3.en", "part.1.de", "part.2.de"):
        (tmp_path / name).write_text("a\n")
    corpus = Corpus(source=tmp_path / "part.*.en", target=tmp_path / "part.*.de")
    with pytest.raises(DataError, match=r"part\.3\.en has no partner among the files of .*part\.\*\.de"):
        list(read_pairs([corpus]))
    (tmp_path / "part.3.en").rename(tmp_path / "part.2.en")
    assert len(list(read_pairs([corpus]))) == 2


def test_names_whose_order_differs_are_paired_by_their_stars(tmp_path: Path) -> None:
    for name in ("news.en", "news.dev.en", "news.de", "news.dev.de"):
        (tmp_path / name).write_text(f"{name}\n")
    corpus = Corpus(source=tmp_path / "news*.en", target=tmp_path / "news*.de")
    assert list(read_pairs([corpus])) == [Pair("news.dev.en", "news.dev.de"), Pair("news.en", "news.de")]


def test_names_of_other_schemes_are_paired_in_their_order(tmp_path: Path) -> None:
    for folder, names in (("src", ("a.en", "b.en")), ("tgt", ("a.de", "b.de"))):
        (tmp_path / folder).mkdir()
        for name in names:
            (tmp_path / folder / name).write_text(f"{name}\n")
    corpus = Corpus(source=tmp_path / "src" / "*", target=tmp_path / "tgt" / "*")
    assert list(read_pairs([corpus])) == [Pair("a.en", "a.de"), Pair("b.en", "b.de")]


def test_a_name_that_no_pattern_can_be_is_no_file(tmp_path: Path) -> None:
    corpus = Corpus(source=tmp_path / "text" / "**.en", target=tmp_path / "b")
    with pytest.raises(DataError, match=r"\*\*\.en"):
        list(read_pairs([corpus]))
