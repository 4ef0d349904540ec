"""A model in the format of CTranslate2, an inference engine in C++, and translating with that engine.

Everything that a model of ours can be has its place there: post- and pre-norm, the activations, tied or separate
vocabularies, positions as a table. Three things differ. The table of positions has an end, beyond which a line cannot
be taken. The engine ranks by n^alpha only: so it is asked for more than a search of ours finishes, with their
log-probabilities, and the end of the search and the ranking are ours, `wu` included. And what it is told to forbid has
its probability shared out among the rest, so that a least length and n-grams are not asked of it.
"""

import json
import shutil
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from transformer_cli import __version__
from transformer_cli.config.schema import DecodingConfig
from transformer_cli.data.tokenizer import BOS, EOS, PAD
from transformer_cli.decoding.hypotheses import Hypothesis, length_penalty
from transformer_cli.decoding.sampling import Sampling
from transformer_cli.decoding.score import score_ids
from transformer_cli.decoding.translator import Line, Translation, Translator
from transformer_cli.errors import ConfigError, LineError, UserError
from transformer_cli.log import LOGGER
from transformer_cli.model.attention import MultiHeadAttention
from transformer_cli.model.transformer import DecoderLayer, EncoderLayer, LearnedPositions, SinusoidalPositions
from transformer_cli.run_files import locate

_POSITIONS = 4096  # rows of the table written for sinusoids, which have no end of their own
_SHORT_FIRST = -5.0  # an alpha by which the engine gives those first that were finished first
_TIE = 1e-4  # difference of log-probability within which two translations count as equally good


_Found = tuple[tuple[int, ...], float]  # ids with the end symbol, and their log-probability


def module() -> ModuleType:
    """The ctranslate2 package. ConfigError, with what to install, where it is missing."""
    try:
        return import_module("ctranslate2")
    except ImportError as error:
        raise ConfigError("CTranslate2 is not installed: pip install ctranslate2") from error


def export(translator: Translator, folder: Path, quantization: str | None) -> None:
    """Write the model and its tokenizers into a folder. ConfigError if it exists and is not empty."""
    folder = folder.absolute()
    _check_folder(folder)
    spec = _specification(translator)
    spec.validate()
    spec.optimize(quantization=quantization)
    temporary = folder.with_name(f"{folder.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    spec.save(str(temporary))
    for side, proto in translator.tokenizers.protos().items():
        (temporary / f"{side}.model").write_bytes(proto)
    (temporary / "README.md").write_text(_readme(translator, quantization), encoding="utf-8")
    if folder.exists():
        folder.rmdir()
    temporary.rename(folder)


def _check_folder(folder: Path) -> None:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"{folder} is not empty: name a new folder, or remove it first")


def export_with_proof(
    translator: Translator, folder: Path, quantization: str | None, lines: Sequence[str]
) -> Iterator[str]:
    """Export once both engines have translated the lines alike; yields what the comparison found, in words.

    UserError, and no folder, when a line comes out differently and it is no tie. The comparison is of the unquantized
    model; of a quantized one it is said how many lines come out the same.
    """
    _check_folder(folder)
    with TemporaryDirectory() as place:
        export(translator, Path(place, "float32"), None)
        engine = CTranslate2Translator(translator, Path(place, "float32"))
        for beam_size in sorted({1, max(translator.config.decoding.beam_size, 2)}):
            found = differences(translator, engine, lines, beam_size)
            for one in found:
                yield (
                    f"{'tie' if one.tie else 'DIFFERENT'}: {one.line}\n  torch        {one.ours.score:.6f}  "
                    f"{one.ours.text}\n  ctranslate2  {one.theirs.score:.6f}  {one.theirs.text}"
                )
            if any(not one.tie for one in found):
                raise UserError(
                    "the exported model translates some lines differently (above), so nothing is exported. A model "
                    "that has hardly been trained finds padding as likely as words, which the engine treats otherwise: "
                    "train it longer; if it is well trained, please report it"
                )
            yield f"beam {beam_size}: {len(lines) - len(found)} of {len(lines)} lines the same, {len(found)} ties"
    export(translator, folder, quantization)
    if quantization is None:
        return
    if quantization not in module().get_supported_compute_types("cpu"):
        yield f"in {quantization}: not compared, for this processor does not compute in it"
    else:
        engine = CTranslate2Translator(translator, folder, quantization)
        found = differences(translator, engine, lines, 1)
        yield f"in {quantization}: {len(lines) - len(found)} of {len(lines)} lines the same, greedily"


