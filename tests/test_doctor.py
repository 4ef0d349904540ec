"""The data doctor finds what was put into a text, at its place, and nothing else; what it mends stays paired."""

import json
import os
import random
import unicodedata
from pathlib import Path
from typing import Any

import pytest

from transformer_cli.config.load import load_config
from transformer_cli.config.schema import AnyCorpus, Corpus, Table
from transformer_cli.data.corpus import read_pairs
from transformer_cli.data.doctor.characters import flaws, is_decomposed, repaired
from transformer_cli.data.doctor.examination import Finding, SetReport, examine
from transformer_cli.data.doctor.repair import write_cleaned
from transformer_cli.data.doctor.report import as_plain, in_lines, repair_in_lines
from transformer_cli.errors import ConfigError

DATA = Path(os.environ.get("TRANSFORMER_CLI_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
LANGUAGES = ("en", "ru")

# Characters


def misread(text: str, codec: str) -> str:
    """UTF-8 read as something else."""
    return text.encode().decode(codec)


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("plain", []),
        ("größer, naïve — “quoted” … 中文（好） עברית", []),
        ("« Voilà », dit-il à Ângela: NÃO, SÃO Ä“", []),
        ("\u00a0no-break\u3000spaces", []),
        ("नमस्\u200dते 👨\u200d👩\u200d👧 \u200fשלום\u200e", []),
        ("a\u2028b", [("separators", 1)]),
        ("ab\x85 \x1c", [("separators", 2)]),
        ("a\rb", [("separators", 1)]),
        ("a\tb\0", [("controls", 1)]),
        ("a\x80", [("controls", 1)]),
        ("a\u200bb\u00ad", [("zero_width", 1)]),
        ("\ufeffa\ufffd", [("zero_width", 0), ("replaced", 2)]),
        ("ein " + misread("größer", "latin-1"), [("controls", 9), ("misread", 6)]),
        ("ein " + misread("Fuß", "cp1252"), [("misread", 6)]),
        (misread("“so“", "cp1252"), [("misread", 0)]),
        (misread("где", "cp1252"), [("misread", 0)]),
        ("AT&T; R&D, &c. &copy 5 &#xd800; &unknown; a;b", []),
        ("ja &nbsp;&gt; Maatre&euml;ls", [("escapes", 3)]),
        ("Tom&#39;s «B&#xfc;cher»", [("escapes", 3)]),
        ("a < b > c, x<y and y>z, <https://a.org/b>, <3", []),
        ('one <p class="x">', [("tags", 4)]),
        ("</b> größer", [("tags", 0)]),
        ("a<br/>b<br />", [("tags", 1)]),
    ],
)
def test_what_is_wrong_with_characters_is_found_at_its_place(line: str, found: list[tuple[str, int]]) -> None:
    assert list(flaws(line)) == found


@pytest.mark.parametrize(
    ("line", "mended"),
    [
        (" a\u00a0b \u3000", "a b"),
        ("a\u2028b\tc\rd", "a b c d"),
        ("a\0b\u200bc\u00add\ufeff", "abcd"),
        ("cafe\u0301", "café"),
        ("👨\u200d👩\u200d👧", "👨\u200d👩\u200d👧"),
        ("你好（世界）", "你好（世界）"),
        (misread("größer als Fuß", "cp1252"), "größer als Fuß"),
        (misread("größer", "latin-1"), "größer"),
        (misread("где он", "cp1252"), "где он"),
        ("Â and Ã alone", "Â and Ã alone"),
        ("a\ufffd", "a\ufffd"),
        ("\u2028", ""),
        ("&quot;Tom&#39;s&nbsp;&lt;b&gt;&quot; &amp;quot;", '"Tom\'s <b>" "'),
        ("a&#10;b&#13;c&shy;d &#x2028;", "a b cd"),
        ("AT&T; &copy 5 &unknown; <b>", "AT&T; &copy 5 &unknown; <b>"),
    ],
)
def test_a_line_is_mended_as_far_as_that_can_be_done_without_guessing(line: str, mended: str) -> None:
    assert repaired(line) == mended
    assert repaired(mended) == mended


