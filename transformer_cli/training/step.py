"""One update: micro-batches, autocast, sums, clip, optimizer."""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from transformer_cli.config.schema import TrainingConfig
from transformer_cli.data.batching import Batch
from transformer_cli.data.tokenizer import PAD
from transformer_cli.device import Precision, autocast
from transformer_cli.model.masks import padding_mask, target_mask
from transformer_cli.model.transformer import Transformer
from transformer_cli.training.loss import LossSums, fused_cross_entropy, smoothed_cross_entropy


class UpdateResult(NamedTuple):
    """What an update saw, before it changed the weights: sums over its target tokens."""

    loss: float
    nll: float
    tokens: int
    grad_norm: float


def derived_seed(*parts: int) -> int:
    """A seed that follows from numbers: randomness is derived from where training stands, and never carried along."""
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1  # PyTorch takes 63 bits everywhere


CrossEntropy = Callable[[Tensor, Tensor, Tensor, int, float], LossSums]


def batch_loss(model: Transformer, batch: Batch, cross_entropy: CrossEntropy, epsilon: float) -> LossSums:
    """Teacher-forced loss sums of one batch, in one of the two equal forms of the loss."""
    hidden = model(batch.src, padding_mask(batch.src, PAD), batch.tgt_in, target_mask(batch.tgt_in, PAD))
    return cross_entropy(hidden, model.output.weight, batch.tgt_out, PAD, epsilon)


class Updater:
    """A model with its optimizer. Adam is PyTorch's fused form on every device, so that a run has one."""

    def __init__(
        self, model: Transformer, config: TrainingConfig, seed: int, device: torch.device, precision: Precision
    ) -> None:
        self.model = model
        self.config = config
        self.seed = seed
        self.device = device
        self.precision = precision
        # The fused form has its gradients before the loss is scaled, when fp16 could still lose the small ones.
        self.cross_entropy = smoothed_cross_entropy if precision == "fp16" else fused_cross_entropy
        self.names = [name for name, _ in model.named_parameters()]
        # AdamW without decay is Adam.
        self.optimizer = torch.optim.AdamW(
            model.parameters(),
            lr=0.0,
            betas=config.adam_betas,
            eps=config.adam_eps,
            weight_decay=config.weight_decay,
            fused=True,
        )
        self.scaler = torch.amp.GradScaler(device.type, enabled=precision == "fp16")

    def update(self, batches: Sequence[Batch], step: int, rate: float) -> UpdateResult:
        """Step number `step` (from 1): the mean gradient over all target tokens of all its micro-batches.

        Each adds its sum divided by the tokens of the whole update, so how an update is cut changes nothing.
        """
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        tokens = sum(int((batch.tgt_out != PAD).sum()) for batch in batches)
        loss = nll = 0.0
        self.model.train()
        self.optimizer.zero_grad(set_to_none=True)
        for i, batch in enumerate(batches):
            torch.manual_seed(derived_seed(self.seed, step, i))
            with autocast(self.device, self.precision):
                sums = batch_loss(self.model, batch.to(self.device), self.cross_entropy, self.config.label_smoothing)
            torch.autograd.backward(self.scaler.scale(sums.loss / tokens))
            loss += float(sums.loss.detach())
            nll += float(sums.nll)
        # Unscale, then clip, then step: a clipped norm must be the gradient's own, not its scaled one.
        self.scaler.unscale_(self.optimizer)
        longest = float("inf") if self.config.clip_grad_norm is None else self.config.clip_grad_norm
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), longest)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return UpdateResult(loss, nll, tokens, float(norm))

    def optimizer_tensors(self) -> dict[str, Tensor]:
        """The optimizer's state as flat tensors, named PARAMETER.exp_avg and so on."""
        state = self.optimizer.state_dict()["state"]
        return {f"{self.names[i]}.{key}": tensor for i, own in state.items() for key, tensor in own.items()}

    def restore(self, tensors: Mapping[str, Tensor], loss_scale: dict[str, Any]) -> None:
        """Put back what a checkpoint kept; the hyper-parameters stay the configuration's."""
        state: dict[int, dict[str, Tensor]] = defaultdict(dict)
        numbers = {name: i for i, name in enumerate(self.names)}
        for key, tensor in tensors.items():
            name, _, kind = key.rpartition(".")
            state[numbers[name]][kind] = tensor
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": dict(state), "param_groups": groups})
        if loss_scale:
            self.scaler.load_state_dict(loss_scale)
