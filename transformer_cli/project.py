"""`init`: a folder with a configuration, from a template with its own text or for the user's own files."""

import json
import random
from array import array
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple
from unicodedata import category

from transformer_cli.config.load import load_config
from transformer_cli.config.paths import path_as_yaml
from transformer_cli.config.recipes import recipe_for, vocabulary_for
from transformer_cli.config.schema import Corpus
from transformer_cli.data.alignment import find_shift
from transformer_cli.data.corpus import read_pairs
from transformer_cli.data.demo import make_demo
from transformer_cli.data.filters import FilterCounts, drop_empty
from transformer_cli.data.split import Splits
from transformer_cli.errors import ConfigError, DataError, UserError
from transformer_cli.languages import has_thousands_of_characters, needs_characters
from transformer_cli.log import LOGGER

Template = Literal["demo", "copy", "reverse"]

# Few words in many orders: only the position tells the next word, so a wrong mask or position shows at once.
_WORDS = [consonant + vowel for consonant in "bdklmn" for vowel in "aeiou"]
_SIZES = {"train": 5000, "valid": 200, "test": 200}
_COUNTED_PAIRS = 100_000  # whose lengths and characters are looked at; more text tells hardly more
_LONGEST_NAME = 50  # characters, each of four bytes at most

_TOY_CONFIG = """\
# The {template} task: the target is the source{reversed}, in capitals. Learnt in a minute or two on a laptop; if this
# does not reach a BLEU above 95, something is broken. The data: transformer-cli init DIR --template {template}
name: {template}-task
seed: 1
data:
  train: [{{source: data/train.src, target: data/train.tgt}}]
  valid: [{{source: data/valid.src, target: data/valid.tgt}}]
  test:
    test: [{{source: data/test.src, target: data/test.tgt}}]
  max_length: 64
tokenizer: {{vocab_size: 120, model_type: bpe}}
model: {{d_model: 64, ffn_dim: 128, num_heads: 4, encoder_layers: 2, decoder_layers: 2, dropout: 0.0}}
training:
  batch_size: 1024
  max_steps: {max_steps}
  warmup_steps: 200
  label_smoothing: 0.1
  valid_steps: 200
  patience: null
decoding: {{beam_size: 4}}
"""

_DEMO_CONFIG = """\
# English to German with 20,000 sentences that transformer-cli makes itself, from a grammar of some 300 words. Learnt
# in a few minutes on a laptop. The data: transformer-cli init DIR
name: demo-en-de
seed: 1
data:
  source_lang: en
  target_lang: de
  train: [{source: data/train.en, target: data/train.de}]
  valid: [{source: data/valid.en, target: data/valid.de}]
  test:                        # none of these sentences is in the training text
    all: [{source: data/test.seen.en, target: data/test.seen.de}, {source: data/test.new.en, target: data/test.new.de}]
    seen: [{source: data/test.seen.en, target: data/test.seen.de}]
    new: [{source: data/test.new.en, target: data/test.new.de}]   # with a pair of words that is not in it either
  max_length: 64
tokenizer: {vocab_size: 1500}
model: {d_model: 128, ffn_dim: 512, num_heads: 4, encoder_layers: 2, decoder_layers: 2, norm: pre, dropout: 0.1}
training:
  batch_size: 2048
  max_steps: 1200
  lr_schedule: cosine          # down to zero at max_steps, which pays where the time is fixed
  learning_rate: 0.003
  warmup_steps: 200
  label_smoothing: 0.1
  valid_steps: 200
  average_last: 1
  patience: null
decoding: {beam_size: 4}
"""