def test_two_spellings_of_a_letter_are_told_apart_where_there_are_two() -> None:
    assert [is_decomposed(text) for text in ("cafe\u0301", "café", "cafe", "中", "für cafe\u0301")] == [
        True,
        False,
        None,
        None,
        True,
    ]


# Examination


def corpus(folder: Path, name: str, pairs: list[tuple[str, str]]) -> Corpus:
    for side in (0, 1):
        (folder / f"{name}.{LANGUAGES[side]}").write_text(
            "".join(pair[side] + "\n" for pair in pairs), encoding="utf-8", newline="\n"
        )
    return Corpus(source=folder / f"{name}.en", target=folder / f"{name}.ru")


def report_of(corpora: list[AnyCorpus], **others: Any) -> SetReport:
    return examine({"train": corpora}, LANGUAGES, **others)["train"]


def found(report: SetReport) -> dict[str, tuple[int | None, int | None]]:
    """Count and first line of each kind."""
    return {finding.kind: (finding.count, finding.line) for finding in report.findings}


def clean(count: int, seed: int = 1) -> list[tuple[str, str]]:
    """Pairs of which none is like another, in the right scripts and of fitting lengths."""
    generator = random.Random(seed)
    pairs = []
    for number in range(count):
        words = [str(number), *("word" for _ in range(generator.randint(2, 30)))]
        pairs.append((" ".join(words), " ".join(words).replace("word", "слово")))
    return pairs


def test_a_clean_text_has_no_findings_and_the_right_size(tmp_path: Path) -> None:
    pairs = [("One two.", "Раз, два."), ("Three", "Три")]
    report = report_of([corpus(tmp_path, "train", pairs)])
    assert report.findings == []
    assert report.pairs == 2
    assert (report.source.words, report.source.characters, report.source.longest) == (3, 13, 8)
    assert (report.target.words, report.target.characters, report.target.longest) == (3, 12, 9)


def test_each_kind_of_flaw_is_counted_with_its_first_line(tmp_path: Path) -> None:
    pairs = clean(200)
    pairs[9] = ("", "пусто")
    pairs[10] = ("nothing", "\u200b ")
    pairs[19] = pairs[59] = pairs[0]
    pairs[29] = ("12:30", "12:30")
    pairs[39] = ("short", "очень длинный ответ на короткое слово " * 3)
    pairs[49] = ("This is English.", "This is English too.")
    pairs[69] = ("a\u2028b", "два")
    pairs[79] = ("cafe\u0301", "кафе")
    pairs[80] = pairs[81] = ("café one", "кафе")
    report = report_of([corpus(tmp_path, "train", pairs)])
    assert found(report) == {
        "empty": (2, 10),
        "zero_width": (1, 11),
        "duplicates": (3, 20),
        "identical": (1, 30),
        "length_ratio": (1, 40),
        "script": (1, 50),
        "separators": (1, 70),
        "spelling": (1, 80),
    }
    assert {finding.level for finding in report.findings} == {"warning"}
    examples = {finding.kind: (finding.side, finding.example) for finding in report.findings}
    assert examples["empty"] == (None, " → пусто")
    assert examples["script"] == ("target", "This is English too.")
    assert examples["separators"] == ("source", r"a\u2028b")
    assert examples["identical"] == (None, "12:30 → 12:30")


def test_one_way_to_spell_accents_is_no_mix(tmp_path: Path) -> None:
    apart = [(unicodedata.normalize("NFD", f"café {i}"), f"кофе {i}") for i in range(5)]
    assert report_of([corpus(tmp_path, "train", apart)]).findings == []


def test_an_example_shows_the_neighbourhood_of_the_flaw(tmp_path: Path) -> None:
    line = "x" * 500 + "\u200b" + "y" * 500
    (example,) = [f.example for f in report_of([corpus(tmp_path, "a", [(line, "а" * 1000)])]).findings]
    assert example == "…" + "x" * 40 + r"\u200b" + "y" * 39 + "…"


