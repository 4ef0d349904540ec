"""The Transformer against the paper's formulas by hand and PyTorch's stacks."""

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from small_models import BOS, EOS, PAD, SMALL, V, both_forms, both_norms, build, every_tie, logits_of, small, words
from torch import Tensor, nn

import transformer_cli.model
from transformer_cli.config.schema import ModelConfig
from transformer_cli.model.attention import AttentionForm, MultiHeadAttention, attention_weights
from transformer_cli.model.blocks import LayerNorm, Linear
from transformer_cli.model.incremental import IncrementalDecoder
from transformer_cli.model.masks import padding_mask, target_mask
from transformer_cli.model.transformer import (
    FeedForward,
    SinusoidalPositions,
    Transformer,
    sinusoids,
)

ALMOST_ALL = 1 - 1e-9  # a dropout that leaves nothing of a small tensor


def embedded(model: Transformer, src: Tensor, tgt: Tensor) -> tuple[Tensor, Tensor]:
    """What enters the first encoder layer and the first decoder layer, by way of the real forward pass."""
    seen: list[Tensor] = []
    hooks = [
        stack.register_forward_pre_hook(lambda _, arguments: seen.append(arguments[0]))
        for stack in (model.encoder, model.decoder)
    ]
    model(src, padding_mask(src, PAD), tgt, target_mask(tgt, PAD))
    for hook in hooks:
        hook.remove()
    return seen[0], seen[1]


# --- positions ------------------------------------------------------------------------------------------------------


