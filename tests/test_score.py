"""The log-probability of given translations: that of the search, that of a forward pass by hand, in any batch."""

import math
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from untrained import LINES, translator

from transformer_cli.config.schema import DecodingConfig
from transformer_cli.data.corpus import Pair
from transformer_cli.data.tokenizer import BOS, EOS, PAD
from transformer_cli.decoding import score as module
from transformer_cli.decoding.sampling import Sampling
from transformer_cli.decoding.score import score, score_ids
from transformer_cli.decoding.translator import Translation, Translator
from transformer_cli.errors import LineError, UserError
from transformer_cli.model.masks import padding_mask, target_mask

Pairs = Callable[..., Iterator[tuple[str, str]]]
TARGETS = ["BA CE", "FO", "GU HA JE", "PE QI RO SU", "", "KI LO MU"]


@pytest.fixture(scope="module")
def untrained() -> Translator:
    return translator()


@pytest.fixture(scope="module")
def flat(trained: Path) -> Translator:
    """A model after a few updates, which finds many translations of one sentence nearly as good."""
    torch.set_num_threads(1)
    return Translator.load(trained / "checkpoints" / "step-00000150.safetensors", device="cpu")


def by_hand(translator: Translator, source: list[int], target: list[int]) -> list[float]:
    """The log-probability of each piece and of the end, each from a forward pass of its own."""
    src = torch.tensor([[*source, EOS]])
    found = []
    with torch.inference_mode():
        for t, piece in enumerate([*target, EOS]):
            tgt = torch.tensor([[BOS, *target[:t]]])
            hidden = translator.model(src, padding_mask(src, PAD), tgt, target_mask(tgt, PAD))
            weights = [math.exp(x) for x in translator.model.project(hidden[0, -1]).double().tolist()]
            found.append(math.log(weights[piece] / sum(weights)))
    return found


def test_a_score_is_the_sum_over_forward_passes_by_hand(untrained: Translator) -> None:
    pairs = [Pair(*pair) for pair in zip(LINES, TARGETS, strict=True)]
    for pair, found in zip(pairs, score(untrained, pairs), strict=True):
        source = untrained.tokenizers.source.encode(pair.source)
        target = untrained.tokenizers.target.encode(pair.target)
        expected = by_hand(untrained, source, target)
        assert list(found.ids) == target
        assert found.token_log_probs == pytest.approx(expected, abs=1e-5)
        assert found.log_prob == pytest.approx(sum(expected), abs=1e-5)


@pytest.mark.parametrize("beam", [1, 4])
def test_a_score_is_that_of_the_search_piece_by_piece(flat: Translator, pairs: Pairs, beam: int) -> None:
    lines = [source for source, _ in pairs(30, 5)]
    decoding = DecodingConfig(beam_size=beam, n_best=beam, max_length_a=1.0, max_length_b=8)
    found = [one for line in flat.translate(lines, decoding) for one in line]
    whole = [one for one in found if not one.truncated]
    assert len(whole) >= len(found) / 2
    assert len({one.ids for one in whole}) > 20
    scores = score_ids(flat, [one.source_ids for one in whole], [one.ids for one in whole])
    for one, scored in zip(whole, scores, strict=True):
        assert scored.log_prob == pytest.approx(one.log_prob, abs=1e-5)
        assert scored.token_log_probs == pytest.approx(one.token_log_probs, abs=1e-5)


def test_a_truncated_hypothesis_has_the_scores_of_its_pieces_and_no_end(untrained: Translator) -> None:
    decoding = DecodingConfig(beam_size=2, max_length_a=0.0, max_length_b=5)
    cut = [best for (best,) in untrained.translate(LINES, decoding) if best.truncated]
    assert len(cut) >= 4
    scores = score_ids(untrained, [one.source_ids for one in cut], [one.ids for one in cut])
    for one, scored in zip(cut, scores, strict=True):
        assert scored.token_log_probs[:-1] == pytest.approx(one.token_log_probs, abs=1e-5)


def test_a_sample_has_the_score_of_its_pieces(flat: Translator, pairs: Pairs) -> None:
    lines = [source for source, _ in pairs(20, 6)]
    decoding = DecodingConfig(beam_size=2, n_best=2, max_length_a=1.0, max_length_b=8)
    drawn = [one for line in flat.translate(lines, decoding, sampling=Sampling(1.3, 20, 0.95, 1)) for one in line]
    whole = [one for one in drawn if not one.truncated]
    scores = score_ids(flat, [one.source_ids for one in whole], [one.ids for one in whole])
    assert [scored.log_prob for scored in scores] == pytest.approx([one.log_prob for one in whole], abs=1e-5)


def same_pieces(translator: Translator, one: Translation) -> bool:
    return tuple(translator.tokenizers.target.encode(one.text)) == one.ids


def test_the_text_of_a_translation_has_its_score_where_it_encodes_to_its_pieces(flat: Translator, pairs: Pairs) -> None:
    lines = [source for source, _ in pairs(30, 5)]
    found = [(line, best) for line, (best,) in zip(lines, flat.translate(lines), strict=True)]
    again = [(line, best) for line, best in found if same_pieces(flat, best) and not best.truncated]
    assert len(again) >= 15
    scores = score(flat, [Pair(line, best.text) for line, best in again])
    assert [scored.log_prob for scored in scores] == pytest.approx([best.log_prob for _, best in again], abs=1e-5)


