"""Lines in, translations out: each line's own whatever its neighbours, in order, and within its limits."""

import gc
import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from untrained import LINES, translator

from transformer_cli import checkpoint
from transformer_cli.config.schema import DecodingConfig
from transformer_cli.data.lines import read_lines
from transformer_cli.data.tokenizer import BOS, EOS, PAD
from transformer_cli.decoding import translator as module
from transformer_cli.decoding.hypotheses import Hypothesis
from transformer_cli.decoding.search import beam_search
from transformer_cli.decoding.translator import Line, Translation, Translator, load_model, windows
from transformer_cli.errors import CheckpointError, ConfigError, DataError
from transformer_cli.model.masks import padding_mask, target_mask

CPU = torch.device("cpu")
EMPTY = Translation(text="", log_prob=0.0, score=0.0, n=0, truncated=False)


@pytest.fixture(scope="module")
def untrained() -> Translator:
    return translator()


@pytest.mark.parametrize("beam", [1, 4])
def test_translating_leaves_no_garbage_for_which_memory_would_have_to_be_searched(
    untrained: Translator, beam: int
) -> None:
    settings = DecodingConfig(beam_size=beam, max_length_b=8)
    list(untrained.translate(LINES, settings))
    gc.collect()
    gc.disable()
    try:
        list(untrained.translate(LINES * 5, settings))
        assert gc.collect() == 0
    finally:
        gc.enable()


# Far too long lines


@pytest.fixture
def short() -> Translator:
    """One that was trained, so it says, on at most 20 pieces."""
    return translator({"data": {"max_length": 20}})


def test_a_far_too_long_line_is_translated_in_parts_cut_at_spaces(
    short: Translator, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "_LONGEST_IN_ONE", 30)
    words = (" ".join(LINES) + " ").split() * 3
    line, encode = " ".join(words), short.tokenizers.source.encode
    parts = [""]
    for word in words:  # as many whole words as go into 20 pieces
        if len(encode(f"{parts[-1]} {word}")) > 20:
            parts.append("")
        parts[-1] = f"{parts[-1]} {word}".strip()
    assert len(parts) > 2
    beside = ["ba ce", "", line, "di fo"]
    found = list(short.translate(beside, two_beams(n_best=2)))
    assert caplog.messages == [f"a line of {len(encode(line))} pieces is translated in {len(parts)} parts"]
    alone = [next(short.translate([part], two_beams(n_best=2))) for part in parts]
    assert len(found[2]) == 2
    for rank, joined in enumerate(found[2]):
        assert joined.text == " ".join(of_part[rank].text for of_part in alone if of_part[rank].text)
        assert joined.log_prob == pytest.approx(sum(of_part[rank].log_prob for of_part in alone), abs=1e-3)
        assert list(joined.source_ids) == encode(line)
    for i in (0, 1, 3):
        assert [t.text for t in found[i]] == [t.text for t in next(short.translate([beside[i]], two_beams(n_best=2)))]


def two_beams(**changes: Any) -> DecodingConfig:
    return DecodingConfig(beam_size=2, max_length_a=0.5, max_length_b=4, **changes)