class CTranslate2Translator(Translator):
    """Translates with CTranslate2 what a Translator would translate with PyTorch."""

    def __init__(self, translator: Translator, folder: Path, compute_type: str = "float32") -> None:
        """`folder` holds the exported model; `compute_type` is CTranslate2's name of a number format. ConfigError when
        this machine cannot compute in it."""
        super().__init__(
            translator.model, translator.tokenizers, translator.config, translator.device, translator.precision
        )
        place = "cuda" if translator.device.type == "cuda" else "cpu"
        try:
            self._engine = module().Translator(
                str(folder), device=place, compute_type=compute_type, intra_threads=torch.get_num_threads()
            )
        except (RuntimeError, ValueError) as error:
            raise ConfigError(f"CTranslate2 cannot use {folder} in {compute_type}: {error}") from error
        self._rows = len(_positions(translator.model.source_positions))
        target = translator.tokenizers.target
        self._ids = {piece: i for i, piece in enumerate(target.pieces(range(target.vocab_size)))}

    def _check_positions(self, lines: list[Line]) -> None:
        for line in lines:
            if len(line.source) + 1 > self._rows:
                raise LineError(
                    line.number,
                    f"has {len(line.source)} pieces, and the exported model takes at most {self._rows - 1}: split the "
                    "line, or translate without --engine ctranslate2",
                )

    def _search(
        self, searched: object, lines: list[Line], decoding: DecodingConfig, sampling: Sampling | None
    ) -> list[list[Hypothesis]]:
        if sampling is not None or any(line.prefix for line in lines):
            raise ConfigError("--engine ctranslate2 neither samples nor takes prefixes: leave the engine out for that")
        check_decoding(decoding)
        found: list[list[Hypothesis]] = [[] for _ in lines]
        limits = [min(self._limit(line, decoding), self._rows) for line in lines]
        waiting = list(range(len(lines)))
        longest = max(limits)
        while waiting:
            # One limit holds for a whole call: those that had not enough within their own are searched again with it.
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
        return found

    def _call(self, lines: Sequence[Line], decoding: DecodingConfig, limit: int) -> list[list[_Found]]:
        """For each line twice as many finished hypotheses as the beam has, so that those of our search are among them:
        their ids, the end symbol's included, and their log-probabilities."""
        found = self._ask(lines, decoding, limit, [])
        # What is suppressed has its probability shared out among the rest, so that is done only where it must be.
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


def check_decoding(decoding: DecodingConfig) -> None:
    """ConfigError for settings that the engine would understand otherwise."""
    for name in ("min_length", "no_repeat_ngram_size"):
        if value := getattr(decoding, name):
            raise ConfigError(
                f"--{name.replace('_', '-')} {value} gives other scores with --engine ctranslate2, which shares out "
                "the probability of what is forbidden: set it to 0, or leave the engine out"
            )


def _ranked(found: Sequence[_Found], decoding: DecodingConfig) -> list[Hypothesis]:
    """The n best of those that our search would have finished, by our score."""
    ends = sorted(len(ids) for ids, _ in found if ids[-1] == EOS)
    if len(ends) >= decoding.beam_size:
        last = ends[decoding.beam_size - 1]  # by this step there were enough
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


