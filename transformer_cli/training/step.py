"""One update: micro-batches, autocast, sums, clip, optimizer."""

import hashlib
import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from inspect import unwrap
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from transformer_cli.config.schema import TrainingConfig
from transformer_cli.data.batching import Batch, Indices, Update, joined_groups, make_batch, micro_batches
from transformer_cli.data.dataset import TokenDataset
from transformer_cli.data.tokenizer import BOS, EOS, PAD
from transformer_cli.device import (
    Precision,
    autocast,
    give_back_memory,
    is_out_of_memory,
    large_parts,
    memory_asked_for,
)
from transformer_cli.errors import ProcessError, UserError
from transformer_cli.log import LOGGER, OF_ONE_PROCESS
from transformer_cli.model.masks import padding_mask, target_mask
from transformer_cli.model.transformer import Transformer
from transformer_cli.training.distributed import Processes, ReplicatedTransformer
from transformer_cli.training.loss import LossSums, fused_cross_entropy, smoothed_cross_entropy


class UpdateResult(NamedTuple):
    """What an update saw, before it changed the weights: sums over its target tokens, in all processes.

    `skipped`: loss or gradient were not finite, and the weights are as before.
    """

    loss: float
    nll: float
    tokens: int
    grad_norm: float
    skipped: bool


def derived_seed(*parts: int) -> int:
    """A seed that follows from numbers: randomness is derived from where training stands, and never carried along."""
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1  # PyTorch takes 63 bits everywhere


_LESS_MEMORY = (
    "lower training.batch_size and raise training.gradient_accumulation_steps by as much, which leaves the updates the "
    "same, or try training.activation_checkpointing; then --resume"
)

CrossEntropy = Callable[[Tensor, Tensor, Tensor, int, float], LossSums]

# The share of a process for which an update has no pair: all must take part in the exchange of gradients.
_EMPTY = Batch(src=torch.tensor([[EOS]]), tgt_in=torch.tensor([[BOS]]), tgt_out=torch.tensor([[PAD]]))


def batch_loss(
    model: Transformer | ReplicatedTransformer, batch: Batch, cross_entropy: CrossEntropy, epsilon: float
) -> LossSums:
    """Teacher-forced loss sums of one batch, in one of the two equal forms of the loss."""
    hidden = model(batch.src, padding_mask(batch.src, PAD), batch.tgt_in, target_mask(batch.tgt_in, PAD))
    return cross_entropy(hidden, model.output.weight, batch.tgt_out, PAD, epsilon)


class FusedAdamW(torch.optim.AdamW):
    """PyTorch's AdamW, bit for bit, without what `torch.compile` wraps around its methods: that loads a compiler, which
    takes a second before the first update and has no part in it."""

    step = torch.no_grad()(unwrap(torch.optim.AdamW.step))
    zero_grad = unwrap(torch.optim.AdamW.zero_grad)
    add_param_group = unwrap(torch.optim.AdamW.add_param_group)
    state_dict = unwrap(torch.optim.AdamW.state_dict)
    load_state_dict = unwrap(torch.optim.AdamW.load_state_dict)


