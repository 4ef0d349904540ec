"""A trained model with its tokenizers: lines of text in, translations out, in the same order.

lines -> windows of many batches -> ids -> batches of similar length -> search -> text -> the order of the lines
"""

import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, count, islice, pairwise, repeat
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch

from transformer_cli import checkpoint
from transformer_cli.config.schema import Config, DecodingConfig
from transformer_cli.data.batching import pad_sequences
from transformer_cli.data.tokenizer import BOS, EOS, PAD, SPACE, UNK, Tokenizers, is_blank
from transformer_cli.decoding.constraints import Constraints
from transformer_cli.decoding.ensemble import Ensemble
from transformer_cli.decoding.hypotheses import Hypothesis, SpecialIds
from transformer_cli.decoding.sampling import Sampling, sample
from transformer_cli.decoding.search import SearchOptions, StepModel, beam_search
from transformer_cli.device import (
    DTYPES,
    OutOfMemory,
    Precision,
    PrecisionName,
    attempt,
    attention_form,
    autocast,
    choose_device,
    decoding_cells,
    decoding_precision,
    keep_freed_memory,
)
from transformer_cli.errors import CheckpointError, ConfigError, DataError, LineError, UserError
from transformer_cli.languages import separator
from transformer_cli.log import LOGGER
from transformer_cli.model.attention import AttentionForm
from transformer_cli.model.incremental import IncrementalDecoder
from transformer_cli.model.masks import padding_mask
from transformer_cli.model.transformer import Transformer
from transformer_cli.run_files import locate

T = TypeVar("T")

SPECIAL = SpecialIds(pad=PAD, bos=BOS, eos=EOS)
DEFAULT_BATCH_SIZE = 256
_BATCHES_IN_WINDOW = 8  # batches in which lines are sorted by length together
# A line of more pieces is translated in parts: time and memory grow with the square of its length, and a model
# translates badly what is far longer than anything in training.
_LONGEST_IN_ONE = 1024


@dataclass(frozen=True)
class Translation:
    """One translation of one line. An empty line has an empty translation with log-probability 0 and no steps.

    `ids`: its pieces without the end symbol; `token_log_probs`: one per step, the last being the end symbol's unless
    the translation was truncated; `source_ids`: the pieces of the line; `parts`: the translations it was joined from,
    if any.
    """

    text: str
    log_prob: float
    score: float
    n: int
    truncated: bool
    ids: tuple[int, ...] = ()
    token_log_probs: tuple[float, ...] = ()
    source_ids: tuple[int, ...] = ()
    parts: tuple["Translation", ...] = ()


class Line(NamedTuple):
    """A line to translate: its number in the input, from 1, its pieces, and the pieces of its forced prefix."""

    number: int
    source: list[int]
    prefix: list[int]