def beside(translator: Translator, run: Path) -> Path:
    """The export of a run in the folder `ctranslate2` beside its model file, made anew when the model has changed."""
    model = locate(run)
    folder, fresh = model.parent / "ctranslate2", model.parent / "ctranslate2.new"
    origin = {"model": model.name, "crc32": f"{zlib.crc32(model.read_bytes()):08x}", "version": __version__}
    record = folder / "exported_from.json"
    if record.is_file() and json.loads(record.read_text(encoding="utf-8")) == origin:
        return folder
    LOGGER.info("exporting the model to %s", folder)
    if folder.exists() and not record.is_file():
        raise ConfigError(f"{folder} was not made by --engine ctranslate2, which exports to there: rename it")
    shutil.rmtree(fresh, ignore_errors=True)
    export(translator, fresh, None)
    (fresh / record.name).write_text(json.dumps(origin) + "\n", encoding="utf-8")
    if folder.exists():
        shutil.rmtree(folder)
    fresh.rename(folder)
    return folder


@dataclass(frozen=True)
class Difference:
    """A line that the two engines translate differently, each with its own score; `tie`: as good as equal."""

    line: str
    ours: Translation
    theirs: Translation
    tie: bool


def differences(ours: Translator, theirs: Translator, lines: Sequence[str], beam_size: int) -> list[Difference]:
    """The lines that come out differently under n^1, with the same limits on both sides.

    Greedy translations tie when, at the first piece in which they differ, the two pieces are equally likely to us;
    those of a beam when their scores are equal.
    """
    decoding = ours.config.decoding.model_copy(
        update={
            "beam_size": beam_size,
            "n_best": 1,
            "length_penalty": 1.0,
            "length_penalty_type": "avg",
            "min_length": 0,
            "no_repeat_ngram_size": 0,
        }
    )
    found = []
    pairs = zip(lines, ours.translate(lines, decoding), theirs.translate(lines, decoding), strict=True)
    for line, (our, *_), (their, *_) in pairs:
        if our.ids != their.ids:
            tie = abs(our.score - their.score) <= _TIE
            if beam_size == 1:
                tie = _first_difference(ours, our, their) <= _TIE
            found.append(Difference(line, our, their, tie))
    return found


def _first_difference(translator: Translator, our: Translation, their: Translation) -> float:
    mine, other = score_ids(translator, [our.source_ids] * 2, [our.ids, their.ids])
    same = [a == b for a, b in zip(our.ids, their.ids, strict=False)]
    place = same.index(False) if False in same else len(same)
    return abs(mine.token_log_probs[place] - other.token_log_probs[place])


# Where each part of a model goes.


def _specification(translator: Translator) -> Any:
    ctranslate2 = module()
    model, config = translator.model, translator.config.model
    activation = ctranslate2.specs.common_spec.Activation
    spec = ctranslate2.specs.TransformerSpec.from_config(
        (config.encoder_layers, config.decoder_layers),
        config.num_heads,
        pre_norm=config.norm == "pre",
        activation={"relu": activation.RELU, "gelu": activation.GELU, "swish": activation.SWISH}[config.activation],
    )
    spec.config.layer_norm_epsilon = model.encoder.layers[0].feed_forward_norm.eps
    spec.config.decoder_start_token = "<s>"
    source, target = translator.tokenizers.source, translator.tokenizers.target
    spec.register_source_vocabulary(source.pieces(range(source.vocab_size)))
    spec.register_target_vocabulary(target.pieces(range(target.vocab_size)))
    for side, embeddings, embedding, table in (
        (spec.encoder, spec.encoder.embeddings[0], model.source_embedding, model.source_positions),
        (spec.decoder, spec.decoder.embeddings, model.target_embedding, model.target_positions),
    ):
        side.scale_embeddings = True
        embeddings.weight = _array(embedding.weight)
        side.position_encodings.encodings = _array(_positions(table))
    spec.decoder.projection.weight = _array(model.output.weight)
    if config.norm == "pre":
        _norm(spec.encoder.layer_norm, model.encoder.norm)
        _norm(spec.decoder.layer_norm, model.decoder.norm)
    for theirs, encoder_layer in zip(spec.encoder.layer, model.encoder.layers, strict=True):
        _self_attention_and_feed_forward(theirs, encoder_layer)
    for theirs, decoder_layer in zip(spec.decoder.layer, model.decoder.layers, strict=True):
        _self_attention_and_feed_forward(theirs, decoder_layer)
        cross = decoder_layer.cross_attention
        _norm(theirs.attention.layer_norm, decoder_layer.cross_attention_norm)
        _linear(theirs.attention.linear[0], cross.query)
        _together(theirs.attention.linear[1], cross.key, cross.value)
        _linear(theirs.attention.linear[2], cross.output)
    return spec


