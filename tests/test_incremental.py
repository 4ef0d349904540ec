"""The decoder one word at a time against the whole at once: its cache, what beams leave in it, and what it costs."""

from dataclasses import dataclass

import pytest
import torch
from small_models import BOS, EOS, PAD, SMALL, V, both_forms, both_norms, build, logits_of, small, words
from torch import Tensor

from transformer_cli.decoding.hypotheses import SpecialIds
from transformer_cli.decoding.search import SearchOptions, beam_search
from transformer_cli.model.attention import AttentionForm
from transformer_cli.model.incremental import DecoderState, IncrementalDecoder
from transformer_cli.model.masks import padding_mask
from transformer_cli.model.transformer import Transformer


@dataclass(frozen=True)
class Prefixes:
    src: Tensor  # (B, S)
    words: Tensor  # (B, W, t)


class WithoutCache:
    """The same protocol with nothing kept but the words: every step runs both stacks over the whole prefix."""

    def __init__(self, model: Transformer) -> None:
        self.model = model

    def start(self, src: Tensor, src_mask: Tensor) -> Prefixes:
        return Prefixes(src, torch.empty(len(src), 1, 0, dtype=torch.long))

    def step(self, tokens: Tensor, state: Prefixes) -> tuple[Tensor, Prefixes]:
        prefixes = torch.cat([state.words, tokens.unsqueeze(-1)], dim=2)
        src = state.src.repeat_interleave(tokens.shape[1], dim=0)
        logits = logits_of(self.model, src, prefixes.flatten(0, 1))[:, -1]
        return logits.view(*tokens.shape, -1), Prefixes(state.src, prefixes)

    def reorder(self, state: Prefixes, rows: Tensor) -> Prefixes:
        sentences = rows[:, 0] // state.words.shape[1]
        return Prefixes(state.src[sentences], state.words.flatten(0, 1)[rows])


@both_forms
@both_norms
@pytest.mark.parametrize(("positions", "tie"), [("sinusoidal", "all"), ("learned", "none")])
def test_a_step_gives_the_logits_of_teacher_forcing(form: AttentionForm, norm: str, positions: str, tie: str) -> None:
    model = build(small(norm=norm, positions=positions, tie_embeddings=tie), form)
    src, tgt = words(5, 3, 1), words(7, 7, 7)
    expected = logits_of(model, src, tgt)
    decoder = IncrementalDecoder(model)
    state = decoder.start(src, padding_mask(src, PAD))
    for t in range(7):
        logits, state = decoder.step(tgt[:, t : t + 1], state)
        torch.testing.assert_close(logits.squeeze(1), expected[:, t], rtol=0, atol=1e-5)