class Updater:
    """A model with its optimizer. Adam is PyTorch's fused form on every device, so that a run has one.

    `batch_size` is the most that goes through the model at once: the configuration's, or less since memory ran out.
    """

    def __init__(
        self,
        model: Transformer,
        config: TrainingConfig,
        seed: int,
        device: torch.device,
        precision: Precision,
        processes: Processes | None = None,
        shared_by: Processes | None = None,
    ) -> None:
        """`processes` add up what they compute; `shared_by` are those that an update's parts are dealt out to: all of
        them, or this one alone where each brings updates of its own."""
        self.model = model
        self.config = config
        self.seed = seed
        self.device = device
        self.precision = precision
        self.processes = processes or Processes()
        self.shared_by = shared_by or self.processes
        self.batch_size = config.batch_size
        self.replica = self.processes.replicate(model)
        # The fused form has its gradients before the loss is scaled, when fp16 could still lose the small ones.
        self.cross_entropy = smoothed_cross_entropy if precision == "fp16" else fused_cross_entropy
        self.names = [name for name, _ in model.named_parameters()]
        # AdamW without decay is Adam.
        self.optimizer = FusedAdamW(
            model.parameters(),
            lr=0.0,
            betas=config.adam_betas,
            eps=config.adam_eps,
            weight_decay=config.weight_decay,
            fused=True,
        )
        self.scaler = torch.amp.GradScaler(device.type, enabled=precision == "fp16")

    def train_on(self, dataset: TokenDataset, update: Update, step: int, rate: float) -> UpdateResult:
        """`update` with this process's share of a planned update, in smaller parts if memory runs out."""
        while True:
            parts = self.cut(dataset, update)
            try:
                return self.update([make_batch(dataset, part) for part in self.shared_by.share(parts)], step, rate)
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                if self.processes.count > 1:
                    # The others may already have had a part of this one's gradient.
                    raise ProcessError(f"process {self.processes.rank} ran out of memory: {_LESS_MEMORY}") from error
                reason = memory_asked_for(error)
            self._halve(max(parts, key=dataset.cells), dataset, reason)

    def try_largest(self, dataset: TokenDataset, updates: Sequence[Update]) -> Indices | None:
        """A forward and backward pass of the largest batch, with all that an update needs in place, so that memory runs
        out now or hardly ever; returns that batch, or the one that fits in its place."""
        self._make_moments()
        parts = [part for update in updates for part in self.cut(dataset, update)]
        largest = max(parts, key=dataset.cells, default=None)
        while largest is not None:
            try:
                self.forward_and_backward(dataset, largest)
                break
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                reason = memory_asked_for(error)
            self._halve(largest, dataset, reason)
            largest = max(self.cut(dataset, [largest]), key=dataset.cells)
        self.optimizer.zero_grad(set_to_none=True)
        self.batch_size = self.processes.least(self.batch_size)
        return largest

    def forward_and_backward(self, dataset: TokenDataset, part: Indices) -> None:
        """The passes of one part of an update, by this process alone; no weight is changed."""
        self.model.train()
        with autocast(self.device, self.precision):
            batch = make_batch(dataset, part).to(self.device)
            sums = batch_loss(self.model, batch, self.cross_entropy, self.config.label_smoothing)
        torch.autograd.backward(sums.loss)
        float(sums.nll)  # wait for the device

    def update(self, batches: Sequence[Batch], step: int, rate: float) -> UpdateResult:
        """Step number `step` (from 1): the mean gradient over all target tokens of all micro-batches of all processes.

        Each adds its sum divided by the tokens of the whole update, so how an update is cut changes nothing.
        """
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        (tokens,) = self.processes.sum([sum(int((batch.tgt_out != PAD).sum()) for batch in batches)])
        sums_of_parts = []
        self.replica.train()
        self.optimizer.zero_grad(set_to_none=True)
        for i, batch in enumerate(batches or [_EMPTY]):
            torch.manual_seed(derived_seed(self.seed, step, i, *self._rank_of_several()))
            is_last = i + 1 >= len(batches)
            with nullcontext() if is_last else self.processes.without_exchange(self.replica):
                with autocast(self.device, self.precision):
                    sums = batch_loss(
                        self.replica, batch.to(self.device), self.cross_entropy, self.config.label_smoothing
                    )
                # The exchange takes the mean over the processes, and the sum is wanted.
                torch.autograd.backward(self.scaler.scale(sums.loss * (self.processes.count / tokens)))
            sums_of_parts.append((sums.loss.detach(), sums.nll))
        # Read only now, so that a GPU need not wait between the parts.
        loss, nll = self.processes.sum([sum(map(float, column)) for column in zip(*sums_of_parts, strict=True)])
        # Unscale, then clip, then step: a clipped norm must be the gradient's own, not its scaled one.
        self.scaler.unscale_(self.optimizer)
        max_norm = float("inf") if self.config.clip_grad_norm is None else self.config.clip_grad_norm
        norm = float(nn.utils.clip_grad_norm_(self.model.parameters(), max_norm))
        skipped = not (math.isfinite(loss) and math.isfinite(norm))
        if not skipped:
            self.scaler.step(self.optimizer)
        self.scaler.update()
        return UpdateResult(loss, nll, int(tokens), norm, skipped)

    def cut(self, dataset: TokenDataset, update: Update) -> list[Indices]:
        """The parts that an update is computed in."""
        if large_parts(self.device, self.precision):
            update = joined_groups(update, dataset, self.batch_size, self.config.batch_type)
        return micro_batches(update, dataset, self.batch_size, self.config.batch_type, self.shared_by.count)

    def _rank_of_several(self) -> tuple[int, ...]:
        return () if self.processes.count == 1 else (self.processes.rank,)

    def _make_moments(self) -> None:
        """Adam's moments, if there are none yet. Left alone it makes them in the middle of its first step, where memory
        that runs out would leave some without the others."""
        for parameter in self.model.parameters():
            if not self.optimizer.state[parameter]:
                self.optimizer.state[parameter] = {
                    "step": torch.zeros((), device=parameter.device),
                    "exp_avg": torch.zeros_like(parameter),
                    "exp_avg_sq": torch.zeros_like(parameter),
                }

    def _halve(self, part: Indices, dataset: TokenDataset, reason: str) -> None:
        """Smaller parts from now on, an update having run out of memory; UserError when the part is a single pair."""
        if len(part) == 1:
            raise UserError(
                f"a single pair of {dataset.cells(part)} pieces does not fit into memory{reason}: lower "
                "data.max_length or the sizes of the model, or try training.activation_checkpointing"
            )
        whole = dataset.cells(part) if self.config.batch_type == "tokens" else len(part)
        self.batch_size = whole // 2
        give_back_memory(self.device)
        LOGGER.warning(
            "out of memory with %d pairs of up to %d pieces at once: from here on an update is computed in parts of "
            "at most %d %s; its gradient stays the same",
            len(part),
            dataset.longest(part),
            self.batch_size,
            "cells" if self.config.batch_type == "tokens" else "pairs",
            extra=OF_ONE_PROCESS,
        )

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
