"""The masks as matrices written out by hand: 1 = may attend."""

import torch
from torch import Tensor

from transformer_cli.model.masks import causal_mask, padding_mask, target_mask

PAD = 0


def matrices(*rows: list[list[int]]) -> Tensor:
    return torch.tensor(rows) == 1


def test_padding_mask_lets_every_query_see_the_words_and_no_pad() -> None:
    ids = torch.tensor([[7, 8, 3], [9, 3, PAD], [PAD, PAD, PAD]])
    expected = matrices(
        [[1, 1, 1]],
        [[1, 1, 0]],
        [[0, 0, 0]],
    )
    assert torch.equal(padding_mask(ids, PAD), expected)


def test_padding_is_what_the_caller_says_and_not_the_id_zero() -> None:
    assert torch.equal(padding_mask(torch.tensor([[0, 5, 9]]), pad=5), matrices([[1, 0, 1]]))


def test_causal_mask_lets_a_query_see_itself_and_what_lies_before() -> None:
    expected = matrices(
        [
            [1, 0, 0, 0],
            [1, 1, 0, 0],
            [1, 1, 1, 0],
            [1, 1, 1, 1],
        ],
    )
    assert torch.equal(causal_mask(4, torch.device("cpu")), expected)


def test_target_mask_hides_the_future_and_the_padding() -> None:
    ids = torch.tensor([[2, 7, 8, 9], [2, 7, PAD, PAD], [2, PAD, 8, 9]])
    expected = matrices(
        [
            [1, 0, 0, 0],
            [1, 1, 0, 0],
            [1, 1, 1, 0],
            [1, 1, 1, 1],
        ],
        [
            [1, 0, 0, 0],
            [1, 1, 0, 0],
            [1, 1, 0, 0],
            [1, 1, 0, 0],
        ],
        [
            [1, 0, 0, 0],
            [1, 0, 0, 0],
            [1, 0, 1, 0],
            [1, 0, 1, 1],
        ],
    )
    assert torch.equal(target_mask(ids, PAD), expected)