class Translator:
    """Translates text. Usually created by `Translator.load("runs/NAME")`."""

    def __init__(
        self,
        model: Transformer,
        tokenizers: Tokenizers,
        config: Config,
        device: torch.device,
        precision: Precision,
        longest_source: int | None = None,
    ) -> None:
        """`longest_source`: pieces of the longest source in training, where that is known."""
        self.model = model
        self.tokenizers = tokenizers
        self.config = config
        self.device = device
        self.precision = precision
        self.longest_source = longest_source
        self._step_model: StepModel[Any] | None = None  # None: made at each use, since the weights may still change
        self._cells = decoding_cells(device)
        self.positions = _learned_positions(config)
        """The maximum number of pieces at once, end symbol included."""

    @classmethod
    def load(
        cls,
        run: str | Path,
        device: str = "auto",
        precision: PrecisionName = "auto",
        ensemble: Sequence[str | Path] = (),
    ) -> "Translator":
        """Load the model of a run directory, a model file or a checkpoint, in an ensemble with those of `ensemble`.

        CheckpointError when there is no usable model, ConfigError when the device is not available or the tokenizers of
        an ensemble differ.
        """
        file = checkpoint.read(locate(Path(run)))
        tokenizers = Tokenizers.of(file.tokenizers)
        place = choose_device(device)
        keep_freed_memory()
        chosen = decoding_precision(precision, place)
        form = attention_form(place, chosen, training=False)

        def prepared(model: Transformer) -> Transformer:
            return model.to(place, DTYPES[chosen])

        model = prepared(load_model(file, tokenizers, form))
        translator = cls(model, tokenizers, file.config, place, chosen, file.longest_source)
        others = []
        for member in ensemble:
            other = checkpoint.read(locate(Path(member)))
            if other.tokenizers != file.tokenizers:
                raise ConfigError(
                    f"{member} has other tokenizers than {run}: the models of an ensemble need one vocabulary, as runs "
                    "have that differ only in their seed or go on from one another (training.init_from)"
                )
            others.append(prepared(load_model(other, tokenizers, form)))
            translator.positions = min(translator.positions, _learned_positions(other.config))
        decoders = [IncrementalDecoder(model) for model in (translator.model, *others)]
        translator._step_model = Ensemble(decoders) if others else decoders[0]
        return translator

    def translate(
        self,
        lines: Iterable[str],
        decoding: DecodingConfig | None = None,
        batch_size: int = DEFAULT_BATCH_SIZE,
        sampling: Sampling | None = None,
        prefixes: Iterable[str] | None = None,
    ) -> Iterator[list[Translation]]:
        """For each line, in order, its `n_best` translations, best first; for an empty line, one empty translation.

        `decoding` replaces the run's own settings. With `sampling`, translations are drawn at random; with `prefixes`,
        each begins with the prefix of its line. A batch has at most `batch_size` sentences, and fewer when they are
        long or memory runs out; with 1, each line is translated before the next is read. A line of more than 1,024
        pieces (or `data.max_length`, if that is larger), or longer than learned positions allow, is split into parts of
        at most `data.max_length` pieces, at spaces where there are any; their translations are joined. DataError for a
        line that does not fit into memory, with its number, for a prefix with characters that have no piece, and when
        there are fewer prefixes than lines.
        """
        if isinstance(lines, str):
            raise TypeError("lines is a list of texts; for a single one give [text]")
        decoding = self.config.decoding if decoding is None else decoding
        size = batch_size * _BATCHES_IN_WINDOW if batch_size > 1 else 1
        if self.model.training:  # to visit all modules takes a millisecond
            self.model.eval()
        step_model = self._step_model or IncrementalDecoder(self.model, DTYPES[self.precision])
        remaining = zip(lines, repeat(())) if prefixes is None else self._with_prefixes(lines, prefixes)
        first = 1
        for window in windows(remaining, size):
            sources = self.tokenizers.source.encode_batch([text for text, _ in window])
            parts = [
                self._parts(Line(number, [] if is_blank(text) else source, list(prefix)))
                for number, source, (text, prefix) in zip(count(first), sources, window, strict=False)
            ]
            found = self._translate_window(step_model, [*chain.from_iterable(parts)], decoding, batch_size, sampling)
            for of_line in parts:
                # Join the best translations of the parts, then the second best, and so on.
                ranked = zip(*islice(found, len(of_line)), strict=False)
                yield [joined(together, self.separator) for together in ranked]
            first += len(window)

    @property
    def separator(self) -> str:
        """The text between two sentences of the target language."""
        return separator(self.config.data.target_lang)

    def _with_prefixes(self, lines: Iterable[str], prefixes: Iterable[str]) -> Iterator[tuple[str, Sequence[int]]]:
        """Each line with the pieces of its prefix."""
        remaining = iter(prefixes)
        for number, line in enumerate(lines, start=1):
            prefix = next(remaining, None)
            if prefix is None:
                raise DataError(
                    f"there are prefixes for {number - 1:,} lines, and there are more lines: each needs one, which may "
                    "be empty"
                )
            ids = self.tokenizers.target.encode(prefix)
            if UNK in ids:
                raise DataError(f"line {number}: the prefix {prefix!r} has {self._without_piece(prefix)}")
            yield line, ids

    def _without_piece(self, text: str) -> str:
        unknown = dict.fromkeys(c for c in text if UNK in self.tokenizers.target.encode(c))
        return f"characters that this model has no piece for, and cannot begin with: {''.join(unknown)}"

    def best_texts(self, lines: Sequence[str], decoding: DecodingConfig | None = None) -> list[str]:
        """The best translation of each line."""
        return [best[0].text for best in self.translate(lines, decoding)]

    def autocast(self) -> torch.autocast:
        """The context in which the model computes. Weights that were converted on loading need no autocast."""
        converted = self.model.output.weight.dtype != torch.float32
        return autocast(self.device, "fp32" if converted else self.precision)

    def as_file(self, origin: Mapping[str, Any]) -> checkpoint.ModelFile:
        """The content of a file from which `load` restores this model; `origin` records where it comes from."""
        weights = dict(self.model.named_parameters())
        return checkpoint.ModelFile(
            self.config, self.tokenizers.protos(), weights, origin, longest_source=self.longest_source
        )

    def _translate_window(
        self,
        step_model: StepModel[Any],
        lines: list[Line],
        decoding: DecodingConfig,
        batch_size: int,
        sampling: Sampling | None,
    ) -> Iterator[list[Translation]]:
        translations = [[Translation("", 0.0, 0.0, 0, False)] for _ in lines]
        rows = decoding.beam_size if sampling is None else decoding.n_best  # per sentence
        # Longest first, so that memory runs out at once or not at all.
        waiting = sorted((i for i, line in enumerate(lines) if line.source), key=lambda i: -len(lines[i].source))
        while waiting:
            longest = len(lines[waiting[0]].source) + 1
            batch = [lines[i] for i in waiting[: max(1, min(batch_size, self._cells // (longest * rows)))]]
            found = attempt(partial(self._search, step_model, batch, decoding, sampling), self.device)
            if isinstance(found, OutOfMemory):
                self._use_less(batch, len(batch) * longest * rows, found)
                continue
            for i, hypotheses in zip(waiting, found, strict=False):
                translations[i] = [self._as_translation(lines[i], hypothesis) for hypothesis in hypotheses]
            del waiting[: len(batch)]
        return iter(translations)

    def _parts(self, line: Line) -> list[Line]:
        """The line itself, or the parts to translate it in if it is too long."""
        most = self.positions - 1  # the end symbol takes one
        size = min(self.config.data.max_length, most)
        if len(line.source) <= min(max(_LONGEST_IN_ONE, size), most):
            return [line]
        pieces = self.tokenizers.source.pieces(line.source)
        bounds = [0]
        while bounds[-1] + size < len(pieces):
            last = bounds[-1] + size
            spaces = (i for i in range(last, bounds[-1], -1) if pieces[i].startswith(SPACE))
            bounds.append(next(spaces, last))
        bounds.append(len(pieces))
        LOGGER.warning("a line of %d pieces is translated in %d parts", len(pieces), len(bounds) - 1)
        parts = [Line(line.number, line.source[start:end], []) for start, end in pairwise(bounds)]
        return [parts[0]._replace(prefix=line.prefix), *parts[1:]]

    def _use_less(self, batch: list[Line], cells: int, outcome: OutOfMemory) -> None:
        """Halve the batches from now on; LineError when the batch was a single line."""
        if len(batch) == 1:
            raise LineError(
                batch[0].number,
                f"has {len(batch[0].source)} pieces, which do not fit into memory{outcome.missing}: use a smaller "
                "--beam-size, or split the line (--split-sentences)",
            )
        self._cells = cells // 2
        LOGGER.warning("out of memory with %d lines at once: from here on about half as many", len(batch))

    def _search(
        self, step_model: StepModel[Any], lines: list[Line], decoding: DecodingConfig, sampling: Sampling | None
    ) -> list[list[Hypothesis]]:
        src = pad_sequences([line.source for line in lines], suffix=EOS).to(self.device)
        limits = torch.tensor([self._limit(line, decoding) for line in lines], device=self.device)
        constraints = Constraints(
            decoding.min_length,
            decoding.no_repeat_ngram_size,
            decoding.repetition_penalty,
            pad_sequences([line.prefix for line in lines]).to(self.device)
            if any(line.prefix for line in lines)
            else None,
        )
        arguments = step_model, src, padding_mask(src, PAD), limits, SPECIAL
        penalty = decoding.length_penalty, decoding.length_penalty_type
        if sampling is not None:
            return sample(*arguments, sampling, decoding.n_best, *penalty, constraints)
        return beam_search(*arguments, SearchOptions(decoding.beam_size, *penalty, decoding.n_best), constraints)

    def _limit(self, line: Line, decoding: DecodingConfig) -> int:
        """The maximum number of steps. It does not depend on the rest of the batch, and leaves room for the prefix."""
        limit = math.floor(decoding.max_length_a * len(line.source) + decoding.max_length_b)
        return min(max(limit, len(line.prefix) + 1), self.positions)

    def _as_translation(self, line: Line, hypothesis: Hypothesis) -> Translation:
        return Translation(
            text=self.tokenizers.target.decode(list(hypothesis.ids)),
            log_prob=hypothesis.log_prob,
            score=hypothesis.score,
            n=hypothesis.n,
            truncated=hypothesis.truncated,
            ids=hypothesis.ids,
            token_log_probs=hypothesis.token_log_probs,
            source_ids=tuple(line.source),
        )


def windows(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """The items in lists of `size`. An error that ends them is raised after those before it, so that what was read is
    not lost."""
    remaining = iter(items)
    error = None
    while error is None:
        window = []
        try:
            for item in islice(remaining, size):
                window.append(item)  # one by one, so that an error leaves those before it
        except UserError as raised:
            error = raised
        if window:
            yield window
        elif error is None:
            return
    raise error


def joined(parts: Sequence[Translation], separator: str) -> Translation:
    """Translations of consecutive parts as one. Its log-probability, score and n are their sums."""
    if len(parts) == 1:
        return parts[0]
    return Translation(
        text=separator.join(part.text for part in parts if part.text),
        log_prob=sum(part.log_prob for part in parts),
        score=sum(part.score for part in parts),
        n=sum(part.n for part in parts),
        truncated=any(part.truncated for part in parts),
        ids=tuple(i for part in parts for i in part.ids),
        token_log_probs=tuple(x for part in parts for x in part.token_log_probs),
        source_ids=tuple(i for part in parts for i in part.source_ids),
        parts=tuple(piece for part in parts for piece in part.parts or (part,)),
    )


def _learned_positions(config: Config) -> int:
    """The number of positions of a model: unlimited unless they are learned."""
    return config.model.max_positions if config.model.positions == "learned" else sys.maxsize


def load_model(file: checkpoint.ModelFile, tokenizers: Tokenizers, form: AttentionForm) -> Transformer:
    """The model in a model file, on the CPU and ready to translate."""
    vocabularies = tokenizers.source.vocab_size, tokenizers.target.vocab_size
    model = Transformer(file.config.model, *vocabularies, pad=PAD, form=form, initialise=False)
    expected = {name for name, _ in model.named_parameters()}
    if expected != file.weights.keys():
        differing = ", ".join(sorted(expected ^ file.weights.keys())[:5])
        raise CheckpointError(f"the weights in the file are not those its configuration asks for: {differing} …")
    try:
        model.load_state_dict(dict(file.weights), strict=False)  # tied weights are in the file under one name
    except RuntimeError as error:
        raise CheckpointError(f"the weights in the file do not fit its configuration: {error}") from error
    return model.eval()
