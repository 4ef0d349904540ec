"""Corpus scores through sacreBLEU, each with the signature that makes it comparable.

A score equals what the `sacrebleu` command prints for the same lines and options.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from sacrebleu import BLEU, CHRF, SACREBLEU_DIR

from transformer_cli.errors import ConfigError, DataError

logger = logging.getLogger(__name__)

# sacreBLEU's advice names parameters of its own; what a user of ours should know is said below.
logging.getLogger("sacrebleu").setLevel(logging.CRITICAL)

# Languages written in Chinese characters, by the codes in use: 13a would count a whole clause as one word.
_CHINESE = ("zh", "zho", "chi", "cmn", "yue", "wuu", "lzh")
_MECAB = {"ja": "ja", "jpn": "ja", "ko": "ko", "kor": "ko"}


@dataclass(frozen=True)
class Score:
    """A number and the conditions it was computed under."""

    name: str
    """As sacreBLEU writes it: `BLEU`, `chrF2`."""
    value: float
    """0 to 100, not rounded."""
    signature: str
    """Such as `nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0`."""


def corpus_scores(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    metrics: Sequence[str],
    tokenize: str,
    lowercase: bool,
) -> list[Score]:
    """One score for each of `metrics` (`bleu`, `chrf`), in that order, over all lines together.

    `references` holds one sequence for each reference set, line by line with the hypotheses. `tokenize` and
    `lowercase` concern BLEU alone, as with sacreBLEU's `--tokenize` and `-lc`.

    Raises DataError when there are no lines or a reference set has another number of them, ConfigError when a metric
    or tokenizer is unknown or the tokenizer's package or model is missing.
    """
    assert references, "a score needs a reference set"
    for number, reference in enumerate(references, start=1):
        if len(reference) != len(hypotheses):
            raise DataError(
                f"{len(hypotheses)} hypotheses cannot be scored against the {len(reference)} lines of reference set "
                f"{number}: line N of one must belong to line N of the other"
            )
    if not hypotheses:
        raise DataError("no lines to score: hypotheses and references are empty")
    if "bleu" in metrics and tokenize != "none":
        _warn_if_tokenised("hypotheses", hypotheses)
        for reference in references:
            _warn_if_tokenised("references", reference)
    return [_score(_metric(name, tokenize, lowercase), hypotheses, references) for name in metrics]


def _score(metric: BLEU | CHRF, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Score:
    result = metric.corpus_score(hypotheses, references)
    # The signature counts the reference sets, so it exists only after scoring.
    return Score(result.name, result.score, metric.get_signature().format())


def _metric(name: str, tokenize: str, lowercase: bool) -> BLEU | CHRF:
    match name:
        case "bleu":
            return _bleu(tokenize, lowercase)
        case "chrf":
            return CHRF()
        case _:
            raise ConfigError(f"there is no metric {name}: choose bleu or chrf")


def _bleu(tokenize: str, lowercase: bool) -> BLEU:
    if tokenize not in BLEU.TOKENIZERS:
        raise ConfigError(f"BLEU has no tokenizer {tokenize}: choose one of {', '.join(BLEU.TOKENIZERS)}")
    try:
        return BLEU(lowercase=lowercase, tokenize=tokenize)
    # A missing package, a wrong dictionary, a failed download and a damaged model each end in an error of their own,
    # a failed certificate in sys.exit.
    except (Exception, SystemExit) as error:
        raise ConfigError(f"BLEU's tokenizer {tokenize} cannot be used: {_remedy(tokenize, error)}") from error


def _remedy(tokenize: str, error: BaseException) -> str:
    if tokenize.endswith("-mecab"):
        return f"install it with {_install(tokenize.removesuffix('-mecab'))}, or choose the tokenizer char"
    return (
        f"sacreBLEU downloads a model for it into {SACREBLEU_DIR}/models at the first use, and this failed "
        f"({type(error).__name__}: {error}). Go online once, or copy the model there from another machine; delete a "
        "damaged one; or choose another tokenizer"
    )


def _install(extra: str) -> str:
    return f'pip install "transformer-cli[{extra}]"'


def _warn_if_tokenised(what: str, lines: Sequence[str]) -> None:
    # Plain text hardly ever has a space before its last full stop.
    if 4 * sum(line.rstrip().endswith(" .") for line in lines) >= len(lines):
        _warn_tokenised(what)


@cache  # once a process
def _warn_tokenised(what: str) -> None:
    logger.warning(
        'the %s look tokenised: a quarter or more of the lines end in " .". BLEU splits plain text by itself; this '
        "score is not comparable with those of plain text",
        what,
    )


def metric_tokenizer(language: str) -> str:
    """BLEU's tokenizer for text in `language`, a BCP-47 tag of which the first subtag counts.

    `zh` for Chinese and what else is written in its characters (`cmn`, `yue`, `wuu`, `lzh`), MeCab for Japanese and
    Korean, `13a` otherwise. Without the packages of the extras `ja` and `ko` it is `char`, which is logged once.
    """
    subtag = language.lower().replace("_", "-").partition("-")[0]
    if subtag in _CHINESE:
        return "zh"
    if subtag in _MECAB:
        return _mecab_or_char(_MECAB[subtag])
    return "13a"


@cache  # one notice a process and language
def _mecab_or_char(language: str) -> str:
    tokenizer = f"{language}-mecab"
    try:
        _bleu(tokenizer, lowercase=False)
    except ConfigError:
        logger.warning(
            "BLEU counts characters instead of words (tok:char): the tokenizer %s is not installed. For words: %s",
            tokenizer,
            _install(language),
        )
        return "char"
    return tokenizer


def result_line(label: str, scores: Sequence[Score]) -> str:
    """`test BLEU 95.31 chrF2 97.40 nrefs:1|…`: the scores with two decimals, then the signature of the first."""
    numbers = [f"{score.name} {score.value:.2f}" for score in scores]
    return " ".join([label, *numbers, scores[0].signature])


def scores_json(scores: Sequence[Score]) -> dict[str, dict[str, float | str]]:
    """`{"BLEU": {"score": …, "signature": …}, …}`, not rounded."""
    return {score.name: {"score": score.value, "signature": score.signature} for score in scores}