def test_sources_of_training_that_stand_in_another_set_are_told_by_its_name(tmp_path: Path) -> None:
    train = [("one", "раз"), ("two", "два"), ("three", "три"), (" two ", "двое")]
    sets = {
        "train": [corpus(tmp_path, "train", train)],
        "valid": [corpus(tmp_path, "valid", [("two", "два"), ("four", "четыре")])],
        "test.a": [corpus(tmp_path, "test", [("four", "4"), ("three", "три")])],
    }
    reports = examine(sets, LANGUAGES)
    assert list(reports) == ["train", "valid", "test.a"]
    assert [(f.kind, f.words, f.count, f.line) for f in reports["train"].findings] == [
        ("overlap", "pairs whose source stands in valid too", 2, 2),
        ("overlap", "pairs whose source stands in test.a too", 1, 3),
    ]
    assert reports["valid"].findings == []
    assert [(f.kind, f.words) for f in reports["test.a"].findings] == [
        ("overlap", "pairs whose source stands in valid too")
    ]


def test_pairs_that_are_surely_over_max_length_are_told_of_training_alone(tmp_path: Path) -> None:
    pairs = [("one two three", "раз два три"), ("four", "четыре пять шесть семь"), ("six", "шесть")]
    sets = {name: [corpus(tmp_path, name, pairs[::step])] for name, step in (("train", 1), ("valid", 1))}
    found = examine(sets, ("und", "und"), max_length=3)
    assert [(f.kind, f.words, f.count, f.line) for f in found["train"].findings if f.kind == "too_long"] == [
        ("too_long", "pairs with over 3 words on a side, which is over data.max_length in pieces", 1, 2)
    ]
    assert all(finding.kind != "too_long" for finding in found["valid"].findings)


def test_a_tokenised_text_in_a_language_without_spaces_is_told(tmp_path: Path) -> None:
    plain = [(f"one {i}", f"我们 在 1.3 版中 {i} 次") for i in range(5)]
    tokenised = [(f"one more {i}", f"我们 一起 去 了 公园 。 {i}") for i in range(7)]
    found = examine({"train": [corpus(tmp_path, "a", plain + tokenised)]}, ("en", "zh"))["train"].findings
    assert [(f.kind, f.count, f.side, f.line) for f in found] == [("tokenised", 7, "target", 6)]
    assert found[0].words.startswith("lines tokenised, with spaces between words: ")
    few = [*plain, *(pair for i in range(2) for pair in [*plain, tokenised[i]])]
    found = examine({"train": [corpus(tmp_path, "b", few)]}, ("en", "zh"))["train"].findings
    assert [f.kind for f in found] == ["duplicates"]


@pytest.mark.parametrize(
    ("name", "languages", "kinds"),
    [
        ("tanaka-ja-en", ("ja", "en"), {"tokenised"}),
        ("mix-zh-en", ("zh", "en"), set()),
        ("tatoeba-zh-en", ("zh", "en"), set()),
    ],
)
def test_of_real_texts_only_the_tokenised_one_is_told_to_be(
    name: str, languages: tuple[str, str], kinds: set[str]
) -> None:
    if not (DATA / name).is_dir():
        pytest.skip(f"{name} is not here")
    text = Corpus(source=DATA / name / f"valid.{languages[0]}", target=DATA / name / f"valid.{languages[1]}")
    found = examine({"train": [text]}, languages)["train"].findings
    assert {finding.kind for finding in found} & {"tokenised"} == kinds


def test_lines_that_no_sentence_fills_are_told(tmp_path: Path) -> None:
    pairs = [("one", "раз"), ("word " * 2000, "слово " * 1600), ("word " * 2000 + "!", "слово " * 1600)]
    (long,) = report_of([corpus(tmp_path, "train", pairs)]).findings
    assert (long.words, long.count, long.side, long.line) == ("lines of over 10,000 characters", 1, "source", 3)


def test_duplicates_are_found_across_corpora_and_chunks(tmp_path: Path) -> None:
    pairs = clean(12_000)
    report = report_of([corpus(tmp_path, "a", pairs), corpus(tmp_path, "b", [("new", "новый"), pairs[5]])])
    assert [(f.kind, f.count, f.line) for f in report.findings] == [("duplicates", 1, 2)]
    assert report.findings[0].file == str(tmp_path / "b.en")