@both_norms
def test_many_sentences_of_many_lengths_are_encoded_as_each_alone(norm: str) -> None:
    model = build(small(norm=norm))
    lengths = [17 - i // 10 for i in range(150)]  # more than are encoded together
    src = words(*lengths)
    tgt = words(*[3] * len(lengths))
    decoder = IncrementalDecoder(model)
    state = decoder.start(src, padding_mask(src, PAD))
    found = []
    for t in range(3):
        logits, state = decoder.step(tgt[:, t : t + 1], state)
        found.append(logits)
    for i, length in enumerate(lengths):
        alone = logits_of(model, src[i : i + 1, :length], tgt[i : i + 1])
        torch.testing.assert_close(torch.cat(found, dim=1)[i : i + 1], alone, rtol=0, atol=1e-5)


@both_forms
@both_norms
def test_a_reordered_cache_follows_its_rows(form: AttentionForm, norm: str) -> None:
    model = build(small(norm=norm), form)
    slow, decoder = WithoutCache(model), IncrementalDecoder(model)
    src = words(5, 3, 4)
    state, truth = decoder.start(src, padding_mask(src, PAD)), slow.start(src, padding_mask(src, PAD))
    generator = torch.Generator().manual_seed(4)

    def step_both(*shape: int) -> None:
        nonlocal state, truth
        tokens = torch.randint(EOS + 1, V, shape, generator=generator)
        logits, state = decoder.step(tokens, state)
        expected, truth = slow.step(tokens, truth)
        torch.testing.assert_close(logits, expected, rtol=0, atol=1e-5)

    def reorder_both(rows: list[list[int]]) -> None:
        nonlocal state, truth
        state, truth = decoder.reorder(state, torch.tensor(rows)), slow.reorder(truth, torch.tensor(rows))

    step_both(3, 1)
    reorder_both([[0, 0, 0], [1, 1, 1], [2, 2, 2]])  # one row splits into three
    step_both(3, 3)
    reorder_both([[2, 0, 1], [4, 4, 3], [8, 8, 8]])  # permuted, one dies, two die
    step_both(3, 3)
    step_both(3, 3)  # and no reorder
    reorder_both([[8, 6, 6], [5, 3, 3]])  # the first is finished, and the last takes its place
    step_both(2, 3)
    reorder_both([[4, 3]])  # only one is left, with fewer beams
    step_both(1, 2)
    assert state.position == 6


@both_norms
@pytest.mark.parametrize(("length", "folded"), [(1, True), (17, True), (32, True), (33, False)])
def test_a_sentence_alone_has_the_projections_folded_into_its_memory(norm: str, length: int, folded: bool) -> None:
    model = build(small(norm=norm))
    slow, decoder = WithoutCache(model), IncrementalDecoder(model)
    src = words(length)
    state, truth = decoder.start(src, padding_mask(src, PAD)), slow.start(src, padding_mask(src, PAD))
    assert len(state.folded) == (3 if folded else 0)  # one for each layer
    for tokens, rows in [([[5]], [[0, 0, 0]]), ([[6, 7, 8]], [[2, 0, 0]]), ([[9, 10, 11]], [[0, 1, 2]])]:
        logits, state = decoder.step(torch.tensor(tokens), state)
        expected, truth = slow.step(torch.tensor(tokens), truth)
        torch.testing.assert_close(logits, expected, rtol=0, atol=1e-5)
        state, truth = decoder.reorder(state, torch.tensor(rows)), slow.reorder(truth, torch.tensor(rows))


def test_of_two_sentences_none_has_a_folded_memory() -> None:
    decoder = IncrementalDecoder(build(SMALL))
    src = words(5, 3)
    state = decoder.start(src, padding_mask(src, PAD))
    assert state.folded == ()
    _, state = decoder.step(torch.full((2, 1), BOS), state)
    assert decoder.reorder(state, torch.tensor([[1]])).folded == ()


def test_all_beams_of_a_sentence_share_one_memory() -> None:
    decoder = IncrementalDecoder(build(SMALL))
    src = words(5, 3)
    state = decoder.start(src, padding_mask(src, PAD))
    memories = [(layer.memory_keys, layer.memory_values) for layer in state.layers]
    for rows in ([[0, 0, 0, 0], [1, 1, 1, 1]], [[3, 2, 1, 0], [4, 4, 5, 6]]):
        _, state = decoder.step(torch.full((state.sentences, state.width), BOS), state)
        state = decoder.reorder(state, torch.tensor(rows))
    for layer, (keys, values) in zip(state.layers, memories, strict=True):
        assert layer.own.shape == (2 * 4, 2, 32, 4)  # (B * H, keys and values, places, K)
        assert keys.shape == (2 * 4, 4, 16)  # (B * H, K, S in whole lanes)
        assert values.shape == (2 * 4, 16, 4)
        assert layer.memory_keys is keys
        assert layer.memory_values is values


class NeverEnds(IncrementalDecoder):
    """One that goes on to the limit."""

    def step(self, tokens: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        logits, state = super().step(tokens, state)
        logits[..., EOS] = -torch.inf
        return logits, state


@pytest.mark.parametrize("beam", [1, 4])
def test_two_hundred_steps_run_two_hundred_positions_and_one_encoder_pass(beam: int) -> None:
    torch.manual_seed(1)
    model = Transformer(SMALL, V, V, PAD).eval()
    decoder = NeverEnds(model)
    rows, encoded = [], []
    step = decoder.layers[0].step
    decoder.layers[0].step = lambda x, *rest: (rows.append(len(x)), step(x, *rest))[1]  # type: ignore[method-assign]
    model.encoder.register_forward_hook(lambda _, x, y: encoded.append(len(y)))
    src = words(5, 3)
    translations = beam_search(
        decoder,
        src,
        padding_mask(src, PAD),
        torch.tensor([200, 200]),
        SpecialIds(PAD, BOS, EOS),
        SearchOptions(beam_size=beam, length_penalty=0.0, length_penalty_type="none", n_best=1),
    )
    assert [len(hypotheses[0].ids) for hypotheses in translations] == [200, 200]
    assert rows == [2] + [2 * beam] * 199  # one word of each row a step
    assert encoded == [2]


@both_norms
def test_beam_search_finds_the_same_with_and_without_cache(norm: str) -> None:
    model = build(small(norm=norm))
    src = words(*(1 + i % 7 for i in range(20)))
    limits = 1 + 2 * (src != PAD).sum(1)
    options = SearchOptions(beam_size=4, length_penalty=0.6, length_penalty_type="wu", n_best=4)
    found, truth = (
        beam_search(searched, src, padding_mask(src, PAD), limits, SpecialIds(PAD, BOS, EOS), options)
        for searched in (IncrementalDecoder(model), WithoutCache(model))
    )
    assert [[h.ids for h in hypotheses] for hypotheses in found] == [
        [h.ids for h in hypotheses] for hypotheses in truth
    ]
    assert [h.log_prob for hypotheses in found for h in hypotheses] == pytest.approx(
        [h.log_prob for hypotheses in truth for h in hypotheses], abs=1e-4
    )
    assert len({h.n for hypotheses in found for h in hypotheses}) >= 4  # sentences left the batch one after the other


# --- places that beams leave behind ---------------------------------------------------------------------------------


def places(state: DecoderState) -> int:
    return state.layers[0].own.shape[2]


@both_norms
def test_places_close_up_when_beams_die_and_no_logit_moves(norm: str) -> None:
    """Two hundred steps of five rows a sentence, whose survivors are drawn at random."""
    model = build(small(norm=norm))
    decoder = IncrementalDecoder(model)
    src = words(5, 3)
    sentences, width = len(src), 5
    generator = torch.Generator().manual_seed(8)
    state = decoder.start(src, padding_mask(src, PAD))
    state = decoder.reorder(state, torch.arange(sentences).unsqueeze(1).expand(-1, width))
    prefixes = torch.empty(sentences * width, 0, dtype=torch.long)
    together = src.repeat_interleave(width, dim=0)
    closed_up = 0
    with torch.inference_mode():
        for t in range(200):
            tokens = torch.randint(EOS + 1, V, (sentences, width), generator=generator)
            prefixes = torch.cat([prefixes, tokens.view(-1, 1)], dim=1)
            filled = state.filled
            logits, state = decoder.step(tokens, state)
            closed_up += state.filled < filled + width
            if t % 9 == 0 or t > 190:
                expected = logits_of(model, together, prefixes)[:, -1]
                torch.testing.assert_close(logits.flatten(0, 1), expected, rtol=0, atol=2e-5)
            rows = torch.randint(width, (sentences, width), generator=generator)
            rows = rows + width * torch.arange(sentences).unsqueeze(1)
            state = decoder.reorder(state, rows)
            prefixes = prefixes[rows.flatten()]
    assert closed_up >= 3
    # All rows of today have one ancestor a few steps ago, so about one place a step is of use.
    assert places(state) < 4 * 200 + 40


@pytest.mark.parametrize("width", [5, 12])
def test_places_grow_like_the_steps_where_all_rows_come_from_one(width: int) -> None:
    # They close up when no more than half are of use, and are doubled when more are: less than four to a step.
    decoder = IncrementalDecoder(build(small(encoder_layers=1, decoder_layers=1)))
    src = words(4)
    state = decoder.start(src, padding_mask(src, PAD))
    state = decoder.reorder(state, torch.zeros(1, width, dtype=torch.long))
    with torch.inference_mode():
        for t in range(300):
            _, state = decoder.step(torch.full((1, width), 5), state)
            assert places(state) <= 4 * t + 32 + 2 * width
            state = decoder.reorder(state, torch.full((1, width), 3))


def test_rows_that_never_die_keep_all_their_places() -> None:
    decoder = IncrementalDecoder(build(SMALL))
    src = words(4)
    state = decoder.start(src, padding_mask(src, PAD))
    state = decoder.reorder(state, torch.zeros(1, 4, dtype=torch.long))
    for t in range(100):
        _, state = decoder.step(torch.full((1, 4), 5), state)
        assert state.filled == 4 * (t + 1)
        assert state.visible.sum(2).tolist() == [[t + 1] * 4]
        assert places(state) <= 2 * state.filled + 32


def test_greedy_search_has_one_place_a_step() -> None:
    decoder = IncrementalDecoder(build(SMALL))
    src = words(4, 2, 3)
    state = decoder.start(src, padding_mask(src, PAD))
    for t in range(100):
        _, state = decoder.step(torch.full((3, 1), 5), state)
        assert state.filled == t + 1
        assert places(state) <= 2 * t + 32


def test_sentences_of_which_one_left_keep_what_they_had_when_places_close_up() -> None:
    """The one that stays has more places of use than the one that leaves, and the other way round."""
    model = build(SMALL)
    decoder = IncrementalDecoder(model)
    src = words(5, 3)
    for stays in (0, 1):
        state = decoder.start(src, padding_mask(src, PAD))
        state = decoder.reorder(state, torch.tensor([[0, 0], [1, 1]]))
        prefixes = torch.empty(2, 2, 0, dtype=torch.long)
        generator = torch.Generator().manual_seed(stays)
        for _ in range(40):  # the rows of the first never die, those of the second come from one each step
            tokens = torch.randint(EOS + 1, V, (2, 2), generator=generator)
            prefixes = torch.cat([prefixes, tokens.unsqueeze(-1)], dim=2)
            _, state = decoder.step(tokens, state)
            state = decoder.reorder(state, torch.tensor([[0, 1], [2, 2]]))
            prefixes[1, 1] = prefixes[1, 0]
        state = decoder.reorder(state, torch.tensor([[2 * stays, 2 * stays + 1]]))
        prefixes = prefixes[stays]
        for _ in range(40):
            tokens = torch.randint(EOS + 1, V, (1, 2), generator=generator)
            prefixes = torch.cat([prefixes, tokens.T], dim=1)
            logits, state = decoder.step(tokens, state)
            alone = src[stays : stays + 1]
            expected = logits_of(model, alone.expand(2, -1), prefixes)[:, -1]
            torch.testing.assert_close(logits[0], expected, rtol=0, atol=2e-5)
            state = decoder.reorder(state, torch.tensor([[1, 1]]))
            prefixes = prefixes[[1, 1]]


def test_the_weights_are_those_of_the_moment_it_was_made() -> None:
    model = build(SMALL)
    decoder = IncrementalDecoder(model)
    src = words(3)
    before, _ = decoder.step(torch.tensor([[BOS]]), decoder.start(src, padding_mask(src, PAD)))
    with torch.no_grad():
        for parameter in model.decoder.parameters():
            parameter.add_(1.0)
        after, _ = decoder.step(torch.tensor([[BOS]]), decoder.start(src, padding_mask(src, PAD)))
        fresh = IncrementalDecoder(model)
        anew, _ = fresh.step(torch.tensor([[BOS]]), fresh.start(src, padding_mask(src, PAD)))
    expected = logits_of(model, src, torch.tensor([[BOS]]))
    torch.testing.assert_close(anew[0], expected[:, -1], rtol=1e-4, atol=1e-4)
    assert not torch.allclose(after, anew)
    assert after.shape == before.shape


# --- number formats -------------------------------------------------------------------------------------------------


@both_forms
def test_a_step_in_bfloat16_gives_what_the_whole_prefix_gives(form: AttentionForm) -> None:
    model = build(SMALL, form).bfloat16()
    src, tgt = words(5, 3), words(6, 6)
    expected = logits_of(model, src, tgt)
    assert expected.dtype == torch.bfloat16
    decoder = IncrementalDecoder(model)
    state = decoder.start(src, padding_mask(src, PAD))
    for t in range(6):
        logits, state = decoder.step(tgt[:, t : t + 1], state)
        torch.testing.assert_close(logits.squeeze(1), expected[:, t], rtol=0.1, atol=0.1)


@pytest.mark.parametrize(("width", "products"), [(16, torch.float32), (256, torch.bfloat16)])
def test_an_fp32_model_is_searched_in_bfloat16_where_that_pays(width: int, products: torch.dtype) -> None:
    torch.manual_seed(1)
    model = Transformer(small(d_model=width, ffn_dim=2 * width), V, V, PAD).eval()
    src, tgt = torch.tensor([[5, 6, 7, 3]]), torch.tensor([[2, 9, 8]])
    expected = logits_of(model, src, tgt)
    decoder = IncrementalDecoder(model, torch.bfloat16)
    assert decoder.output.dtype == torch.bfloat16
    assert {decoder.layers[0].own_in.dtype, decoder.layers[-1].ffn_out.dtype} == {products}
    state, logits = decoder.start(src, padding_mask(src, PAD)), []
    for t in range(3):
        step, state = decoder.step(tgt[:, t : t + 1], state)
        logits.append(step)
    found = torch.cat(logits, dim=1)
    assert found.dtype == torch.bfloat16
    error = (found.float() - expected).abs().max()
    assert 1e-4 < error < 0.05 * expected.abs().max()  # rounded to 8 bits somewhere, and nothing else
