"""Other pieces each epoch, as likely as the papers say, the same for whoever asks, in batches within their budget."""

import json
import math
import subprocess
import sys
from collections import Counter
from itertools import combinations, pairwise
from pathlib import Path
from random import Random

import numpy as np
import pytest

from transformer_cli.config.schema import TokenizerConfig
from transformer_cli.data.batching import Update, make_batch, micro_batches, plan_epoch
from transformer_cli.data.corpus import Pair
from transformer_cli.data.dataset import TokenDataset, encode_pairs
from transformer_cli.data.filters import FilterCounts
from transformer_cli.data.subword_sampling import Sampler, _Cutter, _Merges, _Unigram
from transformer_cli.data.tokenizer import UNK, Tokenizer, Tokenizers, train_tokenizer, train_tokenizers
from transformer_cli.errors import ConfigError

WORDS = ["green", "songs", "birds", "chase", "three", "cats"]
PAIRS = [Pair(" ".join(WORDS[: 1 + i % 6]), " ".join(WORDS[i % 6 :]).upper()) for i in range(60)]
SCORES = {"a": (-1.0, 4), "b": (-1.5, 5), "ab": (-2.0, 6), "ba": (-1.2, 7), "aba": (-4.0, 8), "c": (-3.0, 9)}


def tokenizer_of(model_type: str, **settings: object) -> Tokenizer:
    lines = [side for pair in PAIRS for side in pair] * 3
    return train_tokenizer(lines, TokenizerConfig.model_validate({"model_type": model_type, **settings}))


@pytest.fixture(scope="module")
def tokenizers() -> Tokenizers:
    return train_tokenizers(lambda: PAIRS * 3, TokenizerConfig(vocab_size=60))


@pytest.fixture(scope="module")
def dataset(tokenizers: Tokenizers) -> TokenDataset:
    return encode_pairs(PAIRS, tokenizers, FilterCounts())


def update_of(*groups: list[int]) -> Update:
    return [np.array(group) for group in groups]


def as_lists(dataset: TokenDataset) -> list[tuple[list[int], list[int]]]:
    return [(dataset.source[i].tolist(), dataset.target[i].tolist()) for i in range(len(dataset))]


# --- a word ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [0.1, 0.7, 1.0])
def test_a_unigram_model_draws_each_way_to_cut_a_word_by_its_probability_to_the_power_alpha(alpha: float) -> None:
    word = "ababca"
    weights = {}
    for count in range(len(word)):
        for cuts in combinations(range(1, len(word)), count):
            pieces = [word[start:end] for start, end in pairwise((0, *cuts, len(word)))]
            if all(piece in SCORES for piece in pieces):
                ids = tuple(SCORES[piece][1] for piece in pieces)
                weights[ids] = math.exp(alpha * sum(SCORES[piece][0] for piece in pieces))
    cutter, chance = _Unigram(SCORES, alpha), Random(1)
    drawn = Counter(tuple(cutter.cut(word, chance)) for _ in range(20_000))
    assert drawn.keys() <= weights.keys()
    for ids, weight in weights.items():
        expected = 20_000 * weight / sum(weights.values())
        assert abs(drawn[ids] - expected) <= 5 * expected**0.5 + 1


def test_a_long_word_as_of_text_without_spaces_is_drawn_like_a_short_one_and_not_held() -> None:
    cutter = _Unigram(SCORES, 0.7)
    short, long = "ab" * 10, "ab" * 10 + "c"
    for _ in range(2):
        drawn = ["".join(map(str, cutter.cut(word, Random(1)))) for word in (short, long)]
        assert drawn == ["4758754756456", "64758754756459"]
    held = cutter._cached_lattice.cache_info()
    assert (held.currsize, held.hits) == (1, 1)


def test_a_bpe_model_leaves_out_each_merge_at_each_step_with_probability_alpha() -> None:
    # By hand for "aab", with a+b and a+ab to merge: a a b stays with alpha; else there is a ab, and then aab or not.
    scores = {"a": (-2.0, 4), "b": (-3.0, 5), "ab": (0.0, 6), "aab": (-1.0, 7)}
    cutter, chance = _Merges(scores, 0.3), Random(1)
    drawn = Counter(tuple(cutter.cut("aab", chance)) for _ in range(20_000))
    assert drawn.keys() == {(4, 4, 5), (4, 6), (7,)}
    for ids, share in {(4, 4, 5): 0.3, (4, 6): 0.7 * 0.3, (7,): 0.7 * 0.7}.items():
        assert drawn[ids] / 20_000 == pytest.approx(share, abs=0.02)


def test_without_chance_bpe_gives_the_pieces_of_the_model_and_with_nothing_else_characters() -> None:
    tokenizer = tokenizer_of("bpe", vocab_size=60)
    for pair in PAIRS:
        ids = tokenizer.encode(pair.source)
        assert _Cutter(tokenizer, 1e-12).cut(ids, Random(1)) == ids
        spelt = _Cutter(tokenizer, 1.0).cut(ids, Random(1))
        assert "".join(tokenizer.pieces(spelt)) == "".join(tokenizer.pieces(ids))
        assert all(len(piece) == 1 for piece in tokenizer.pieces(spelt))


def test_a_character_without_a_piece_leaves_its_word_as_it_is() -> None:
    assert _Merges({"ab": (0.0, 6), "a": (-1.0, 4)}, 0.5).cut("ab", Random(1)) == []