def _self_attention_and_feed_forward(theirs: Any, layer: EncoderLayer | DecoderLayer) -> None:
    attention: MultiHeadAttention = layer.self_attention
    _norm(theirs.self_attention.layer_norm, layer.self_attention_norm)
    _together(theirs.self_attention.linear[0], attention.query, attention.key, attention.value)
    _linear(theirs.self_attention.linear[1], attention.output)
    _norm(theirs.ffn.layer_norm, layer.feed_forward_norm)
    _linear(theirs.ffn.linear_0, layer.feed_forward.inner)
    _linear(theirs.ffn.linear_1, layer.feed_forward.outer)


def _positions(table: nn.Module) -> Tensor:
    """The codes of as many positions as the exported model shall have."""
    if isinstance(table, SinusoidalPositions):
        codes: Tensor = table(0, _POSITIONS)
        return codes
    assert isinstance(table, LearnedPositions)
    return table.table


def _norm(theirs: Any, ours: nn.Module) -> None:
    theirs.gamma, theirs.beta = _array(ours.weight), _array(ours.bias)


def _linear(theirs: Any, ours: nn.Linear) -> None:
    theirs.weight, theirs.bias = _array(ours.weight), _array(ours.bias)


def _together(theirs: Any, *ours: nn.Linear) -> None:
    theirs.weight = _array(torch.cat([projection.weight for projection in ours]))
    theirs.bias = _array(torch.cat([projection.bias for projection in ours]))


def _array(tensor: Any) -> NDArray[np.float32]:
    array: NDArray[np.float32] = tensor.detach().float().cpu().contiguous().numpy()
    return array.copy()  # it is multiplied where it lies when it is quantized


def _readme(translator: Translator, quantization: str | None) -> str:
    decoding, data = translator.config.decoding, translator.config.data
    sides = translator.tokenizers.protos()
    weights = quantization or "float32"
    source, target = ("shared", "shared") if "shared" in sides else ("source", "target")
    penalty = (
        f"the model was set up with `{decoding.length_penalty_type}`, which this engine has not: ask for "
        "`num_hypotheses=beam_size, length_penalty=0`, and rank the log-probabilities by\n"
        "`score / ((5 + n) / 6) ** {alpha}` yourself, n being the pieces and the end symbol; or use "
        "`length_penalty=1`, which divides by n"
        if decoding.length_penalty_type == "wu"
        else "`length_penalty={alpha}`"
        if decoding.length_penalty_type == "avg"
        else "`length_penalty=0`"
    ).format(alpha=decoding.length_penalty)
    return f"""# {translator.config.name}, for CTranslate2

{data.source_lang} to {data.target_lang}, written by transformer_cli {__version__}, weights in {weights}.

```python
import ctranslate2, sentencepiece

model = ctranslate2.Translator(".", compute_type="{weights}")
source = sentencepiece.SentencePieceProcessor("{source}.model")
target = sentencepiece.SentencePieceProcessor("{target}.model")
found = model.translate_batch(
    [source.encode("…", out_type=str) + ["</s>"]],
    beam_size={decoding.beam_size}, length_penalty=1, min_decoding_length=0, max_input_length=0,
    suppress_sequences=[["<pad>"], ["<s>"]],
)
print(target.decode(found[0].hypotheses[0]))
```

Length penalty: {penalty}.
Lines and translations have at most {len(_positions(translator.model.source_positions)):,} pieces.
"""