def test_a_shift_is_an_error_at_its_line(tmp_path: Path) -> None:
    sources, targets = map(list, zip(*clean(3000), strict=True))
    del targets[1499]
    report = report_of([corpus(tmp_path, "train", list(zip(sources, targets, strict=False)))])
    (shift,) = [finding for finding in report.findings if finding.kind != "length_ratio"]
    assert (shift.kind, shift.level, shift.file) == ("shift", "error", str(tmp_path / "train.en"))
    assert shift.line is not None
    assert abs(shift.line - 1500) <= 20
    assert shift.words.endswith("there each source fits the target 1 line before its own")


def test_a_target_of_another_text_is_told_as_a_whole(tmp_path: Path) -> None:
    pairs = [(source, target) for (source, _), (_, target) in zip(clean(300), clean(300, seed=2), strict=True)]
    report = report_of([corpus(tmp_path, "train", pairs)])
    (unrelated,) = [finding for finding in report.findings if finding.kind == "unrelated"]
    assert unrelated.words == (
        "in all 300 lines the lengths of the sides have nothing to do with each other: are they of the same text, in "
        "the same order?"
    )


def test_what_cannot_be_read_is_an_error_and_what_stands_before_it_is_looked_at(tmp_path: Path) -> None:
    one = corpus(tmp_path, "a", [*clean(50), ("tab\t", "таб")])
    (tmp_path / "a.ru").write_bytes((tmp_path / "a.ru").read_bytes() + b"\xff\n")
    (tmp_path / "a.en").write_bytes((tmp_path / "a.en").read_bytes() + b"x\n")
    two = corpus(tmp_path, "b", [("another", "другой")])
    report = report_of([one, two])
    assert report.pairs == 52
    assert [(f.level, f.kind) for f in report.findings] == [("error", "unreadable"), ("warning", "controls")]
    assert "a.ru, line 52: byte 1 of the line is 0xFF" in report.findings[0].words
    assert report.findings[0].words.endswith(". Only what stands before was examined: 51 lines")
    replaced = report_of([one, two], errors="replace")
    assert replaced.pairs == 53
    assert found(replaced)["replaced"] == (1, 52)


def test_files_of_different_length_and_missing_files_are_errors(tmp_path: Path) -> None:
    uneven = corpus(tmp_path, "a", clean(10))
    (tmp_path / "a.ru").write_text("один\n")
    missing = Corpus(source=tmp_path / "no.en", target=tmp_path / "no.ru")
    messages = [finding.words for finding in report_of([uneven, missing]).findings if finding.level == "error"]
    assert "a.en has 10 lines and " in messages[0]
    assert "no.en: No such file" in messages[1]
    assert [f.kind for f in report_of([corpus(tmp_path, "empty", [])]).findings] == ["no_pairs"]


