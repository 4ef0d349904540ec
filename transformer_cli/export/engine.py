"""Translation with CTranslate2 that finds the same hypotheses as our own search.

The engine ranks by n^alpha only. So it is asked for more hypotheses than our search finishes, with their
log-probabilities, and the end of the search and the ranking, `wu` included, are computed here. The engine also
redistributes the probability of forbidden pieces among the rest, so minimum length and n-gram blocking are refused.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from transformer_cli.config.schema import DecodingConfig
from transformer_cli.data.tokenizer import BOS, EOS, PAD
from transformer_cli.decoding.hypotheses import Hypothesis, length_penalty
from transformer_cli.decoding.sampling import Sampling
from transformer_cli.decoding.translator import Line, Translator
from transformer_cli.errors import ConfigError
from transformer_cli.export.ctranslate2 import module, positions

_SHORT_FIRST = -5.0  # an alpha with which the engine ranks by the step of finishing, earliest first

_Found = tuple[tuple[int, ...], float]  # ids, with the end symbol unless cut, and their log-probability


class CTranslate2Translator(Translator):
    """A Translator that computes with CTranslate2 instead of PyTorch."""

    def __init__(
        self, translator: Translator, folder: Path, compute_type: str = "float32", token_log_probs: bool = False
    ) -> None:
        """`folder` holds the exported model; `compute_type` is CTranslate2's name of a number format. The engine gives
        the log-probabilities of pieces only in a second call, which `token_log_probs` asks for. ConfigError when the
        engine cannot use the folder, or this machine cannot compute in that format."""
        super().__init__(
            translator.model,
            translator.tokenizers,
            translator.config,
            translator.device,
            translator.precision,
            translator.longest_source,
        )
        self._step_model = translator._step_model  # unused here; shared so that it is not made again
        place = "cuda" if translator.device.type == "cuda" else "cpu"
        try:
            self._engine = module().Translator(
                str(folder), device=place, compute_type=compute_type, intra_threads=torch.get_num_threads()
            )
        except (RuntimeError, ValueError) as error:
            raise ConfigError(f"CTranslate2 cannot use {folder} in {compute_type}: {error}") from error
        self._token_log_probs = token_log_probs
        self.positions = min(self.positions, len(positions(translator.model.source_positions)))
        target = translator.tokenizers.target
        self._ids = {piece: i for i, piece in enumerate(target.pieces(range(target.vocab_size)))}

    def _search(
        self, step_model: object, lines: list[Line], decoding: DecodingConfig, sampling: Sampling | None
    ) -> list[list[Hypothesis]]:
        if sampling is not None or any(line.prefix for line in lines):
            raise ConfigError("--engine ctranslate2 neither samples nor takes prefixes: leave the engine out for that")
        check_decoding(decoding, self._token_log_probs)
        found: list[list[Hypothesis]] = [[] for _ in lines]
        limits = [self._limit(line, decoding) for line in lines]
        waiting = list(range(len(lines)))
        longest = max(limits)
        while waiting:
            # A call has one limit. Lines with too few hypotheses ended within their own limit are searched again, with
            # the longest limit among them.
            results = self._call([lines[i] for i in waiting], decoding, longest)
            again = []
            for i, hypotheses in zip(waiting, results, strict=True):
                ended = sum(ids[-1] == EOS and len(ids) <= limits[i] for ids, _ in hypotheses)
                if limits[i] < longest and ended < decoding.beam_size:
                    again.append(i)
                else:
                    found[i] = _ranked(hypotheses, decoding)
            waiting = again
            longest = max((limits[i] for i in waiting), default=0)
        return self._with_token_log_probs(lines, found) if self._token_log_probs else found

    def _with_token_log_probs(
        self, lines: Sequence[Line], found: Sequence[Sequence[Hypothesis]]
    ) -> list[list[Hypothesis]]:
        source, target = self.tokenizers.source, self.tokenizers.target
        pairs = [
            ([*source.pieces(line.source), "</s>"], target.pieces(one.ids))
            for line, hypotheses in zip(lines, found, strict=True)
            for one in hypotheses
        ]
        scored = iter(self._engine.score_batch(*map(list, zip(*pairs, strict=True)), max_input_length=0))
        return [
            [replace(one, token_log_probs=tuple(next(scored).log_probs[: one.n])) for one in hypotheses]
            for hypotheses in found
        ]

    def _call(self, lines: Sequence[Line], decoding: DecodingConfig, limit: int) -> list[list[_Found]]:
        """Hypotheses of each line: twice as many as the beam, so that those of our search are among them, or one for
        greedy search. Each has its ids, with the end symbol if it ended, and its log-probability."""
        found = self._ask(lines, decoding, limit, [])
        # Suppression redistributes probability among the other pieces, so it is used only where it is needed.
        wrong = [i for i, one in enumerate(found) if any(not {PAD, BOS}.isdisjoint(ids) for ids, _ in one)]
        if wrong:
            again = self._ask([lines[i] for i in wrong], decoding, limit, [["<pad>"], ["<s>"]])
            for i, one in zip(wrong, again, strict=True):
                found[i] = one
        return found

    def _ask(
        self, lines: Sequence[Line], decoding: DecodingConfig, limit: int, suppressed: list[list[str]]
    ) -> list[list[_Found]]:
        source = self.tokenizers.source
        patience = 1 if decoding.beam_size == 1 else 2
        results = self._engine.translate_batch(
            [[*source.pieces(line.source), "</s>"] for line in lines],
            beam_size=decoding.beam_size,
            patience=patience,
            num_hypotheses=decoding.beam_size * patience,
            length_penalty=_SHORT_FIRST,
            max_input_length=0,
            max_decoding_length=limit,
            min_decoding_length=0,
            repetition_penalty=decoding.repetition_penalty,
            suppress_sequences=suppressed,
            return_end_token=True,
            return_scores=True,
        )
        return [
            [
                (tuple(self._ids[piece] for piece in pieces), score * len(pieces) ** _SHORT_FIRST)
                for pieces, score in zip(result.hypotheses, result.scores, strict=True)
            ]
            for result in results
        ]


def check_decoding(decoding: DecodingConfig, token_log_probs: bool) -> None:
    """ConfigError for settings that the engine would apply differently."""
    if token_log_probs and decoding.repetition_penalty != 1.0:
        raise ConfigError(
            f"--repetition-penalty {decoding.repetition_penalty} is not in the log-probabilities of pieces that "
            "--engine ctranslate2 tells with --format jsonl: leave one of the three out"
        )
    for name in ("min_length", "no_repeat_ngram_size"):
        if value := getattr(decoding, name):
            raise ConfigError(
                f"--{name.replace('_', '-')} {value} gives other scores with --engine ctranslate2, which shares out "
                "the probability of what is forbidden: set it to 0, or leave the engine out"
            )


def _ranked(found: Sequence[_Found], decoding: DecodingConfig) -> list[Hypothesis]:
    """The n best, by our score, of the hypotheses that our search would have finished."""
    ends = sorted(len(ids) for ids, _ in found if ids[-1] == EOS)
    if len(ends) >= decoding.beam_size:
        last = ends[decoding.beam_size - 1]  # the step by which enough had ended
        found = [(ids, log_prob) for ids, log_prob in found if ids[-1] == EOS and len(ids) <= last]
    lengths = torch.tensor([len(ids) for ids, _ in found])
    penalties = length_penalty(lengths, decoding.length_penalty, decoding.length_penalty_type).tolist()
    hypotheses = [
        Hypothesis(
            ids=ids[:-1] if ids[-1] == EOS else ids,
            token_log_probs=(),
            log_prob=log_prob,
            score=log_prob / penalty,
            n=len(ids),
            truncated=ids[-1] != EOS,
        )
        for (ids, log_prob), penalty in zip(found, penalties, strict=True)
    ]
    return sorted(hypotheses, key=lambda one: -one.score)[: decoding.n_best]