def test_a_far_too_long_word_is_cut_where_it_must_be(
    short: Translator, monkeypatch: pytest.MonkeyPatch, batches: list[list[int]]
) -> None:
    monkeypatch.setattr(module, "_LONGEST_IN_ONE", 30)
    (found,) = short.translate(["b" * 90], two_beams())
    pieces = short.tokenizers.source.encode("b" * 90)
    assert list(found[0].source_ids) == pieces
    assert batches == [[1] * -(-len(pieces) // 20)]


def test_up_to_a_thousand_pieces_a_line_stays_whole(short: Translator, batches: list[list[int]]) -> None:
    (found,) = short.translate(["b" * 1000], DecodingConfig(beam_size=1, max_length_a=0.0, max_length_b=3))
    assert len(found[0].source_ids) == 1001
    assert batches == [[1]]


# Order and batches


@pytest.mark.parametrize("batch_size", [1, 2, 5, 64])
def test_translations_come_in_the_order_of_the_lines_each_as_if_alone(untrained: Translator, batch_size: int) -> None:
    alone = [next(untrained.translate([line]))[0] for line in LINES]
    assert len({best.text for best in alone}) > 3
    found = [best for (best,) in untrained.translate(LINES, batch_size=batch_size)]
    assert [best.text for best in found] == [best.text for best in alone]
    assert [best.log_prob for best in found] == pytest.approx([best.log_prob for best in alone], abs=1e-4)


@pytest.fixture
def batches(untrained: Translator, monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """The numbers of the lines of each batch that is searched."""
    searched: list[list[int]] = []
    search = Translator._search

    def recording(self: Translator, model: Any, lines: list[Line], *settings: Any) -> list[list[Hypothesis]]:
        found = search(self, model, lines, *settings)
        searched.append([line.number for line in lines])
        return found

    monkeypatch.setattr(Translator, "_search", recording)
    return searched


def test_a_batch_holds_lines_of_like_length_longest_first_and_no_empty_ones(
    untrained: Translator, batches: list[list[int]]
) -> None:
    lines = ["bababa", "", "b" * 15, "ababab", "b"]
    lengths = [len(untrained.tokenizers.source.encode(line)) for line in lines]
    assert lengths[2] > lengths[0] == lengths[3] > lengths[4] > lengths[1] == 0
    list(untrained.translate(lines, DecodingConfig(beam_size=1), batch_size=2))
    assert batches == [[3, 1], [4, 5]]


def test_long_lines_make_smaller_batches(
    untrained: Translator, batches: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = ["b" * 9] * 2 + ["b" * 5] * 3 + ["b" * 40]
    lengths = [len(untrained.tokenizers.source.encode(line)) for line in lines]
    assert lengths == [10, 10, 6, 6, 6, 41]
    # 44 cells are two rows of 10 + 1 with a beam of 2, three of 6 + 1, and never fewer than one row.
    monkeypatch.setattr(untrained, "_cells", 44)
    list(untrained.translate(lines, DecodingConfig(beam_size=2)))
    assert batches == [[6], [1, 2], [3, 4, 5]]


@pytest.mark.parametrize("error", [MemoryError("of this machine"), torch.OutOfMemoryError("of the device")])
def test_where_memory_runs_out_smaller_batches_give_the_same(
    untrained: Translator, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    expected = list(untrained.translate(LINES))
    monkeypatch.setattr(untrained, "_cells", untrained._cells)
    cells = []

    def with_little_room(model: Any, src: torch.Tensor, *settings: Any) -> list[list[Hypothesis]]:
        cells.append(src.numel())
        if src.numel() > 40:
            raise error
        return beam_search(model, src, *settings)

    monkeypatch.setattr(module, "beam_search", with_little_room)
    found = list(untrained.translate(LINES))
    assert [best.text for (best,) in found] == [best.text for (best,) in expected]
    assert cells[0] > 80, "the first does not fit, nor does half of it"
    first = next(i for i, count in enumerate(cells) if count <= 40)
    assert max(cells[first:]) <= cells[0] / 4, "what was too much once is not tried again"
    assert "out of memory with 6 lines at once" in caplog.text


def test_a_single_line_without_memory_is_named(untrained: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    def without_room(*arguments: Any) -> list[list[Hypothesis]]:
        raise MemoryError("gone")

    monkeypatch.setattr(module, "beam_search", without_room)
    monkeypatch.setattr(untrained, "_cells", untrained._cells)
    with pytest.raises(DataError, match=r"line 2 has \d+ pieces, which do not fit into memory: use a smaller "):
        list(untrained.translate(["", "ba ce"]))


def test_a_single_text_is_no_list_of_lines(untrained: Translator) -> None:
    with pytest.raises(TypeError, match=r"for a single one give \[text\]"):
        next(untrained.translate("ba ce"))


def test_one_line_is_answered_before_the_next_is_read(untrained: Translator) -> None:
    read = []

    def lines() -> Iterator[str]:
        for line in LINES:
            read.append(line)
            yield line

    answers = untrained.translate(lines(), batch_size=1)
    next(answers)
    next(answers)
    assert read == LINES[:2]


def test_an_endless_stream_is_translated_window_by_window(untrained: Translator) -> None:
    answers = untrained.translate(itertools.cycle(LINES), batch_size=2)
    assert len(list(itertools.islice(answers, 40))) == 40


@pytest.mark.parametrize("batch_size", [1, 4])
def test_a_line_without_pieces_has_the_empty_translation_whatever_n_best_is(
    untrained: Translator, batch_size: int
) -> None:
    lines = ["", "   ", "\t", "\u200b", "\u3000", "ba ce", "\0"]
    decoding = untrained.config.decoding.model_copy(update={"n_best": 3})
    found = list(untrained.translate(lines, decoding, batch_size))
    assert [len(line) for line in found] == [1, 1, 1, 1, 1, 3, 1]
    assert all(line == [EMPTY] for line in found if len(line) == 1)
    assert found[5] == next(untrained.translate(["ba ce"], decoding))


def test_no_lines_give_no_translations(untrained: Translator) -> None:
    assert list(untrained.translate([])) == []
    assert untrained.best_texts(["", ""]) == ["", ""]


# Scores and limits


@pytest.mark.parametrize("kind", ["wu", "avg", "none"])
def test_the_n_best_are_sorted_by_the_score_that_the_formula_gives(untrained: Translator, kind: str) -> None:
    decoding = DecodingConfig.model_validate(
        {"beam_size": 4, "n_best": 4, "length_penalty": 0.7, "length_penalty_type": kind, "max_length_b": 4}
    )

    def penalty(n: int) -> float:
        return float({"wu": ((5 + n) / 6) ** 0.7, "avg": n**0.7, "none": 1.0}[kind])

    for line in untrained.translate(LINES, decoding):
        assert [one.score for one in line] == sorted((one.score for one in line), reverse=True)
        for one in line:
            assert one.score == pytest.approx(one.log_prob / penalty(one.n), rel=1e-5)


def test_the_limit_is_a_times_the_source_pieces_plus_b_steps_rounded_down(untrained: Translator) -> None:
    decoding = DecodingConfig(beam_size=2, max_length_a=0.7, max_length_b=3)
    for line, (best,) in zip(LINES, untrained.translate(LINES, decoding), strict=True):
        limit = int(0.7 * len(untrained.tokenizers.source.encode(line)) + 3)
        assert best.n == limit if best.truncated else best.n <= limit
    assert any(best.truncated for (best,) in untrained.translate(LINES, decoding))


def test_the_settings_of_the_run_hold_unless_others_are_given() -> None:
    own = translator({"decoding": {"n_best": 2, "max_length_a": 0.0, "max_length_b": 2}})
    assert [len(line) for line in own.translate(LINES)] == [2] * len(LINES)
    assert all(one.n <= 2 for line in own.translate(LINES) for one in line)
    assert [len(line) for line in own.translate(LINES, DecodingConfig(max_length_b=1))] == [1] * len(LINES)


# Learned positions end somewhere


@pytest.fixture(scope="module")
def learned() -> Translator:
    return translator(
        {
            "model": {"positions": "learned", "max_positions": 12},
            "data": {"max_length": 11},
            "decoding": {"beam_size": 1},
        }
    )


def test_a_line_beyond_learned_positions_is_translated_in_parts(
    learned: Translator, caplog: pytest.LogCaptureFixture
) -> None:
    source = learned.tokenizers.source
    assert [len(source.encode(line)) for line in ("ba", "babababab", "bababababa")] == [3, 10, 11]
    assert len(learned.best_texts(["bababababa"])) == 1
    lines = ["ba"] * 20 + ["bababababab"]
    parts = [next(learned.translate([part]))[0] for part in ("bababababa", "b")]
    for batch_size in (1, 64):
        *_, (found,) = learned.translate(lines, batch_size=batch_size)
        assert found.source_ids == tuple(source.encode(lines[-1]))
        assert [part.source_ids for part in found.parts] == [found.source_ids[:11], found.source_ids[11:]]
        assert found.parts[0].ids == parts[0].ids
        assert found.ids == tuple(i for part in found.parts for i in part.ids)
    assert caplog.messages == ["a line of 12 pieces is translated in 2 parts"] * 2


def test_a_translation_ends_where_learned_positions_do(learned: Translator) -> None:
    decoding = DecodingConfig(beam_size=1, max_length_a=0.0, max_length_b=100)
    (best,) = next(learned.translate(["ba"], decoding))
    assert (best.n, best.truncated) == (12, True)


# Files


@pytest.mark.parametrize(
    "sections",
    [{}, {"tokenizer": {"shared": False, "vocab_size": 40}, "model": {"tie_embeddings": "target"}}],
    ids=["shared", "separate"],
)
def test_a_file_translates_as_the_model_that_was_written(tmp_path: Path, sections: dict[str, Any]) -> None:
    own = translator(sections)
    checkpoint.write(tmp_path / "model.safetensors", own.as_file({"kind": "best"}))
    again = Translator.load(tmp_path, device="cpu")
    assert list(again.translate(LINES)) == list(own.translate(LINES))
    assert list(Translator.load(str(tmp_path / "model.safetensors")).translate(LINES)) == list(own.translate(LINES))
    shared = not sections
    assert (again.tokenizers.source is again.tokenizers.target) == shared
    assert again.as_file({}).tokenizers.keys() == ({"shared"} if shared else {"source", "target"})


def test_a_file_can_be_used_in_another_precision(tmp_path: Path, untrained: Translator) -> None:
    checkpoint.write(tmp_path / "model.safetensors", untrained.as_file({}))
    half = Translator.load(tmp_path, device="cpu", precision="bf16")
    assert {parameter.dtype for parameter in half.model.parameters()} == {torch.bfloat16}
    (exact,), (rounded,) = next(untrained.translate(["fo"])), next(half.translate(["fo"]))
    assert rounded.log_prob != exact.log_prob
    assert rounded.log_prob == pytest.approx(exact.log_prob, rel=0.05)
    # A model in training stays as it is, and only computes in that precision.
    trained = Translator(untrained.model, untrained.tokenizers, untrained.config, CPU, "bf16")
    (computed,) = next(trained.translate(["fo"]))
    assert {parameter.dtype for parameter in trained.model.parameters()} == {torch.float32}
    assert computed.log_prob != exact.log_prob
    assert computed.log_prob == pytest.approx(exact.log_prob, rel=0.05)


def test_weights_that_do_not_belong_to_the_configuration_are_refused(untrained: Translator) -> None:
    file = untrained.as_file({})
    name = next(iter(file.weights))
    renamed = {("other" if key == name else key): tensor for key, tensor in file.weights.items()}
    with pytest.raises(CheckpointError, match=f"not those its configuration asks for: .*{name}"):
        load_model(replace(file, weights=renamed), untrained.tokenizers, "fused")
    cut = {key: (tensor[:1] if key == name else tensor) for key, tensor in file.weights.items()}
    with pytest.raises(CheckpointError, match="do not fit its configuration"):
        load_model(replace(file, weights=cut), untrained.tokenizers, "fused")


# Several models


def test_a_model_and_itself_translate_as_the_model_does(tmp_path: Path, untrained: Translator) -> None:
    checkpoint.write(tmp_path / "model.safetensors", untrained.as_file({}))
    both = Translator.load(tmp_path, device="cpu", ensemble=[tmp_path, tmp_path / "model.safetensors"])
    for (two,), (one,) in zip(both.translate(LINES), untrained.translate(LINES), strict=True):
        assert two.ids == one.ids
        assert two.log_prob == pytest.approx(one.log_prob, abs=1e-5)


def test_models_of_different_vocabularies_are_no_ensemble(tmp_path: Path, untrained: Translator) -> None:
    checkpoint.write(tmp_path / "one.safetensors", untrained.as_file({}))
    checkpoint.write(tmp_path / "two.safetensors", translator({"tokenizer": {"vocab_size": 48}}).as_file({}))
    with pytest.raises(ConfigError, match=r"two\.safetensors has other tokenizers than .*one\.safetensors"):
        Translator.load(tmp_path / "one.safetensors", ensemble=[tmp_path / "two.safetensors"])


def test_an_ensemble_takes_lines_in_one_as_long_as_its_shortest_table_of_positions(
    tmp_path: Path, untrained: Translator, learned: Translator
) -> None:
    checkpoint.write(tmp_path / "endless.safetensors", untrained.as_file({}))
    checkpoint.write(tmp_path / "learned.safetensors", learned.as_file({}))
    decoding = DecodingConfig(beam_size=1, max_length_b=100)
    for one, other in (("endless", "learned"), ("learned", "endless")):
        both = Translator.load(
            tmp_path / f"{one}.safetensors", device="cpu", ensemble=[tmp_path / f"{other}.safetensors"]
        )
        assert next(both.translate(["bababababa"], decoding))[0].n <= 12
        assert len(next(both.translate(["bababababab"], decoding))[0].parts) == 2


# Prefixes


def test_each_translation_begins_with_the_prefix_of_its_line(untrained: Translator) -> None:
    prefixes = ["GU HA", "", "BA CE DI FO GU HA JE KI LO MU NA PE QI", "BA", "", "RO"]
    target = untrained.tokenizers.target
    found = list(
        untrained.translate(LINES, DecodingConfig(beam_size=3, n_best=3, max_length_b=4), 4, prefixes=prefixes)
    )
    for prefix, translations in zip(prefixes, found, strict=True):
        ids = tuple(target.encode(prefix))
        assert all(one.ids[: len(ids)] == ids for one in translations)
        assert all(one.text.startswith(prefix) for one in translations)
    without = list(untrained.translate([LINES[1], LINES[4]], DecodingConfig(beam_size=3, n_best=3, max_length_b=4), 4))
    assert [one.ids for one in found[1]] == [one.ids for one in without[0]]
    assert [one.ids for one in found[4]] == [one.ids for one in without[1]]


def test_a_prefix_beyond_the_limit_is_given_whole_with_one_step_more(untrained: Translator) -> None:
    prefix = "BA CE DI FO GU HA"
    ids = untrained.tokenizers.target.encode(prefix)
    decoding = DecodingConfig(beam_size=2, max_length_a=0.0, max_length_b=2)
    (best,) = next(untrained.translate(["fo"], decoding, prefixes=[prefix]))
    assert best.n == len(ids) + 1
    assert list(best.ids[: len(ids)]) == ids


def test_too_few_prefixes_are_told_with_the_number_of_lines_they_serve(untrained: Translator) -> None:
    for batch_size in (1, 64):
        answers = untrained.translate(LINES, batch_size=batch_size, prefixes=["BA", "CE"])
        with pytest.raises(DataError, match="there are prefixes for 2 lines, and there are more lines"):
            list(answers)


# A model that has seen a few updates only, so that hypotheses are close to each other: what leaks between neighbours
# shows.


@pytest.fixture(scope="module")
def flat(trained: Path) -> Translator:
    # By then the model has just begun to put out words.
    return Translator.load(trained / "checkpoints" / "step-00000150.safetensors", device="cpu")


@pytest.fixture(scope="module")
def neighbours(trained: Path, pairs: Callable[..., Iterator[tuple[str, str]]]) -> list[str]:
    """Lines of one to nine words, and three of sixty in their midst."""
    words = [source for source, _ in pairs(24, 3)]
    long = " ".join(source for source, _ in pairs(60, 4)).split()
    return [*words[:8], " ".join(long[:60]), *words[8:], " ".join(long[60:120]), " ".join(long[120:180])]


def greedy(translator: Translator, line: str, limit: int) -> list[int]:
    """The likeliest piece at each step, the whole prefix computed anew each time."""
    src = torch.tensor([[*translator.tokenizers.source.encode(line), EOS]])
    ids = [BOS]
    with torch.inference_mode():
        while len(ids) <= limit:
            tgt = torch.tensor([ids])
            hidden = translator.model(src, padding_mask(src, PAD), tgt, target_mask(tgt, PAD))
            logits = translator.model.project(hidden[0, -1])
            logits[[PAD, BOS]] = -torch.inf
            ids.append(int(logits.argmax()))
            if ids[-1] == EOS:
                return ids[1:-1]
    return ids[1:]


def test_a_beam_of_one_is_the_likeliest_piece_at_each_step(flat: Translator, neighbours: list[str]) -> None:
    lines = [line for line in neighbours if len(line.split()) < 10]
    decoding = DecodingConfig(beam_size=1, max_length_a=1.0, max_length_b=5)
    for line, (best,) in zip(lines, flat.translate(lines, decoding), strict=True):
        limit = len(flat.tokenizers.source.encode(line)) + 5
        assert best.text == flat.tokenizers.target.decode(greedy(flat, line, limit))


@pytest.mark.slow
@pytest.mark.parametrize("beam", [1, 4])
def test_neighbours_have_no_say_in_a_translation(flat: Translator, neighbours: list[str], beam: int) -> None:
    decoding = DecodingConfig(beam_size=beam, max_length_a=1.0, max_length_b=8)
    alone = [best for (best,) in flat.translate(neighbours, decoding, batch_size=1)]
    assert len({best.text for best in alone}) > 20
    ties = 0

    def compare(found: list[Translation]) -> None:
        nonlocal ties
        for one, other in zip(alone, found, strict=True):
            assert one.score == pytest.approx(other.score, abs=1e-4)
            if one.text != other.text:
                ties += 1
                assert abs(one.score - other.score) < 1e-5

    for batch_size in (7, 64):
        compare([best for (best,) in flat.translate(neighbours, decoding, batch_size)])
    order = torch.randperm(len(neighbours), generator=torch.Generator().manual_seed(1)).tolist()
    shuffled = [best for (best,) in flat.translate([neighbours[i] for i in order], decoding, 8)]
    compare([shuffled[order.index(i)] for i in range(len(neighbours))])
    assert ties <= 2


def test_the_run_directory_its_model_file_and_its_test_agree(trained: Path) -> None:
    sources = list(read_lines(trained.parents[1] / "test.src"))[:10]
    expected = list(read_lines(trained / "test" / "test.hyp"))[:10]
    torch.set_num_threads(1)
    assert Translator.load(trained, device="cpu").best_texts(sources) == expected


def test_lines_before_one_that_cannot_be_read_are_translated(untrained: Translator) -> None:
    def lines() -> Iterator[str]:
        yield from LINES[:3]
        raise DataError("line 4 is not UTF-8")

    decoding = DecodingConfig(max_length_b=4)
    for batch_size in (1, 2, 64):
        found = []
        with pytest.raises(DataError, match="line 4 is not UTF-8"):
            found.extend(untrained.translate(lines(), decoding, batch_size))
        assert [best.text for (best,) in found] == untrained.best_texts(LINES[:3], decoding)


def test_windows_have_all_items_and_the_error_that_ends_them_comes_after_those_before_it() -> None:
    assert list(windows(range(7), 3)) == [[0, 1, 2], [3, 4, 5], [6]]
    assert list(windows([], 3)) == []

    def failing() -> Iterator[int]:
        yield from range(4)
        raise DataError("the fifth")

    got = []
    with pytest.raises(DataError, match="the fifth"):
        got.extend(windows(failing(), 2))
    assert got == [[0, 1], [2, 3]]


@pytest.mark.parametrize("normalization", ["clean", "identity"])
def test_a_line_without_anything_to_see_is_empty_whatever_its_tokenizer(normalization: str) -> None:
    blank = ["\t", "\u200b", "\u3000", "\x01", ""]
    found = translator({"tokenizer": {"normalization": normalization}}).translate(
        ["ba", *blank, "ce"], DecodingConfig(min_length=2)
    )
    assert [bool(best.ids) for (best,) in found] == [True, *[False] * len(blank), True]