def test_tables_are_looked_at_by_their_records(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text('{"en": "a", "ru": "а"}\n{"en": "b\\u200b", "ru": "б"}\n')
    report = report_of([Table(path=tmp_path / "t.jsonl", source_field="en", target_field="ru")])
    assert [(f.kind, f.side, f.line) for f in report.findings] == [("zero_width", "source", 2)]


def marked(count: int, text: str, total: int = 1000) -> list[tuple[str, str]]:
    """`total` pairs, of which the targets of the last `count` end in a text."""
    pairs = clean(total)
    return pairs[: total - count] + [(source, target + text) for source, target in pairs[total - count :]]


@pytest.mark.parametrize(
    ("in_train", "in_test", "text", "told"),
    [
        (0, 20, " ’н", "20 lines with ’ (U+2019): 2.0% of all, but of train 0.0%"),
        (0, 19, " ’н", None),  # may be chance
        (39, 200, " ’н’", "200 lines with ’ (U+2019): 20.0% of all, but of train 3.9%"),
        (40, 200, " ’н", None),  # one fifth, which is not rare
        (0, 100, " ё", None),  # a letter
        (0, 100, " к\u0300", None),  # a combining mark
        (100, 0, " ’н", None),
    ],
)
def test_punctuation_that_training_seldom_has_is_told_of_the_other_sets(
    tmp_path: Path, in_train: int, in_test: int, text: str, told: str | None
) -> None:
    sets: dict[str, list[AnyCorpus]] = {
        "train": [corpus(tmp_path, "train", marked(in_train, text))],
        "test.a": [corpus(tmp_path, "test", marked(in_test, text))],
    }
    reports = examine(sets, LANGUAGES)
    findings = [finding for finding in reports["test.a"].findings if finding.kind == "punctuation"]
    if told is None:
        assert findings == []
    else:
        (finding,) = findings
        assert f"{finding.count} {finding.words}".startswith(f"{told}; ")
        assert (finding.side, finding.line) == ("target", 1000 - in_test + 1)
        assert finding.example is not None
        assert "’" in finding.example
    assert all(finding.kind != "punctuation" for finding in reports["train"].findings)


def test_punctuation_is_not_compared_with_a_training_text_too_small_to_tell(tmp_path: Path) -> None:
    test = {"test.a": [corpus(tmp_path, "test", marked(100, "!"))]}  # 10 %
    for lines, kinds in ((199, []), (200, ["punctuation"])):  # would have 20 of them
        train: list[AnyCorpus] = [corpus(tmp_path, f"train{lines}", clean(lines, seed=2))]
        findings = examine({"train": train, **test}, LANGUAGES)["test.a"].findings
        assert [finding.kind for finding in findings if finding.kind == "punctuation"] == kinds
    assert "punctuation" not in found(examine(test, LANGUAGES)["test.a"])


def test_the_test_set_of_autshumato_is_found_to_write_what_its_training_text_does_not() -> None:
    folder = DATA / "autshumato-af-en"
    if not folder.is_dir():
        pytest.skip("autshumato-af-en is not here")
    sets: dict[str, list[AnyCorpus]] = {
        name: [Corpus(source=folder / f"{name}.af", target=folder / f"{name}.en")] for name in ("train", "test")
    }
    findings = examine(sets, ("af", "en"))["test"].findings
    assert [(f.side, f.count, f.words.split()[2]) for f in findings if f.kind == "punctuation"] == [
        ("source", 1984, "’"),
        ("source", 208, "<"),
        ("target", 304, "’"),
        ("target", 208, "<"),
        ("target", 92, "“"),
        ("target", 88, "”"),
    ]


def test_unknown_languages_are_not_judged_by_script(tmp_path: Path) -> None:
    pairs = [("Собака", "dog"), ("кошка", "cat")]
    assert examine({"train": [corpus(tmp_path, "a", pairs)]}, ("und", "tlh"))["train"].findings == []


def test_clean_real_text_raises_no_error(tmp_path: Path) -> None:
    if not (DATA / "multi30k").is_dir():
        pytest.skip("multi30k is not here")
    text = Corpus(source=DATA / "multi30k" / "train.en", target=DATA / "multi30k" / "train.de")
    report = examine({"train": [text]}, ("en", "de"))["train"]
    assert report.pairs == 29_000
    assert report.errors == 0
    assert found(report) == {
        "controls": (1, 7366),
        "escapes": (1, 14875),  # of the target; the source has 16, all &amp;
        "length_ratio": (2, 16510),
        "duplicates": (3, 14215),
    }


# Repair


def cleaned(folder: Path, sets: dict[str, list[AnyCorpus]], languages: tuple[str, str] = LANGUAGES) -> Any:
    return write_cleaned(sets, examine(sets, languages), languages, folder, "strict")


def test_a_cleaned_copy_has_no_findings_left_and_its_pairs_are_pairs(tmp_path: Path) -> None:
    pairs = clean(100)
    dirty = [*pairs[:50], ("", "пусто"), pairs[0], ("same", "same"), *pairs[50:], (" tab\there\u200b", "кафе")]
    sets: dict[str, list[AnyCorpus]] = {
        "train": [corpus(tmp_path, "train", dirty), corpus(tmp_path, "more", [pairs[3], ("more", "больше")])],
        "valid": [corpus(tmp_path, "valid", [(f" {pairs[7][0]}", "да"), ("", "")])],
    }
    done = cleaned(tmp_path / "new", sets)
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == [
        "train.1.en", "train.1.ru", "train.2.en", "train.2.ru", "valid.en", "valid.ru",
    ]  # fmt: skip
    copies = {name: [Corpus(source=one.source, target=one.target) for one in done[name]] for name in sets}
    assert list(read_pairs(copies["train"])) == [*pairs[:7], *pairs[8:], ("tab here", "кафе"), ("more", "больше")]
    assert list(read_pairs(copies["valid"])) == [(pairs[7][0], "да"), ("", "")]
    # The two sides that were changed are the last source of train and the first of valid.
    assert [(one.changed, one.written, one.left_out) for one in done["train"]] == [
        (1, 100, {"empty": 1, "overlap": 1, "identical": 1, "duplicates": 1}),
        (0, 1, {"duplicates": 1}),
    ]
    assert [(one.changed, one.written, one.left_out) for one in done["valid"]] == [(1, 2, {})]
    again = examine(copies, LANGUAGES)
    assert again["train"].findings == []


def test_no_copy_takes_the_place_of_another_whose_set_is_called_like_it_with_a_number(tmp_path: Path) -> None:
    texts = {stem: corpus(tmp_path, stem, clean(2, seed)) for seed, stem in enumerate(("a1", "a2", "b", "c", "d"))}
    sets: dict[str, list[AnyCorpus]] = {
        "test.a": [texts["a1"], texts["a2"]],
        "test.a.1": [texts["b"]],
        "test.a.1.1": [texts["c"]],
        "test.A.2": [texts["d"]],
    }
    done = cleaned(tmp_path / "new", sets)
    assert [one.source.name for copies in done.values() for one in copies] == [
        "test.a.1.en", "test.a.2.en", "test.a.1.1.en", "test.a.1.1.1.en", "test.A.2.1.en",
    ]  # fmt: skip
    for name, corpora in sets.items():
        assert list(read_pairs([Corpus(source=one.source, target=one.target) for one in done[name]])) == list(
            read_pairs(corpora)
        )


def test_the_entry_of_a_copy_has_the_weight_of_its_corpus(tmp_path: Path) -> None:
    text = corpus(tmp_path, "a", clean(3))
    (tmp_path / "t.tsv").write_text("one\tраз\n", encoding="utf-8")
    sets: dict[str, list[AnyCorpus]] = {
        "train": [
            text.model_copy(update={"weight": 0.5}),
            Table(path=tmp_path / "t.tsv", source_field=1, target_field=2, weight=1e-05),
        ],
        "valid": [corpus(tmp_path, "b", clean(3, seed=2))],
    }
    done, new = cleaned(tmp_path / "new", sets), tmp_path / "new"
    lines = repair_in_lines(done, examine(sets, LANGUAGES), None)
    entries = [line.strip() for line in lines if line.startswith("  {")]
    assert entries == [
        f"{{source: {new}/train.1.en, target: {new}/train.1.ru, weight: 0.5}}",
        f"{{source: {new}/train.2.en, target: {new}/train.2.ru, weight: 1e-05}}",
        f"{{source: {new}/valid.en, target: {new}/valid.ru}}",
    ]
    (tmp_path / "pasted.yaml").write_text(f"data: {{train: [{entries[0]}, {entries[1]}], valid: [{entries[2]}]}}\n")
    pasted = load_config(tmp_path / "pasted.yaml").data
    assert [one.weight for one in pasted.train] == [0.5, 1e-05]
    assert as_plain({}, done)["written"]["train"][0]["weight"] == 0.5


def test_a_set_with_errors_is_not_written(tmp_path: Path) -> None:
    uneven = corpus(tmp_path, "a", clean(10))
    (tmp_path / "a.ru").write_text("один\n")
    good = corpus(tmp_path, "b", clean(5, seed=2))
    sets: dict[str, list[AnyCorpus]] = {"train": [uneven], "valid": [good]}
    done = cleaned(tmp_path / "new", sets)
    assert list(done) == ["valid"]
    lines = list(repair_in_lines(done, examine(sets, LANGUAGES), None))
    assert lines[:2] == [
        "train: not written, for its errors need a person: correct them in its files, and run this again",
        "valid: 5 pairs written, 0 lines changed",
    ]


def test_a_text_that_is_shifted_leaves_no_empty_folder_and_says_what_to_look_for(tmp_path: Path) -> None:
    sources, targets = map(list, zip(*clean(3000), strict=True))
    del targets[1499]
    sets: dict[str, list[AnyCorpus]] = {"train": [corpus(tmp_path, "a", list(zip(sources, targets, strict=False)))]}
    done = cleaned(tmp_path / "new", sets)
    assert not (tmp_path / "new").exists()
    assert list(repair_in_lines(done, examine(sets, LANGUAGES), None))[1:] == [
        "  where the sides are shifted, a line is missing or there twice, near the first line named"
    ]


def test_one_of_each_is_told_in_the_singular(tmp_path: Path) -> None:
    sets: dict[str, list[AnyCorpus]] = {"train": [corpus(tmp_path, "a", [("I ", "Я")])]}
    report = examine(sets, LANGUAGES)
    assert list(in_lines(report))[:2] == [
        "train: 1 pair",
        "  source   1 word, 2 characters; 2.0 characters a line, 2 in the longest",
    ]
    done = cleaned(tmp_path / "new", sets)
    assert next(repair_in_lines(done, report, None)) == "train: 1 pair written, 1 line changed"


@pytest.mark.parametrize(
    ("names", "languages", "copies"),
    [
        (("a.en", "a.ru"), ("und", "und"), ["train.en", "train.ru"]),
        (("a.en.gz", "b.zh_TW"), ("und", "und"), ["train.en", "train.zh-tw"]),
        (("a.en", "a.ru"), ("de", "und"), ["train.de", "train.ru"]),
        (("a.txt", "b.txt"), ("und", "und"), ["train.source", "train.target"]),
        (("a", "b.ru"), ("und", "und"), ["train.source", "train.target"]),
        (("a.sentences", "b.ru"), ("und", "und"), ["train.source", "train.target"]),
    ],
)
def test_copies_end_in_the_languages_or_as_the_files_do_if_that_tells_them_apart(
    tmp_path: Path, names: tuple[str, str], languages: tuple[str, str], copies: list[str]
) -> None:
    for name in names:
        (tmp_path / name).write_text("".join(f"{i} {name}\n" for i in range(3)))
    cleaned(tmp_path / "new", {"train": [Corpus(source=tmp_path / names[0], target=tmp_path / names[1])]}, languages)
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == copies


def test_a_folder_with_something_in_it_is_left_alone(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not an empty folder"):
        cleaned(tmp_path, {"train": [corpus(tmp_path, "a", clean(3))]})


# Words


def test_the_report_tells_each_finding_with_its_place(tmp_path: Path) -> None:
    report = SetReport(pairs=1200)
    report.source.words, report.source.characters, report.source.longest = 3000, 24_000, 99
    report.findings = [
        Finding("error", "unreadable", "x.en cannot be read"),
        Finding("error", "shift", "from line 7 on", file="a.en", line=7),
        Finding("warning", "script", "lines in another script", 1, "a.ru", "target", 5, "abc"),
        Finding("warning", "empty", "pairs with an empty side", 2000, "a.en", None, 3, " → b"),
    ]
    lines = list(in_lines({"train": report, "valid": SetReport(pairs=1)}))
    assert lines == [
        "train: 1,200 pairs",
        "  source   3,000 words, 24,000 characters; 20.0 characters a line, 99 in the longest",
        "  target   0 words, 0 characters; 0.0 characters a line, 0 in the longest",
        "  error    x.en cannot be read",
        "  error    from line 7 on",
        "           a.en:7",
        "  warning  1 line in another script",
        "           first: a.ru:5 (target): abc",
        "  warning  2,000 pairs with an empty side",
        "           first: a.en:3:  → b",
        "valid: 1 pair",
        "  source   0 words, 0 characters; 0.0 characters a line, 0 in the longest",
        "  target   0 words, 0 characters; 0.0 characters a line, 0 in the longest",
        "2 errors, 2 warnings",
    ]
    plain = json.loads(json.dumps(as_plain({"train": report}, None)))
    assert (plain["errors"], plain["warnings"]) == (2, 2)
    assert plain["sets"]["train"]["findings"][2] == {
        "level": "warning", "kind": "script", "words": "lines in another script", "count": 1, "file": "a.ru",
        "side": "target", "line": 5, "example": "abc",
    }  # fmt: skip
