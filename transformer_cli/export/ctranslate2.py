"""A model in the format of CTranslate2, an inference engine in C++.

The format supports every variant of our models: post- and pre-norm, the activations, tied or separate vocabularies,
positions as a table. The table of positions is finite; a longer line is translated in parts.
"""

import json
import shutil
import time
import zlib
from contextlib import suppress
from glob import escape
from importlib import import_module
from pathlib import Path
from tempfile import mkdtemp
from types import ModuleType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from transformer_cli import __version__
from transformer_cli.decoding.translator import Translator
from transformer_cli.errors import ConfigError
from transformer_cli.log import LOGGER
from transformer_cli.model.attention import MultiHeadAttention
from transformer_cli.model.transformer import DecoderLayer, EncoderLayer, LearnedPositions, SinusoidalPositions
from transformer_cli.run_files import locate

_POSITIONS = 4096  # rows of the table written for sinusoids, which are unlimited themselves
_ABANDONED = 3600.0  # seconds after which an unfinished folder is taken for that of a killed process


def module() -> ModuleType:
    """The ctranslate2 package. ConfigError, with what to install, where it is missing."""
    try:
        return import_module("ctranslate2")
    except ImportError as error:
        raise ConfigError("CTranslate2 is not installed: pip install ctranslate2") from error


def export(translator: Translator, folder: Path, quantization: str | None) -> None:
    """Write the model and its tokenizers into a folder. ConfigError if it exists and is not empty."""
    folder = folder.absolute()
    check_folder(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    made = _made(translator, folder, quantization)
    if folder.exists():
        folder.rmdir()
    made.rename(folder)


def _made(translator: Translator, folder: Path, quantization: str | None) -> Path:
    """Export the model to a new folder beside `folder`, with the usual permissions; return its path."""
    spec = _specification(translator)
    spec.validate()
    spec.optimize(quantization=quantization)
    unfinished = f".{folder.name}.transformer-cli-"  # a prefix that nobody else gives to a folder
    for old in folder.parent.glob(f"{escape(unfinished)}*"):
        with suppress(OSError):  # another process has removed or renamed it
            if time.time() - old.lstat().st_mtime > _ABANDONED:
                shutil.rmtree(old)
    new = Path(mkdtemp(prefix=unfinished, dir=folder.parent))
    try:
        new.chmod(0o755)
        spec.save(str(new))
        for side, proto in translator.tokenizers.protos().items():
            (new / f"{side}.model").write_bytes(proto)
        (new / "README.md").write_text(_readme(translator, quantization), encoding="utf-8")
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        raise
    return new


def check_folder(folder: Path) -> None:
    """ConfigError when the path exists and is not an empty folder."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"{folder} is not empty: name a new folder, or remove it first")


def beside(translator: Translator, run: Path) -> Path:
    """The export of a run in the folder `ctranslate2` beside its model file, made again when the model has changed.

    If two processes make it at the same time, both get a complete one.
    """
    model = locate(run)
    folder = model.parent / "ctranslate2"
    record = folder / "exported_from.json"
    origin = {"model": model.name, "crc32": f"{zlib.crc32(model.read_bytes()):08x}", "version": __version__}
    if _holds(record, origin):
        return folder
    LOGGER.info("exporting the model to %s", folder)
    if folder.exists() and not record.is_file():
        raise ConfigError(f"{folder} was not made by --engine ctranslate2, which exports to there: rename it")
    made = _made(translator, folder, None)
    (made / record.name).write_text(json.dumps(origin) + "\n", encoding="utf-8")
    while True:
        with suppress(OSError):  # the folder exists, of another model or from another process in the meantime
            made.rename(folder)
            return folder
        if _holds(record, origin):
            shutil.rmtree(made)
            return folder
        with suppress(FileNotFoundError):
            shutil.rmtree(folder)


def _holds(record: Path, origin: dict[str, str]) -> bool:
    try:
        found: dict[str, str] = json.loads(record.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return found == origin


# The place of each part of a model.


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
        side.position_encodings.encodings = _array(positions(table))
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


def positions(table: nn.Module) -> Tensor:
    """The table of positions of the exported model."""
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
    return array.copy()  # quantization multiplies it in place


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
Lines and translations have at most {len(positions(translator.model.source_positions)):,} pieces.
"""