@pytest.mark.parametrize("model_type", ["unigram", "bpe"])
def test_unknown_pieces_bytes_and_symbols_of_the_user_stay(model_type: str) -> None:
    symbols = {"user_defined_symbols": ["<2de>", "s>x"]}
    plain = tokenizer_of(model_type, vocab_size=60, **symbols)
    bytes_ = tokenizer_of(model_type, vocab_size=320, byte_fallback=True, **symbols)
    for tokenizer in (plain, bytes_):
        text = "<2de> chase 今 cats birds>x今 green<2de>green"
        ids = tokenizer.encode(text)
        for seed in range(30):
            cut = _Cutter(tokenizer, 0.3).cut(ids, Random(seed))
            assert tokenizer.decode(cut) == tokenizer.decode(ids)
            kept = [id_ for id_ in ids if tokenizer.pieces([id_])[0].startswith(("<", "s>x"))]
            assert [id_ for id_ in cut if tokenizer.pieces([id_])[0].startswith(("<", "s>x"))] == kept
            assert cut.count(UNK) == ids.count(UNK) == (2 if tokenizer is plain else 0)


def test_what_has_one_way_to_cut_a_text_is_refused() -> None:
    for model_type in ("char", "word"):
        tokenizer = tokenizer_of(model_type, vocab_size=30)
        with pytest.raises(ConfigError, match=r"tokenizer\.sampling_alpha needs a unigram or bpe model"):
            Sampler(Tokenizers(tokenizer, tokenizer), 0.1, 1, 100)


# --- an update ------------------------------------------------------------------------------------------------------


def test_other_pieces_of_the_same_text_each_epoch(tokenizers: Tokenizers, dataset: TokenDataset) -> None:
    sampler = Sampler(tokenizers, 0.2, seed=1, max_length=100)
    update = update_of([7, 3, 11], [20], [40, 41])
    epochs = []
    for epoch in range(3):
        cut, groups = sampler.sampled(dataset, update, (epoch,))
        assert [group.tolist() for group in groups] == [[0, 1, 2], [3], [4, 5]]
        for place, i in enumerate((7, 3, 11, 20, 40, 41)):
            assert tokenizers.source.decode(cut.source[place].tolist()) == PAIRS[i].source
            assert tokenizers.target.decode(cut.target[place].tolist()) == PAIRS[i].target
        epochs.append(str(as_lists(cut)))
    assert len(set(epochs)) == 3
    cut, _ = Sampler(tokenizers, 0.2, seed=2, max_length=100).sampled(dataset, update, (0,))
    assert str(as_lists(cut)) != epochs[0]


def test_a_pair_is_cut_the_same_way_in_whatever_company(tokenizers: Tokenizers, dataset: TokenDataset) -> None:
    together, _ = Sampler(tokenizers, 0.2, 1, 100).sampled(dataset, update_of([7, 3], [11, 20]), (5,))
    for place, i in enumerate((7, 3, 11, 20)):
        alone, _ = Sampler(tokenizers, 0.2, 1, 100).sampled(dataset, update_of([i]), (5,))
        assert as_lists(alone)[0] == as_lists(together)[place]


@pytest.mark.parametrize("model_type", ["unigram", "bpe"])
def test_another_process_cuts_the_same_way(model_type: str) -> None:
    script = f"""
import json, test_subword_sampling as here
tokenizer = here.tokenizer_of({model_type!r}, vocab_size=60)
tokenizers = here.Tokenizers(tokenizer, tokenizer)
dataset = here.encode_pairs(here.PAIRS, tokenizers, here.FilterCounts())
cut, _ = here.Sampler(tokenizers, 0.3, 1, 100).sampled(dataset, here.update_of([7, 3]), (5,))
print(json.dumps(here.as_lists(cut)))
"""
    one, two = (
        subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=Path(__file__).parent
        ).stdout
        for _ in range(2)
    )
    assert one == two
    assert len(json.loads(one)) == 2


def test_what_would_be_longer_than_allowed_is_left_as_it_was(tokenizers: Tokenizers, dataset: TokenDataset) -> None:
    everything = update_of(list(range(len(dataset))))
    most = max(len(side) for pair in as_lists(dataset) for side in pair)
    cut, _ = Sampler(tokenizers, 0.2, 1, max_length=most).sampled(dataset, everything, (0,))
    pairs = list(zip(as_lists(cut), as_lists(dataset), strict=True))
    changed = [new != old for after, before in pairs for new, old in zip(after, before, strict=True)]
    longer = [len(new) > len(old) for after, before in pairs for new, old in zip(after, before, strict=True)]
    assert 0 < sum(changed) < len(changed)
    assert any(longer)
    assert max(len(side) for after, _ in pairs for side in after) <= most


def test_no_batch_of_a_sampled_update_is_over_its_budget(tokenizers: Tokenizers, dataset: TokenDataset) -> None:
    sampler = Sampler(tokenizers, 0.2, 1, max_length=39)
    for epoch in range(5):
        seen = 0
        for update in plan_epoch(dataset, 160, "tokens", 1, epoch):
            cut, groups = sampler.sampled(dataset, update, (epoch,))
            for part in micro_batches(groups, cut, 40, "tokens"):
                assert all(ids.numel() <= 40 for ids in make_batch(cut, part))
                seen += len(part)
        assert seen == len(dataset)