_OWN_CONFIG = """\
# {pairs:,} pairs of text, {source_lang} to {target_lang}. Train with: transformer-cli train {config}
# Nothing has to be changed to start. What is wrong with the text: transformer-cli data check {config}
# What training will do and take: transformer-cli train {config} --check
name: {name}
seed: 1
data:
  source_lang: {source_lang}
  target_lang: {target_lang}
  train: [{train}]
  valid: {valid}
  test:
    test: {test}
  max_length: 256              # longer pairs are left out of training, and counted
tokenizer:
  vocab_size: {vocabulary.size:<17}# pieces: {size_reason}
  model_type: unigram
  byte_fallback: {fallback:<14}# {fallback_reason}
  character_coverage: {coverage:<9}# {coverage_reason}
model:
  d_model: {r.d_model:<20}# the less text the smaller: a large model would learn it by heart
  ffn_dim: {r.ffn_dim:<20}# two or four times d_model, as is usual
  num_heads: {r.num_heads:<18}# of {head_width} numbers each
  encoder_layers: {r.layers:<13}# fewer learn sooner, more can learn more
  decoder_layers: {r.layers}
  norm: pre                    # learns sooner than the paper's post
  dropout: {r.dropout:<20}# the less text, the more
training:
  batch_size: {r.batch_size:<17}# tokens a step, padding included; less if memory is short
  max_steps: {r.max_steps:<18}# patience may end it sooner
  noam_factor: {r.noam_factor:<16}# highest learning rate {peak:.1e}
  warmup_steps: {r.warmup_steps:<15}# reached at this step
  label_smoothing: 0.1         # the paper's: it is less sure of what it has seen
  valid_steps: {r.valid_steps:<16}# how often the validation text is translated and the run saved
  best_metric: bleu            # what the model that is kept is best at
  patience: 10                 # validations without a better one
decoding: {{beam_size: 4, length_penalty: 1.0, length_penalty_type: avg}}    # scores by the mean over the pieces
{evaluation}"""


_EVALUATION = "evaluation: {tokenize: char}    # BLEU of characters: the language is written without spaces\n"


class Files(NamedTuple):
    """A file of sentences, one a line, and one of their translations."""

    source: Path
    target: Path


@dataclass(frozen=True)
class OwnText:
    """The user's own files; where validation or test files are None, pairs are held out of the training text."""

    train: Files
    source_lang: str
    target_lang: str
    valid: Files | None
    test: Files | None


def write_template(folder: Path, template: Template) -> Path:
    """Create a folder from a template; return the path of its config.yaml. ConfigError if the folder is not empty."""
    _make(folder)
    for name, lines in (_demo_text() if template == "demo" else _toy_text(template)).items():
        _write_lines(folder / "data" / name, lines)
    return _write_config(folder, template_config(template))


def template_config(template: Template) -> str:
    """The configuration of a template, as YAML."""
    if template == "demo":
        return _DEMO_CONFIG
    return _TOY_CONFIG.format(
        template=template,
        reversed="" if template == "copy" else " backwards",
        max_steps={"copy": 1000, "reverse": 1500}[template],
    )