def paper_position(pos: int, d_model: int) -> list[float]:
    """Section 3.5, a number at a time."""
    return [
        (math.sin if column % 2 == 0 else math.cos)(pos / 10000 ** (2 * (column // 2) / d_model))
        for column in range(d_model)
    ]


def test_positions_by_hand() -> None:
    # d_model 4: the angles are pos / 1 and pos / 10000^(2/4) = pos / 100.
    expected = torch.tensor(
        [
            [0.0, 1.0, 0.0, 1.0],
            [0.84147098, 0.54030231, 0.00999983, 0.99995000],  # sin 1, cos 1, sin 0.01, cos 0.01
            [0.90929743, -0.41614684, 0.01999867, 0.99980001],  # sin 2, cos 2, sin 0.02, cos 0.02
        ]
    )
    torch.testing.assert_close(sinusoids(3, 4), expected, rtol=0, atol=1e-7)


def test_sinusoidal_positions_follow_the_paper_at_any_length() -> None:
    positions = SinusoidalPositions(16)
    codes = positions(0, 5000)
    assert codes.shape == (5000, 16)
    for pos in (0, 1, 7, 255, 256, 257, 1023, 4999):
        torch.testing.assert_close(codes[pos], torch.tensor(paper_position(pos, 16)), rtol=0, atol=1e-6)
    assert torch.equal(positions(4000, 3), codes[4000:4003])


@pytest.mark.parametrize("late", [256, 700, 4999])
def test_a_late_position_needs_no_earlier_one(late: int) -> None:
    code = SinusoidalPositions(16)(late, 1)
    torch.testing.assert_close(code, torch.tensor([paper_position(late, 16)]), rtol=0, atol=1e-6)


def test_a_sequence_of_5000_goes_through() -> None:
    model = build(small(num_heads=1, encoder_layers=1, decoder_layers=1))
    src = words(5000)
    with torch.inference_mode():
        assert model.encode(src, padding_mask(src, PAD)).isfinite().all()


def test_training_goes_on_after_a_translation_made_the_positions_grow() -> None:
    model = build(SMALL)
    src, tgt = words(300), words(290)
    with torch.inference_mode():
        logits_of(model, src, tgt)
    logits_of(model, src, tgt).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_learned_positions_end_at_max_positions_with_an_error_that_names_it() -> None:
    model = build(small(positions="learned", max_positions=5))
    logits_of(model, words(5), words(5))
    for src, tgt in ((words(6), words(5)), (words(5), words(6))):
        with pytest.raises(ValueError, match=r"6 pieces is longer than model\.max_positions 5"):
            logits_of(model, src, tgt)
    decoder = IncrementalDecoder(model)
    state = decoder.start(words(3), padding_mask(words(3), PAD))
    for _ in range(5):
        _, state = decoder.step(torch.tensor([[BOS]]), state)
    with pytest.raises(ValueError, match=r"6 pieces is longer than model\.max_positions 5"):
        decoder.step(torch.tensor([[BOS]]), state)


def test_learned_positions_are_two_tables_and_sinusoidal_ones_no_weights() -> None:
    learned = [name for name, _ in build(small(positions="learned")).named_parameters() if "positions" in name]
    assert learned == ["source_positions.table", "target_positions.table"]
    assert [name for name in build(SMALL).state_dict() if "positions" in name] == []


@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
def test_words_are_scaled_by_the_root_of_d_model_and_positions_are_not(positions: str) -> None:
    model = build(small(positions=positions, tie_embeddings="none"))
    src, tgt = words(5, 3), words(6, 4)
    for x, ids, embedding, table in zip(
        embedded(model, src, tgt),
        (src, tgt),
        (model.source_embedding, model.target_embedding),
        (model.source_positions, model.target_positions),
        strict=True,
    ):
        position = table.table[: ids.shape[1]]
        if positions == "sinusoidal":
            position = torch.tensor([paper_position(pos, 16) for pos in range(ids.shape[1])])
        torch.testing.assert_close(x, 4 * embedding.weight[ids] + position)  # sqrt(16) = 4


# --- the weights at the start ---------------------------------------------------------------------------------------


@every_tie
def test_embedded_words_start_with_deviation_one(tie: str) -> None:
    torch.manual_seed(1)
    model = Transformer(small(d_model=64, tie_embeddings=tie), 500, 500, PAD)
    ids = torch.arange(1, 500).unsqueeze(0)
    codes = sinusoids(499, 64)
    for x in embedded(model, ids, ids):
        assert (x - codes).std().item() == pytest.approx(1.0, rel=0.02)
    assert (model.output.weight[1:] * 8).std().item() == pytest.approx(1.0, rel=0.02)


@every_tie
def test_pad_rows_start_at_zero(tie: str) -> None:
    model = Transformer(small(tie_embeddings=tie), V, V, PAD)
    for weight in (model.source_embedding.weight, model.target_embedding.weight):
        assert weight[PAD].tolist() == [0.0] * 16
        assert (weight[PAD + 1 :] != 0).any(1).all()


@every_tie
def test_projections_start_by_xavier_without_bias(tie: str) -> None:
    torch.manual_seed(1)
    model = Transformer(small(d_model=64, ffn_dim=256, tie_embeddings=tie), V, V, PAD)
    layers = [*model.encoder.layers, *model.decoder.layers]
    linears = {
        f"{i}.{name}": m for i, layer in enumerate(layers) for name, m in layer.named_modules() if type(m) is Linear
    }
    assert len(linears) == 2 * (4 + 2) + 3 * (8 + 2)
    for name, linear in linears.items():
        # queries, keys and values as if they were one matrix
        together = 3 if name.split(".")[-1] in ("query", "key", "value") else 1
        bound = math.sqrt(6 / (linear.in_features + together * linear.out_features))
        assert 0.99 * bound < linear.weight.abs().max().item() <= bound, name
        assert linear.weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.05), name
        assert not linear.bias.any(), name


def test_norms_start_as_the_plain_normalisation() -> None:
    model = Transformer(small(norm="pre"), V, V, PAD)
    norms = [module for module in model.modules() if isinstance(module, LayerNorm)]
    assert len(norms) == 2 * 2 + 3 * 3 + 2
    assert all((norm.weight == 1).all() and not norm.bias.any() for norm in norms)


def test_learned_positions_start_with_the_deviation_of_the_embeddings() -> None:
    torch.manual_seed(1)
    model = Transformer(small(d_model=64, positions="learned"), V, V, PAD)
    for positions in (model.source_positions, model.target_positions):
        assert positions.table.std().item() == pytest.approx(1 / 8, rel=0.02)


def test_one_seed_gives_one_model() -> None:
    def weights(seed: int) -> list[Tensor]:
        torch.manual_seed(seed)
        return list(Transformer(SMALL, V, V, PAD).parameters())

    assert all(torch.equal(a, b) for a, b in zip(weights(1), weights(1), strict=True))
    assert not torch.equal(weights(1)[0], weights(2)[0])


def test_a_model_that_is_about_to_be_loaded_draws_no_random_number() -> None:
    before = torch.get_rng_state()
    Transformer(small(positions="learned", norm="pre", tie_embeddings="none"), V, V, PAD, initialise=False)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_loaded_model_is_the_saved_one() -> None:
    config = small(norm="pre", positions="learned", tie_embeddings="target")
    model, loaded = build(config), Transformer(config, V, V, PAD, initialise=False).eval()
    loaded.load_state_dict(model.state_dict())
    src, tgt = words(5, 3), words(6, 4)
    assert torch.equal(logits_of(model, src, tgt), logits_of(loaded, src, tgt))


# --- size and tying -------------------------------------------------------------------------------------------------


def expected_parameters(d: int, f: int, layers: int, pieces: int) -> int:
    attention = 4 * (d * d + d)
    feed_forward = (d * f + f) + (f * d + d)
    norm = 2 * d
    encoder_layer = attention + norm + feed_forward + norm
    decoder_layer = attention + norm + attention + norm + feed_forward + norm
    return pieces * d + layers * (encoder_layer + decoder_layer)


@pytest.mark.parametrize(
    ("config", "pieces", "expected"),
    [
        (ModelConfig(), 37000, 63_082_496),
        (ModelConfig(d_model=1024, ffn_dim=4096, num_heads=16), 37000, 214_245_376),
        (ModelConfig(d_model=128, ffn_dim=256, num_heads=4, encoder_layers=4, decoder_layers=4), 8000, 2_349_056),
    ],
    ids=["base", "big", "Multi30k"],
)
def test_parameter_counts(config: ModelConfig, pieces: int, expected: int) -> None:
    model = Transformer(config, pieces, pieces, PAD, initialise=False)
    assert expected_parameters(config.d_model, config.ffn_dim, config.encoder_layers, pieces) == expected
    assert sum(parameter.numel() for parameter in model.parameters()) == expected


@pytest.mark.parametrize(
    ("tie", "matrices"),
    [
        ("all", ["source_embedding.weight"]),
        ("target", ["source_embedding.weight", "target_embedding.weight"]),
        ("none", ["source_embedding.weight", "target_embedding.weight", "output.weight"]),
    ],
)
def test_tied_matrices_are_one_parameter(tie: str, matrices: list[str]) -> None:
    model = Transformer(small(tie_embeddings=tie), V, V, PAD)
    source, target, output = model.source_embedding.weight, model.target_embedding.weight, model.output.weight
    assert (source is target, target is output) == (tie == "all", tie != "none")
    # A tied weight has one name here: the one it is saved under.
    assert [name for name, _ in model.named_parameters() if "layers" not in name] == matrices


def test_one_matrix_for_two_vocabularies_is_refused() -> None:
    with pytest.raises(ValueError, match="one vocabulary, not 23 and 24 pieces"):
        Transformer(SMALL, V, V + 1, PAD)


@pytest.mark.parametrize("tie", ["target", "none"])
def test_the_two_sides_can_have_vocabularies_of_their_own(tie: str) -> None:
    model = Transformer(small(tie_embeddings=tie), V, V + 5, PAD).eval()
    assert logits_of(model, words(4), words(3)).shape == (1, 3, V + 5)


# --- against PyTorch's stacks ---------------------------------------------------------------------------------------


def copy_attention(ours: MultiHeadAttention, theirs: nn.MultiheadAttention) -> None:
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([ours.query.weight, ours.key.weight, ours.value.weight]))
        theirs.in_proj_bias.copy_(torch.cat([ours.query.bias, ours.key.bias, ours.value.bias]))
    theirs.out_proj.load_state_dict(ours.output.state_dict())


def torch_transformer(model: Transformer) -> nn.Transformer:
    """PyTorch's stacks with the weights of `model`."""
    config = model.config
    activation = {"relu": F.relu, "gelu": F.gelu, "swish": F.silu}[config.activation]
    shape = (config.d_model, config.num_heads, config.ffn_dim, 0.0, activation)
    pre = config.norm == "pre"
    encoder_layer = nn.TransformerEncoderLayer(*shape, batch_first=True, norm_first=pre)
    decoder_layer = nn.TransformerDecoderLayer(*shape, batch_first=True, norm_first=pre)
    # Left to itself nn.Transformer ends a post-norm stack with a norm too many.
    last = [nn.LayerNorm(config.d_model) if pre else None for _ in range(2)]
    encoder = nn.TransformerEncoder(encoder_layer, config.encoder_layers, last[0], enable_nested_tensor=False)
    decoder = nn.TransformerDecoder(decoder_layer, config.decoder_layers, last[1])
    theirs = nn.Transformer(
        config.d_model, config.num_heads, custom_encoder=encoder, custom_decoder=decoder, batch_first=True
    )
    for ours, layer in zip(model.encoder.layers, encoder.layers, strict=True):
        copy_attention(ours.self_attention, layer.self_attn)
        for mine, other in (
            (ours.self_attention_norm, layer.norm1),
            (ours.feed_forward.inner, layer.linear1),
            (ours.feed_forward.outer, layer.linear2),
            (ours.feed_forward_norm, layer.norm2),
        ):
            other.load_state_dict(mine.state_dict())
    for ours, layer in zip(model.decoder.layers, decoder.layers, strict=True):
        copy_attention(ours.self_attention, layer.self_attn)
        copy_attention(ours.cross_attention, layer.multihead_attn)
        for mine, other in (
            (ours.self_attention_norm, layer.norm1),
            (ours.cross_attention_norm, layer.norm2),
            (ours.feed_forward.inner, layer.linear1),
            (ours.feed_forward.outer, layer.linear2),
            (ours.feed_forward_norm, layer.norm3),
        ):
            other.load_state_dict(mine.state_dict())
    if pre:
        last[0].load_state_dict(model.encoder.norm.state_dict())
        last[1].load_state_dict(model.decoder.norm.state_dict())
    return theirs.to(model.output.weight.dtype)


@both_forms
@both_norms
@pytest.mark.parametrize("activation", ["relu", "gelu", "swish"])
@pytest.mark.parametrize("depths", [(2, 3), (3, 1)], ids=["2+3 layers", "3+1 layers"])
def test_stacks_equal_torch(form: AttentionForm, norm: str, activation: str, depths: tuple[int, int]) -> None:
    config = small(norm=norm, activation=activation, encoder_layers=depths[0], decoder_layers=depths[1])
    model = build(config, form).double()
    src, tgt = words(5, 3, 1), words(4, 6, 2)
    x, y = (torch.randn(*ids.shape, 16, dtype=torch.float64, requires_grad=True) for ids in (src, tgt))

    src_mask = padding_mask(src, PAD)
    ours = model.decoder(y, target_mask(tgt, PAD), model.encoder(x, src_mask), src_mask)
    theirs = torch_transformer(model)(
        x,
        y,
        tgt_mask=torch.ones(6, 6, dtype=torch.bool).triu(1),
        src_key_padding_mask=src == PAD,
        tgt_key_padding_mask=tgt == PAD,
        memory_key_padding_mask=src == PAD,
    )
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)
    weight = torch.randn_like(ours)
    of_ours, of_theirs = (torch.autograd.grad((hidden * weight).sum(), [x, y]) for hidden in (ours, theirs))
    torch.testing.assert_close(of_ours, of_theirs, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("activation", "by_hand"),
    [
        ("relu", lambda a: max(a, 0.0)),
        ("gelu", lambda a: a * 0.5 * (1 + math.erf(a / math.sqrt(2)))),
        ("swish", lambda a: a / (1 + math.exp(-a))),
    ],
)
def test_feed_forward_by_hand(activation: str, by_hand: Callable[[float], float]) -> None:
    block = FeedForward(ModelConfig(d_model=2, ffn_dim=2, num_heads=1, activation=activation))
    with torch.no_grad():
        block.inner.weight.copy_(torch.tensor([[1.0, 2.0], [0.0, -1.0]]))
        block.inner.bias.copy_(torch.tensor([0.5, 0.0]))
        block.outer.weight.copy_(torch.tensor([[3.0, 1.0], [0.0, 1.0]]))
        block.outer.bias.copy_(torch.tensor([0.0, 7.0]))
    # x = (1, 1): inside 3.5 and -1.
    expected = [3 * by_hand(3.5) + by_hand(-1.0), by_hand(-1.0) + 7]
    assert block.eval()(torch.ones(1, 1, 2)).flatten().tolist() == pytest.approx(expected)