@pytest.mark.parametrize("batch_size", [1, 2, 7])
def test_batches_and_order_change_nothing(untrained: Translator, batch_size: int) -> None:
    pairs = [Pair(source, target) for source in LINES for target in TARGETS]
    alone = [next(score(untrained, [pair])) for pair in pairs]
    found = list(score(untrained, pairs, batch_size))
    assert [one.ids for one in found] == [one.ids for one in alone]
    assert [one.log_prob for one in found] == pytest.approx([one.log_prob for one in alone], abs=1e-5)
    back = list(score(untrained, reversed(pairs), batch_size))
    assert [one.log_prob for one in back[::-1]] == pytest.approx([one.log_prob for one in alone], abs=1e-5)


def test_long_pairs_make_smaller_batches(untrained: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []

    def counting(translator: Translator, sources: list[list[int]], targets: list[list[int]]) -> object:
        sizes.append((len(sources), max(map(len, sources + targets)) + 1))
        return score_ids(translator, sources, targets)

    monkeypatch.setattr(module, "score_ids", counting)
    logits = 25 * untrained.tokenizers.target.vocab_size
    monkeypatch.setattr(module, "_LOGITS", logits)
    pairs = [Pair("ba " * n, "BA " * n) for n in (1, 2, 3, 40, 1, 2)]
    assert len(list(score(untrained, pairs))) == 6
    assert sizes[0][0] == 1
    assert all(rows * longest <= 25 or rows == 1 for rows, longest in sizes)
    assert max(rows for rows, _ in sizes) > 1


def test_an_empty_target_has_the_score_of_ending_at_once(untrained: Translator) -> None:
    (found,) = score(untrained, [Pair("ba ce", "")])
    assert found.ids == ()
    assert len(found.token_log_probs) == 1
    expected = by_hand(untrained, untrained.tokenizers.source.encode("ba ce"), [])
    assert found.token_log_probs == pytest.approx(expected, abs=1e-5)


def test_an_empty_source_is_a_source_like_any_other(untrained: Translator) -> None:
    target = untrained.tokenizers.target.encode("BA")
    (found, both, text) = score(untrained, [Pair("", "BA"), Pair(" \u200b", ""), Pair("ba", "BA")])
    assert found.token_log_probs == pytest.approx(by_hand(untrained, [], target), abs=1e-5)
    assert both.token_log_probs == pytest.approx(by_hand(untrained, [], []), abs=1e-5)
    assert text.log_prob != found.log_prob


def test_no_pairs_have_no_scores(untrained: Translator) -> None:
    assert list(score(untrained, [])) == []


def test_a_pair_beyond_learned_positions_is_refused_by_line() -> None:
    learned = translator({"model": {"positions": "learned", "max_positions": 12}, "data": {"max_length": 11}})
    encode = learned.tokenizers.target.encode
    (eleven,), (twelve,) = ([text for n in range(30) if len(encode(text := "M" * n)) == count] for count in (11, 12))
    fine = [Pair("ba", "BA")] * 20 + [Pair("ba", eleven)]
    assert len(list(score(learned, fine, 2))) == 21
    for pair in (Pair(twelve, "BA"), Pair("ba", twelve)):
        with pytest.raises(LineError, match=r"line 22 has 12 pieces.*max_positions 12\) take at most 11: leave the"):
            list(score(learned, [*fine, pair], 2))


def test_where_memory_runs_out_fewer_pairs_are_scored_together(
    untrained: Translator, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pairs = [Pair(source, target) for source in LINES for target in TARGETS]
    expected = [one.log_prob for one in score(untrained, pairs)]
    sizes = []

    def small(translator: Translator, sources: list[list[int]], targets: list[list[int]]) -> object:
        sizes.append(len(sources))
        if len(sources) > 3:
            raise torch.OutOfMemoryError("out of memory")
        return score_ids(translator, sources, targets)

    monkeypatch.setattr(module, "score_ids", small)
    assert [one.log_prob for one in score(untrained, pairs)] == pytest.approx(expected, abs=1e-5)
    assert sizes[0] == len(pairs)
    assert sum(size for size in sizes if size <= 3) == len(pairs)
    assert sum(size > 3 for size in sizes) == len(caplog.messages)
    assert caplog.messages[0] == f"out of memory with {len(pairs)} pairs at once: from here on about half as many"


def test_a_pair_that_does_not_fit_into_memory_is_named(untrained: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    def none_fits(*_: object) -> object:
        raise MemoryError("no room")

    monkeypatch.setattr(module, "score_ids", none_fits)
    with pytest.raises(LineError, match=r"line 2 has \d+ pieces, which do not fit into memory$"):
        list(score(untrained, [Pair("ba", "BA"), Pair("ba ce di", "BA CE DI")]))


def test_a_model_without_probabilities_has_no_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    diverged = translator()
    with torch.no_grad():
        diverged.model.output.weight.fill_(torch.nan)
    with pytest.raises(UserError, match=r"the model gives no probabilities \(NaN\)"):
        list(score(diverged, [Pair("ba", "BA")]))