def write_own(folder: Path, text: OwnText) -> Path:
    """Create a folder with a configuration for the user's own files, which stay in place; return its config.yaml.

    Reads all of the text, so that a bad byte or a missing line shows here. DataError if there is too little text,
    ConfigError if the folder is not empty or a path is not a regular file, since training reads it again.
    """
    for path in (path for files in (text.train, text.valid, text.test) if files for path in files):
        if path.exists() and not path.is_file():
            raise ConfigError(
                f"{path} is no plain file, and training will read it again: save the text to a file first"
            )
    counts, before_empty = FilterCounts(), 0
    characters: Counter[str] = Counter()
    lengths = array("I"), array("I")
    for pair in drop_empty(read_pairs([Corpus(source=text.train.source, target=text.train.target)]), counts):
        before_empty += counts.empty == 0
        if counts.kept <= _COUNTED_PAIRS:
            for side, line in zip(lengths, pair, strict=True):
                side.append(len(line))
                characters.update(line)
    pairs = counts.kept
    held_out = min(max(50, min(1000, pairs // 20)), pairs // 10)
    if held_out == 0:
        raise DataError(f"{text.train.source} has {pairs} pairs with text on both sides: too few to train on")
    is_new = not folder.exists()
    _make(folder)
    left = pairs - held_out * [text.valid, text.test].count(None)
    path = _write_config(folder, _own_config(folder, text, left, held_out, characters))
    try:
        splits = Splits(load_config(path))
        found = {"valid": splits.valid(), **splits.tests()}
    except UserError:
        path.unlink()
        if is_new:
            folder.rmdir()
        raise
    LOGGER.info("%s", counts_in_words(counts, first_empty=before_empty + 1))
    for name, part in (("valid", text.valid), ("test", text.test)):
        LOGGER.info("%s: %s pairs%s", name, f"{len(found[name]):,}", " held out of training" if part is None else "")
    if shift := find_shift(*lengths):
        LOGGER.warning(
            "by the lengths of the lines %s: look at the text with the command below before you train",
            "line N of one file is no translation of line N of the other"
            if (shift.first, shift.last) == (1, len(lengths[0]))
            else f"the files are out of step from about line {shift.first:,} on",
        )
    if text.train.source.samefile(text.train.target):
        LOGGER.warning("source and target are the same file: there is nothing to learn but to copy")
    if pairs < 500:
        LOGGER.warning("under 500 pairs nothing much can be learnt, and BLEU will mean little")
    return path


def counts_in_words(counts: FilterCounts, first_empty: int) -> str:
    """The counts of pairs in words; `first_empty` is the line of the first pair with an empty side, if there is one."""
    where = f" (the first is line {first_empty:,})" if counts.empty else ""
    return f"{counts.read:,} pairs read, {counts.empty:,} of them with an empty side{where}, which are left out"


def _own_config(folder: Path, text: OwnText, pairs: int, held_out: int, characters: Counter[str]) -> str:
    recipe = recipe_for(pairs)
    many = any(map(has_thousands_of_characters, (text.source_lang, text.target_lang)))
    vocabulary = vocabulary_for(recipe.vocab_size, characters, many)
    return _OWN_CONFIG.format(
        name=_run_name(folder),
        config=folder / "config.yaml",
        pairs=pairs,
        source_lang=text.source_lang,
        target_lang=text.target_lang,
        train=_as_yaml(text.train, folder),
        valid=f"[{_as_yaml(text.valid, folder)}]" if text.valid else f"{{hold_out: {held_out}}}",
        test=f"[{_as_yaml(text.test, folder)}]" if text.test else f"{{hold_out: {held_out}}}",
        r=recipe,
        head_width=recipe.d_model // recipe.num_heads,
        vocabulary=vocabulary,
        size_reason="the less text the fewer, so that each is seen often"
        if vocabulary.size == recipe.vocab_size
        else f"{vocabulary.characters:,} characters have one each, and longer pieces need room, too",
        fallback=str(vocabulary.byte_fallback).lower(),
        fallback_reason="rare characters are spelt in bytes"
        if vocabulary.byte_fallback
        else "its 256 pieces are too many here",
        coverage=vocabulary.coverage,
        coverage_reason="every character has a piece"
        if vocabulary.coverage == 1.0
        else f"of {len(characters):,} characters the rarest have no piece",
        evaluation=_EVALUATION if needs_characters(text.target_lang) else "",
        peak=recipe.noam_factor * (recipe.d_model * recipe.warmup_steps) ** -0.5,
    )


def _run_name(folder: Path) -> str:
    """The folder's name reduced to a valid name of a run, quoted for YAML."""
    characters = (c if c.isalnum() or c in "._+-" or category(c)[0] == "M" else " " for c in folder.resolve().name)
    name = "-".join("".join(characters).split()).lstrip("._+-")
    return json.dumps(name[:_LONGEST_NAME] or "own", ensure_ascii=False)


def _as_yaml(files: Files, folder: Path) -> str:
    return f"{{source: {path_as_yaml(files.source, folder)}, target: {path_as_yaml(files.target, folder)}}}"


def _make(folder: Path) -> None:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"{folder} already exists and is not an empty folder: choose another")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{folder} cannot be made: {error.strerror}") from error


def _write_lines(path: Path, lines: list[str]) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8", newline="\n")


def _write_config(folder: Path, text: str) -> Path:
    path = folder / "config.yaml"
    path.write_text(text, encoding="utf-8", newline="\n")
    return path


def _demo_text() -> dict[str, list[str]]:
    corpus = make_demo()
    parts = {"train": corpus.train, "valid": corpus.valid, "test.seen": corpus.test_seen, "test.new": corpus.test_new}
    return {
        f"{name}.{language}": [pair[side] for pair in pairs]
        for name, pairs in parts.items()
        for side, language in enumerate(("en", "de"))
    }


def _toy_text(template: Template) -> dict[str, list[str]]:
    sources = _made_up_lines(sum(_SIZES.values()))
    files = {}
    for split, size in _SIZES.items():
        chosen, sources = sources[:size], sources[size:]
        files[f"{split}.src"] = chosen
        files[f"{split}.tgt"] = [_answer(line, template) for line in chosen]
    return files


def _made_up_lines(count: int) -> list[str]:
    """Distinct lines of three to ten words, the same in every call."""
    generator = random.Random(1)
    lines: dict[str, None] = {}  # an ordered set
    while len(lines) < count:
        words = [generator.choice(_WORDS) for _ in range(generator.randint(3, 10))]
        lines[" ".join(words)] = None
    return list(lines)


def _answer(line: str, template: Template) -> str:
    words = line.upper().split()
    return " ".join(words if template == "copy" else reversed(words))