@both_norms
def test_every_layer_is_used(norm: str) -> None:
    model = build(small(norm=norm))
    logits = logits_of(model, words(5, 3), words(6, 4))
    (logits * torch.randn_like(logits)).sum().backward()
    for name, parameter in model.named_parameters():
        # A bias of the keys adds the same to all scores of a query, and softmax does not see it.
        if not name.endswith("key.bias"):
            assert parameter.grad is not None, name
            assert parameter.grad.abs().max() > 1e-4, name


def test_encode_and_decode_are_the_two_halves_of_forward() -> None:
    model = build(SMALL)
    src, tgt = words(5, 3), words(6, 4)
    src_mask, tgt_mask = padding_mask(src, PAD), target_mask(tgt, PAD)
    hidden = model(src, src_mask, tgt, tgt_mask)
    assert hidden.shape == (2, 6, 16)
    assert torch.equal(hidden, model.decode(tgt, tgt_mask, model.encode(src, src_mask), src_mask))
    torch.testing.assert_close(model.project(hidden), hidden @ model.output.weight.T)


# --- dropout --------------------------------------------------------------------------------------------------------


def run_stacks(model: Transformer) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Input and output of the encoder, and of the decoder, in training."""
    model.train()
    src, tgt = words(5, 3), words(6, 4)
    src_mask = padding_mask(src, PAD)
    x, y, memory = torch.randn(2, 5, 16), torch.randn(2, 6, 16), torch.randn(2, 5, 16)
    return (x, model.encoder(x, src_mask)), (y, model.decoder(y, target_mask(tgt, PAD), memory, src_mask))


def test_dropout_falls_on_the_block_and_not_on_the_residual_sum_post_norm() -> None:
    # With every block dropped, a layer is its norms one after the other.
    model = build(small(dropout=ALMOST_ALL))
    (x, memory), (y, hidden) = run_stacks(model)
    for layer in model.encoder.layers:
        x = layer.feed_forward_norm(layer.self_attention_norm(x))
    for layer in model.decoder.layers:
        y = layer.feed_forward_norm(layer.cross_attention_norm(layer.self_attention_norm(y)))
    assert torch.equal(memory, x)
    assert torch.equal(hidden, y)


def test_dropout_falls_on_the_block_and_not_on_the_residual_sum_pre_norm() -> None:
    # With every block dropped, a layer hands on its input, and only the last norm is left.
    model = build(small(dropout=ALMOST_ALL, norm="pre"))
    (x, memory), (y, hidden) = run_stacks(model)
    assert torch.equal(memory, model.encoder.norm(x))
    assert torch.equal(hidden, model.decoder.norm(y))


@both_norms
def test_nothing_is_dropped_after_a_norm(norm: str) -> None:
    for _, output in run_stacks(Transformer(small(dropout=0.5, norm=norm), V, V, PAD)):
        torch.testing.assert_close(output.mean(-1), torch.zeros(output.shape[:2]), rtol=0, atol=1e-4)
        torch.testing.assert_close(output.var(-1, correction=0), torch.ones(output.shape[:2]), rtol=0, atol=1e-3)


@pytest.mark.parametrize(
    ("changes", "dropped"),
    [
        ({"dropout": 0.5}, True),
        ({"dropout": 0.5, "embedding_dropout": 0.0}, False),
        ({"dropout": 0.0, "embedding_dropout": 0.5}, True),
    ],
)
def test_embedding_dropout_is_the_dropout_unless_it_is_given(changes: dict[str, float], dropped: bool) -> None:
    model = build(small(**changes))
    src, tgt = words(5, 3), words(6, 4)
    whole = embedded(model, src, tgt)
    for x, before in zip(embedded(model.train(), src, tgt), whole, strict=True):
        zero = x == 0
        assert zero.any() == dropped
        torch.testing.assert_close(x[~zero], before[~zero] * (2 if dropped else 1))


def test_activation_dropout_falls_inside_the_feed_forward_block() -> None:
    block = build(small(activation_dropout=ALMOST_ALL)).encoder.layers[0].feed_forward.train()
    x = torch.randn(2, 5, 16)
    assert torch.equal(block(x), block.outer.bias.expand(2, 5, 16))
    assert not torch.equal(block.eval()(x), block.outer.bias.expand(2, 5, 16))


def test_attention_dropout_reaches_every_attention_and_nothing_else() -> None:
    model = build(small(attention_dropout=0.25))
    attentions = [module for module in model.modules() if isinstance(module, MultiHeadAttention)]
    assert [module.dropout for module in attentions] == [0.25] * (2 + 2 * 3)
    assert {module.p for module in model.modules() if isinstance(module, nn.Dropout)} == {0.0}


def test_nothing_is_dropped_outside_training() -> None:
    rates = {"dropout": 0.5, "attention_dropout": 0.5, "activation_dropout": 0.5, "embedding_dropout": 0.5}
    src, tgt = words(5, 3), words(6, 4)
    model = build(small(**rates))
    assert torch.equal(logits_of(model, src, tgt), logits_of(build(SMALL), src, tgt))
    model.train()
    assert not torch.equal(logits_of(model, src, tgt), logits_of(model, src, tgt))


# --- activation checkpointing ---------------------------------------------------------------------------------------


def loss_and_gradients(model: Transformer, precision: torch.dtype) -> tuple[Tensor, dict[str, Tensor]]:
    torch.manual_seed(5)
    src, tokens = words(5, 3, 9), words(6, 4, 8)
    with torch.autocast("cpu", precision, enabled=precision != torch.float32):
        loss = loss_of(model, src, tokens)
    gradients = torch.autograd.grad(loss, list(model.parameters()))
    return loss.detach(), {name: gradients[i] for i, (name, _) in enumerate(model.named_parameters())}


@both_forms
@both_norms
@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
def test_activation_checkpointing_changes_no_bit_of_loss_and_gradient(
    form: AttentionForm, norm: str, precision: torch.dtype
) -> None:
    rates = {"dropout": 0.3, "attention_dropout": 0.2, "activation_dropout": 0.2}
    model = build(small(norm=norm, **rates), form).train()
    loss, gradients = loss_and_gradients(model, precision)
    model.checkpoint_activations()
    again, recomputed = loss_and_gradients(model, precision)
    assert torch.equal(again, loss)
    assert [name for name in gradients if not torch.equal(recomputed[name], gradients[name])] == []


def test_activation_checkpointing_keeps_less_and_computes_each_layer_twice() -> None:
    model = build(small(dropout=0.3)).train()
    blocks = [module for module in model.modules() if isinstance(module, FeedForward)]  # one in each layer
    computed: list[nn.Module] = []
    for block in blocks:
        block.register_forward_pre_hook(lambda module, _: computed.append(module))

    def numbers_kept() -> int:
        """For the backward pass, which then runs."""
        sizes: list[int] = []

        def keep(x: Tensor) -> Tensor:
            sizes.append(x.numel())
            return x

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
            loss = loss_of(model, words(9, 9), words(8, 8))
        torch.autograd.backward(loss)
        return sum(sizes)

    whole = numbers_kept()
    assert len(computed) == len(blocks) == 2 + 3
    model.checkpoint_activations()
    computed.clear()
    assert numbers_kept() < whole / 2
    assert [computed.count(block) for block in blocks] == [2] * (2 + 3)


@pytest.mark.filterwarnings("error")
def test_activation_checkpointing_does_not_touch_translation() -> None:
    model, other = build(SMALL), build(SMALL)
    model.checkpoint_activations()
    src, tgt = words(5, 3), words(6, 4)
    with torch.inference_mode():
        assert torch.equal(logits_of(model, src, tgt), logits_of(other, src, tgt))
        one, two = IncrementalDecoder(model), IncrementalDecoder(other)
        state, expected = one.start(src, padding_mask(src, PAD)), two.start(src, padding_mask(src, PAD))
        assert torch.equal(one.step(tgt[:, :1], state)[0], two.step(tgt[:, :1], expected)[0])


# --- what a position may know ---------------------------------------------------------------------------------------


@both_forms
@both_norms
def test_a_target_word_moves_no_earlier_logit_and_every_later_one(form: AttentionForm, norm: str) -> None:
    model = build(small(norm=norm), form)
    src, tgt = words(5, 3), words(7, 7)
    before = logits_of(model, src, tgt)
    for j in range(7):
        other = tgt.clone()
        other[:, j] = EOS + 1 + (tgt[:, j] - EOS) % (V - EOS - 1)  # another word
        assert (other != tgt).sum() == 2
        moved = (logits_of(model, src, other) - before).abs().amax(-1)  # (B, T)
        assert (moved[:, :j] < 1e-6).all()
        assert (moved[:, j:] > 1e-3).all()


@both_norms
def test_a_source_word_moves_every_logit_of_its_own_sentence_only(norm: str) -> None:
    model = build(small(norm=norm))
    src, tgt = words(5, 5), words(6, 6)
    before = logits_of(model, src, tgt)
    for j in range(5):
        other = src.clone()
        other[0, j] = EOS + 1 + (src[0, j] - EOS) % (V - EOS - 1)
        moved = (logits_of(model, other, tgt) - before).abs().amax(-1)
        assert (moved[0] > 1e-3).all()
        assert (moved[1] < 1e-6).all()


@both_forms
@both_norms
@pytest.mark.parametrize("sides", [(4, 0), (0, 4), (4, 4)], ids=["source", "target", "both"])
def test_columns_of_padding_change_nothing(form: AttentionForm, norm: str, sides: tuple[int, int]) -> None:
    model = build(small(norm=norm), form).double()
    src, tgt = words(5, 3), words(6, 4)
    before = logits_of(model, src, tgt)
    after = logits_of(model, F.pad(src, (0, sides[0]), value=PAD), F.pad(tgt, (0, sides[1]), value=PAD))
    real = tgt != PAD
    assert (after[:, :6][real] - before[real]).abs().max() < 1e-12


@both_forms
@both_norms
def test_a_batch_gives_what_its_sentences_give_alone(form: AttentionForm, norm: str) -> None:
    model = build(small(norm=norm), form).double()
    lengths = [(5, 2), (3, 6), (1, 1)]
    src, tgt = words(*(s for s, _ in lengths)), words(*(t for _, t in lengths))
    together = logits_of(model, src, tgt)
    for i, (s, t) in enumerate(lengths):
        alone = logits_of(model, src[i : i + 1, :s], tgt[i : i + 1, :t])
        assert (together[i, :t] - alone[0]).abs().max() < 1e-12


@both_forms
def test_padding_amid_the_target_is_seen_by_no_word(form: AttentionForm) -> None:
    model = build(small(tie_embeddings="none"), form)
    src, tgt = words(5), words(6)
    tgt[0, 2] = PAD
    before = logits_of(model, src, tgt)
    with torch.no_grad():
        model.target_embedding.weight[PAD] += 5.0
    moved = (logits_of(model, src, tgt) - before).abs().amax(-1)[0]
    assert (moved > 0).tolist() == [False, False, True, False, False, False]


# --- the pad row: case C7 -------------------------------------------------------------------------------------------


def teacher_forcing(tokens: Tensor) -> tuple[Tensor, Tensor]:
    """The input, bos and the words, and what it is to predict, the words and eos."""
    ends = (tokens != PAD).sum(1)
    gold = F.pad(tokens, (0, 1), value=PAD)
    gold[torch.arange(len(gold)), ends] = EOS
    return F.pad(tokens, (1, 0), value=BOS), gold


def loss_of(model: Transformer, src: Tensor, tokens: Tensor) -> Tensor:
    tgt, gold = teacher_forcing(tokens)
    return F.cross_entropy(logits_of(model, src, tgt).flatten(0, 1), gold.flatten(), ignore_index=PAD)


@both_forms
@both_norms
@every_tie
def test_no_gradient_reaches_an_embedded_pad(form: AttentionForm, norm: str, tie: str) -> None:
    model = build(small(norm=norm, tie_embeddings=tie, dropout=0.1, attention_dropout=0.1), form).train()
    src, tokens = words(2, 9), words(3, 8)
    seen: list[Tensor] = []
    for stack in (model.encoder, model.decoder):
        stack.register_forward_pre_hook(lambda _, arguments: seen.append(arguments[0]))
    loss = loss_of(model, src, tokens)
    for ids, gradient in zip((src, teacher_forcing(tokens)[0]), torch.autograd.grad(loss, seen), strict=True):
        assert (gradient[ids == PAD] == 0).all()
        assert (gradient[ids != PAD] != 0).any(-1).all()


@every_tie
def test_the_pad_row_of_an_untied_embedding_stays_zero_in_training(tie: str) -> None:
    torch.manual_seed(1)
    model = Transformer(small(tie_embeddings=tie, dropout=0.1), V, V, PAD)
    start = model.source_embedding.weight.detach().clone()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, betas=(0.9, 0.98), eps=1e-9)
    src, tokens = words(2, 9), words(3, 8)
    for _ in range(20):
        optimizer.zero_grad()
        loss_of(model, src, tokens).backward()
        optimizer.step()
    assert not torch.equal(model.source_embedding.weight, start)
    # A tied matrix is also the projection, whose softmax moves every row.
    assert (model.source_embedding.weight[PAD] == 0).all().item() == (tie != "all")
    assert (model.target_embedding.weight[PAD] == 0).all().item() == (tie == "none")


@every_tie
def test_the_pad_row_learns_nothing_as_an_input_even_where_a_mask_shows_it(tie: str) -> None:
    model = build(small(tie_embeddings=tie))
    src, tgt = words(2, 9), words(3, 8)
    nothing_hidden = torch.ones(1, 1, 1, dtype=torch.bool)
    hidden = model(src, nothing_hidden, tgt, nothing_hidden)
    (hidden * torch.randn_like(hidden)).sum().backward()
    for ids, embedding in ((src, model.source_embedding), (tgt, model.target_embedding)):
        assert (embedding.weight.grad[ids[ids != PAD]] != 0).any(1).all()
        assert (embedding.weight.grad[PAD] == 0).all()


@both_forms
@both_norms
@every_tie
def test_what_the_pad_row_holds_does_not_reach_a_word(form: AttentionForm, norm: str, tie: str) -> None:
    model = build(small(norm=norm, tie_embeddings=tie), form)
    src, tgt = words(2, 9), words(3, 8)
    src_mask, tgt_mask = padding_mask(src, PAD), target_mask(tgt, PAD)
    memory, hidden = model.encode(src, src_mask), model(src, src_mask, tgt, tgt_mask)
    with torch.no_grad():
        model.source_embedding.weight[PAD] = 1000.0
        model.target_embedding.weight[PAD] = 1000.0
    assert torch.equal(model.encode(src, src_mask)[src != PAD], memory[src != PAD])
    assert torch.equal(model(src, src_mask, tgt, tgt_mask)[tgt != PAD], hidden[tgt != PAD])


# --- attention to look at -------------------------------------------------------------------------------------------


@both_forms
def test_attention_weights_are_distributions_over_what_may_be_seen(form: AttentionForm) -> None:
    model = build(SMALL, form)
    src, tgt = words(5, 3), words(6, 4)
    src_mask, tgt_mask = padding_mask(src, PAD), target_mask(tgt, PAD)
    weights = model.cross_attention_weights(src, src_mask, tgt, tgt_mask)
    assert weights.shape == (3, 2, 4, 6, 5)  # (layers, B, H, queries, keys)
    torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]))
    shown = src_mask.unsqueeze(1).expand(weights.shape[1:])
    assert (weights[:, ~shown] == 0).all()
    assert (weights[:, shown] > 0).all()


@both_norms
def test_attention_weights_are_those_that_forward_uses(norm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = build(small(norm=norm), "written_out")
    src, tgt = words(5, 3), words(6, 4)
    arguments = (src, padding_mask(src, PAD), tgt, target_mask(tgt, PAD))
    used: list[Tensor] = []

    def recording(q: Tensor, k: Tensor, mask: Tensor) -> Tensor:
        used.append(attention_weights(q, k, mask))
        return used[-1]

    weights = model.cross_attention_weights(*arguments)
    monkeypatch.setattr("transformer_cli.model.attention.attention_weights", recording)
    model(*arguments)
    for layer in range(3):  # after two encoder layers; a decoder layer attends twice
        assert torch.equal(weights[layer], used[3 + 2 * layer])


def test_looking_at_attention_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    model = build(SMALL)
    src, tgt = words(5, 3), words(6, 4)
    arguments = (src, padding_mask(src, PAD), tgt, target_mask(tgt, PAD))
    before = model(*arguments)
    looked: list[None] = []

    def looking(q: Tensor, k: Tensor, mask: Tensor) -> Tensor:
        looked.append(None)
        return attention_weights(q, k, mask)

    monkeypatch.setattr("transformer_cli.model.transformer.attention_weights", looking)
    model.cross_attention_weights(*arguments)
    assert len(looked) == 3
    assert torch.equal(model(*arguments), before)
    assert len(looked) == 3  # no one looks on


# --- no device, no number format ------------------------------------------------------------------------------------


def test_the_model_names_no_device() -> None:
    files = sorted(Path(transformer_cli.model.__file__).parent.glob("*.py"))
    assert {"attention.py", "blocks.py", "masks.py", "transformer.py"} <= {file.name for file in files}
    for file in files:
        text = file.read_text(encoding="utf-8").lower()
        # Where a processor finds the same numbers faster in another way, the tensor is asked, in one place of a file.
        assert text.count(".is_cpu") <= 1, file.name
        text = text.replace(".is_cpu", "").replace("on cpu", "")
        assert [name for name in ("cuda", "cpu", "mps") if name in text] == [], file.name


@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
def test_a_moved_model_takes_everything_along(positions: str) -> None:
    model = build(small(positions=positions)).double()
    assert {tensor.dtype for tensor in (*model.parameters(), *model.buffers())} == {torch.float64}
    src, tgt = words(300), words(300)  # longer than the table is at first
    logits = logits_of(model, src, tgt)
    assert logits.dtype == torch.float64
    if positions == "sinusoidal":
        assert model.source_positions.table.dtype == torch.float64
    torch.testing.assert_close(logits.float(), logits_of(model.float(), src, tgt), rtol=1e-4, atol=1e-4)


# --- compiled -------------------------------------------------------------------------------------------------------


def test_a_graph_for_all_shapes_gives_the_same_in_bf16_on_cpu() -> None:
    # As `compile: true` makes it, but for the C++ compiler.
    torch.manual_seed(1)
    model = Transformer(SMALL.model_copy(update={"dropout": 0.0}), V, V, PAD, "written_out").train()
    compiled = torch.compile(model, backend="aot_eager", dynamic=True)
    outcomes = []
    for run in (model, compiled):
        src, tgt = torch.tensor([[5, 6, 7, EOS], [5, 6, EOS, PAD]]), torch.tensor([[BOS, 5, 6], [BOS, 7, PAD]])
        with torch.autocast("cpu", torch.bfloat16):
            hidden = run(src, padding_mask(src, PAD), tgt, target_mask(tgt, PAD))
        outcomes.append(
            [hidden, *torch.autograd.grad(hidden.square().sum(), [model.encoder.layers[0].feed_forward.inner.weight])]
        )
    torch.compiler.reset()
    torch.testing.assert_close(outcomes[1], outcomes[0], rtol=0.02, atol=0.02)
