"""One update: micro-batches, autocast, loss sums, gradient clipping, optimizer step."""

import hashlib
import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from inspect import unwrap
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from transformer_cli.config.schema import TrainingConfig
from transformer_cli.data.batching import Batch, Indices, Update, joined_groups, make_batch, micro_batches
from transformer_cli.data.dataset import TokenDataset
from transformer_cli.data.tokenizer import BOS, EOS, PAD
from transformer_cli.device import (
    OutOfMemory,
    Precision,
    attempt,
    autocast,
    large_parts,
)
from transformer_cli.errors import ProcessError, UserError
from transformer_cli.log import LOGGER, OF_ONE_PROCESS
from transformer_cli.model.masks import padding_mask, target_mask
from transformer_cli.model.transformer import Transformer
from transformer_cli.training.distributed import Processes, ReplicatedTransformer
from transformer_cli.training.loss import LossSums, fused_cross_entropy, smoothed_cross_entropy


class UpdateResult(NamedTuple):
    """Sums over the target tokens of an update in all processes, and the gradient norm before clipping.

    `skipped`: the loss or gradient was not finite, and the weights are unchanged.
    """

    loss: float
    nll: float
    tokens: int
    grad_norm: float
    skipped: bool


def derived_seed(*parts: int) -> int:
    """A hash of some numbers as a seed: randomness depends only on the position in training, never on earlier draws."""
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1  # PyTorch takes 63 bits everywhere


_LESS_MEMORY = (
    "lower training.batch_size and raise training.gradient_accumulation_steps by as much, which leaves the updates the "
    "same, or try training.activation_checkpointing; then --resume"
)

_UPDATES_CUT = 1000  # or up to twice as many, among whose micro-batches the largest is looked for

CrossEntropy = Callable[[Tensor, Tensor, Tensor, int, float], LossSums]

# The batch of a process without pairs in an update: all must take part in the all-reduce of the gradients.
_EMPTY = Batch(src=torch.tensor([[EOS]]), tgt_in=torch.tensor([[BOS]]), tgt_out=torch.tensor([[PAD]]))


def update_size(config: TrainingConfig) -> int:
    """Size of an update, in cells or pairs."""
    return config.batch_size * config.gradient_accumulation_steps


def batch_loss(
    model: Transformer | ReplicatedTransformer, batch: Batch, cross_entropy: CrossEntropy, epsilon: float
) -> LossSums:
    """Teacher-forced loss sums of one batch, in one of the two equivalent forms of the loss."""
    hidden = model(batch.src, padding_mask(batch.src, PAD), batch.tgt_in, target_mask(batch.tgt_in, PAD))
    return cross_entropy(hidden, model.output.weight, batch.tgt_out, PAD, epsilon)


class FusedAdamW(torch.optim.AdamW):
    """PyTorch's AdamW, bit for bit, without the `torch.compile` wrappers of its methods: these load a compiler, which
    takes a second before the first update and is not used."""

    step = torch.no_grad()(unwrap(torch.optim.AdamW.step))
    zero_grad = unwrap(torch.optim.AdamW.zero_grad)
    add_param_group = unwrap(torch.optim.AdamW.add_param_group)
    state_dict = unwrap(torch.optim.AdamW.state_dict)
    load_state_dict = unwrap(torch.optim.AdamW.load_state_dict)


