"""Other pieces each epoch, the same for whoever asks, and never longer than a batch was told they can be."""

from typing import cast

import numpy as np
import pytest

from transformer_cli.config.schema import TokenizerConfig
from transformer_cli.data.batching import Update, make_batch, micro_batches, plan_epoch
from transformer_cli.data.corpus import Pair
from transformer_cli.data.dataset import TokenDataset, encode_chunks, joined
from transformer_cli.data.filters import FilterCounts
from transformer_cli.data.sampling import Sampler
from transformer_cli.data.tokenizer import Tokenizer, Tokenizers, train_tokenizers
from transformer_cli.errors import DataError

WORDS = ["green", "songs", "birds", "chase", "three", "cats"]
PAIRS = [Pair(" ".join(WORDS[: 1 + i % 6]), " ".join(WORDS[i % 6 :]).upper()) for i in range(60)]
CONFIG = TokenizerConfig(vocab_size=60)


@pytest.fixture(scope="module")
def tokenizers() -> Tokenizers:
    return train_tokenizers(lambda: PAIRS * 3, CONFIG)


@pytest.fixture(scope="module")
def dataset(tokenizers: Tokenizers) -> TokenDataset:
    return joined(encode_chunks([Pair("", "x"), *PAIRS], tokenizers, FilterCounts(), 100, keep_text=True))


def update_of(*groups: list[int]) -> Update:
    return [np.array(group) for group in groups]


def as_lists(dataset: TokenDataset) -> list[tuple[list[int], list[int]]]:
    return [(dataset.source[i].tolist(), dataset.target[i].tolist()) for i in range(len(dataset))]


def test_the_text_that_is_kept_is_that_of_the_pairs_kept(dataset: TokenDataset) -> None:
    assert dataset.source_text is not None
    assert dataset.target_text is not None
    for i, pair in enumerate(PAIRS):
        assert (dataset.source_text[i].tobytes(), dataset.target_text[i].tobytes()) == tuple(
            side.encode() for side in pair
        )


def test_other_pieces_of_the_same_text_each_epoch(tokenizers: Tokenizers, dataset: TokenDataset) -> None:
    sampler = Sampler(tokenizers, 0.2, seed=1, max_length=100)
    update = update_of([7, 3, 11], [20], [40, 41])
    epochs = []
    for epoch in range(3):
        cut, groups = sampler.sampled(dataset, update, epoch)
        assert [group.tolist() for group in groups] == [[0, 1, 2], [3], [4, 5]]
        for place, i in enumerate((7, 3, 11, 20, 40, 41)):
            assert tokenizers.source.decode(cut.source[place].tolist()) == PAIRS[i].source
            assert tokenizers.target.decode(cut.target[place].tolist()) == PAIRS[i].target
        epochs.append(str(as_lists(cut)))
    assert len(set(epochs)) == 3
    assert str(as_lists(Sampler(tokenizers, 0.2, seed=2, max_length=100).sampled(dataset, update, 0)[0])) != epochs[0]


def test_a_pair_is_cut_the_same_way_in_whatever_company(tokenizers: Tokenizers, dataset: TokenDataset) -> None:
    together, _ = Sampler(tokenizers, 0.2, 1, 100).sampled(dataset, update_of([7, 3], [11, 20]), 5)
    for place, i in enumerate((7, 3, 11, 20)):
        alone, _ = Sampler(tokenizers, 0.2, 1, 100).sampled(dataset, update_of([i]), 5)
        assert as_lists(alone)[0] == as_lists(together)[place]


def test_what_would_be_longer_than_allowed_is_left_as_it_was(tokenizers: Tokenizers, dataset: TokenDataset) -> None:
    everything = update_of(list(range(len(dataset))))
    most = max(len(side) for pair in as_lists(dataset) for side in pair)
    cut, _ = Sampler(tokenizers, 0.2, 1, max_length=most).sampled(dataset, everything, 0)
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
            cut, groups = sampler.sampled(dataset, update, epoch)
            for part in micro_batches(groups, cut, 40, "tokens"):
                assert all(ids.numel() <= 40 for ids in make_batch(cut, part))
                seen += len(part)
        assert seen == len(dataset)


def test_a_tokenizer_with_one_way_to_cut_is_refused_at_once() -> None:
    class Words:
        def sample(self, text: bytes, alpha: float, seed: int) -> list[int]:
            raise DataError("one way")

    words = cast(Tokenizer, Words())
    with pytest.raises(DataError, match="one way"):
        Sampler(Tokenizers(words, words), 0.1, 1, 100)