class Updater:
    """A model with its optimizer. Adam is PyTorch's fused implementation on every device, so that a run uses only one.

    `batch_size` is the maximum size of a micro-batch: the configuration's, or less once memory has run out.
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
        """`processes` sum their gradients; `shared_by` are those that share the parts of an update: all of them, or
        this one alone if each has updates of its own."""
        self.model = model
        self.config = config
        self.seed = seed
        self.device = device
        self.precision = precision
        self.processes = processes or Processes()
        self.shared_by = shared_by or self.processes
        self.batch_size = config.batch_size
        self.replica = self.processes.replicate(model)
        # The fused form computes its gradients before the loss is scaled, and small ones could underflow in fp16.
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
        """Run `update` on this process's share of a planned update, in smaller parts if memory runs out."""
        while True:
            parts = self.cut(dataset, update)
            own = self.shared_by.share(parts)
            result = attempt(partial(self._update_on, dataset, own, step, rate), self.device)
            if not isinstance(result, OutOfMemory):
                return result
            if self.processes.count > 1:
                # The others may already have received part of this process's gradient.
                raise ProcessError(f"process {self.processes.rank} ran out of memory: {_LESS_MEMORY}")
            self._halve(max(parts, key=dataset.cells), dataset, result)

    def _update_on(self, dataset: TokenDataset, parts: Sequence[Indices], step: int, rate: float) -> UpdateResult:
        return self.update([make_batch(dataset, part) for part in parts], step, rate)

    def try_largest(self, dataset: TokenDataset, plan: Sequence[Update]) -> Indices | None:
        """Run a forward and backward pass of the largest micro-batch of a thousand planned updates or more, with all
        memory of an update allocated, so that memory runs out now or hardly ever. Return that micro-batch, or the
        largest part of it that fits; None if nothing is planned."""
        self._make_moments()
        some = plan[:: max(len(plan) // _UPDATES_CUT, 1)]
        parts = [part for update in some for part in self.cut(dataset, update)]
        largest = max(parts, key=dataset.cells, default=None)
        while largest is not None:
            outcome = attempt(partial(self.forward_and_backward, dataset, largest), self.device)
            if outcome is None:
                break
            self._halve(largest, dataset, outcome)
            largest = max(self.cut(dataset, [largest]), key=dataset.cells)
        self.optimizer.zero_grad(set_to_none=True)
        self.batch_size = self.processes.min(self.batch_size)
        return largest

    def forward_and_backward(self, dataset: TokenDataset, part: Indices) -> None:
        """Forward and backward pass of one part of an update, in this process alone; no weight is changed."""
        self.model.train()
        with autocast(self.device, self.precision):
            batch = make_batch(dataset, part).to(self.device)
            sums = batch_loss(self.model, batch, self.cross_entropy, self.config.label_smoothing)
        torch.autograd.backward(sums.loss)
        float(sums.nll)  # wait for the device

    def update(self, batches: Sequence[Batch], step: int, rate: float) -> UpdateResult:
        """Take step `step` (from 1) along the mean gradient over all target tokens of all micro-batches and processes.

        Each micro-batch adds its sum divided by the tokens of the whole update, so a token has the same weight however
        the update is cut.
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
                # The all-reduce averages over the processes; their count makes that a sum.
                torch.autograd.backward(self.scaler.scale(sums.loss * (self.processes.count / tokens)))
            sums_of_parts.append((sums.loss.detach(), sums.nll))
        # Read only now, so that a GPU need not synchronise between micro-batches.
        loss, nll = self.processes.sum([sum(map(float, column)) for column in zip(*sums_of_parts, strict=True)])
        # Unscale before clipping: the norm to clip is that of the gradient, not of the scaled one.
        self.scaler.unscale_(self.optimizer)
        max_norm = float("inf") if self.config.clip_grad_norm is None else self.config.clip_grad_norm
        norm = float(nn.utils.clip_grad_norm_(self.model.parameters(), max_norm))
        skipped = not (math.isfinite(loss) and math.isfinite(norm))
        if not skipped:
            self.scaler.step(self.optimizer)
        self.scaler.update()
        return UpdateResult(loss, nll, int(tokens), norm, skipped)

    def cut(self, dataset: TokenDataset, update: Update) -> list[Indices]:
        """Cut an update into micro-batches."""
        if large_parts(self.device, self.precision):
            update = joined_groups(update, dataset, self.batch_size, self.config.batch_type)
        return micro_batches(update, dataset, self.batch_size, self.config.batch_type, self.shared_by.count)

    def _rank_of_several(self) -> tuple[int, ...]:
        return () if self.processes.count == 1 else (self.processes.rank,)

    def _make_moments(self) -> None:
        """Allocate Adam's moments, if there are none yet. Adam would allocate them during its first step, where running
        out of memory would leave some missing."""
        for parameter in self.model.parameters():
            if not self.optimizer.state[parameter]:
                self.optimizer.state[parameter] = {
                    "step": torch.zeros((), device=parameter.device),
                    "exp_avg": torch.zeros_like(parameter),
                    "exp_avg_sq": torch.zeros_like(parameter),
                }

    def _halve(self, part: Indices, dataset: TokenDataset, outcome: OutOfMemory) -> None:
        """Halve the micro-batches from now on, after memory ran out; UserError if the part is a single pair."""
        if len(part) == 1:
            raise UserError(
                f"a single pair of {dataset.cells(part)} pieces does not fit into memory{outcome.missing}: lower "
                "data.max_length or the sizes of the model, or try training.activation_checkpointing"
            )
        whole = dataset.cells(part) if self.config.batch_type == "tokens" else len(part)
        self.batch_size = whole // 2
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
        """Restore the state in a checkpoint; the hyper-parameters stay those of the configuration."""
        state: dict[int, dict[str, Tensor]] = defaultdict(dict)
        numbers = {name: i for i, name in enumerate(self.names)}
        for key, tensor in tensors.items():
            name, _, kind = key.rpartition(".")
            state[numbers[name]][kind] = tensor
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": dict(state), "param_groups": groups})
        if loss_scale:
            self.scaler.load_state_dict(loss_scale)
