"""Scores from sacreBLEU, each with the signature that makes it comparable, and sacreBLEU's named test sets.

Scores, intervals and p-values equal those that the `sacrebleu` command prints for the same lines and options, except
the p-value of equal scores.
"""

import json
import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

from sacrebleu import BLEU, CHRF, SACREBLEU_DIR, TER
from sacrebleu.significance import PairedTest, Result
from sacrebleu.utils import get_available_testsets, get_langpairs_for_testset, get_reference_files, get_source_file

from transformer_cli.errors import ConfigError, DataError, Stopped
from transformer_cli.languages import CHINESE, base_language
from transformer_cli.log import LOGGER

# sacreBLEU's warnings name its own parameters; `suspicions` says what users of this program need to know.
logging.getLogger("sacrebleu").setLevel(logging.CRITICAL)

NAMES = {"bleu": "BLEU", "chrf": "chrF2", "chrf++": "chrF2++", "ter": "TER"}
"""sacreBLEU's name of each metric."""
LOWER_IS_BETTER = ("ter",)

_SCORE_THAT_COUNTS = 1.0  # below it, translations are entirely wrong and the score is noise
_RESAMPLES = 1000  # of a bootstrap, the default of the `sacrebleu` command
_DIGITS = 12  # decimals kept of an interval

_MECAB = ("ja", "ko")


class Interval(NamedTuple):
    """The interval that holds 95 % of the scores of resampled lines: `mean` - `half` to `mean` + `half`."""

    mean: float
    half: float


@dataclass(frozen=True)
class Score:
    """A score and the conditions it was computed under."""

    name: str
    """As sacreBLEU writes it: `BLEU`, `chrF2`."""
    value: float
    """0 to 100, not rounded; TER can exceed 100, and lower is better."""
    signature: str
    """Such as `nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0`."""
    interval: Interval | None = None


@dataclass(frozen=True)
class Difference:
    """A metric of two systems on the same lines, and the probability of so large a difference by chance."""

    score: Score
    baseline: Score
    p_value: float


class Measure(NamedTuple):
    """How to score: `metrics` (`bleu`, `chrf`, `chrf++`, `ter`), and BLEU's tokenizer and case."""

    metrics: Sequence[str]
    tokenize: str
    lowercase: bool


def corpus_scores(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    metrics: Sequence[str],
    tokenize: str,
    lowercase: bool,
    intervals: bool = False,
) -> list[Score]:
    """One score for each of `metrics` (`bleu`, `chrf`, `chrf++`, `ter`), in that order, over all lines together.

    `references` holds one sequence per reference set, parallel to the hypotheses. `tokenize` and `lowercase` concern
    BLEU alone, as with sacreBLEU's `--tokenize` and `-lc`; `intervals` is its `--confidence`.

    Raises DataError when there are no lines or a reference set has a different number of them, ConfigError when a
    metric or tokenizer is unknown or the tokenizer's package or model is missing.
    """
    _check_lines(hypotheses, references)
    return [_score(_metric(name, tokenize, lowercase), hypotheses, references, intervals) for name in metrics]


def sentence_scores(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    metrics: Sequence[str],
    tokenize: str,
    lowercase: bool,
) -> list[dict[str, float]]:
    """For each line, the value of each metric by name, as in `sacrebleu --sentence-level`: BLEU counts only the n-gram
    orders that the line is long enough for. Arguments and errors are those of `corpus_scores`."""
    _check_lines(hypotheses, references)
    chosen = [_metric(name, tokenize, lowercase, of_sentences=True) for name in metrics]
    rows = []
    for hypothesis, *others in zip(hypotheses, *references, strict=True):
        found = [metric.sentence_score(hypothesis, others) for metric in chosen]
        rows.append({score.name: score.score for score in found})
    return rows


def paired_bootstrap(
    hypotheses: Sequence[str],
    baseline: Sequence[str],
    references: Sequence[Sequence[str]],
    metrics: Sequence[str],
    tokenize: str,
    lowercase: bool,
) -> list[Difference]:
    """The difference in each metric, with intervals, as `sacrebleu --paired-bs -i BASELINE HYPOTHESES` finds it, except
    that p is 1 for equal scores.

    Arguments and errors are those of `corpus_scores`.
    """
    _check_lines(hypotheses, references)
    _check_lines(baseline, references)
    systems = [("baseline", baseline), ("hypotheses", hypotheses)]
    chosen = {name: _metric(name, tokenize, lowercase) for name in metrics}
    signatures, results = PairedTest(systems, chosen, references, test_type="bs", n_samples=_RESAMPLES)()
    differences = []
    for name in (NAMES[metric] for metric in chosen):
        before, after = results[name]
        assert isinstance(before, Result)
        assert isinstance(after, Result)
        assert after.p_value is not None
        score, other = (_of_result(name, result, signatures[name].format()) for result in (after, before))
        # For equal scores sacreBLEU gives the smallest possible p, as if the difference were certain.
        differences.append(Difference(score, other, 1.0 if score.value == other.value else after.p_value))
    return differences


def _of_result(name: str, result: Result, signature: str) -> Score:
    assert result.mean is not None
    assert result.ci is not None
    return Score(name, result.score, signature, Interval(float(result.mean), float(result.ci)))


def _check_lines(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> None:
    assert references, "a score needs a reference set"
    for number, reference in enumerate(references, start=1):
        if len(reference) != len(hypotheses):
            raise DataError(
                f"{len(hypotheses)} hypotheses cannot be scored against the {len(reference)} lines of reference set "
                f"{number}: line N of one must belong to line N of the other"
            )
    if not hypotheses:
        raise DataError("no lines to score: hypotheses and references are empty")


def _score(
    metric: BLEU | CHRF | TER, hypotheses: Sequence[str], references: Sequence[Sequence[str]], intervals: bool
) -> Score:
    if intervals:
        return _score_with_interval(metric, hypotheses, references)
    result = metric.corpus_score(hypotheses, references)
    # The signature counts the reference sets, so it exists only after scoring.
    return Score(result.name, result.score, metric.get_signature().format())


def _score_with_interval(
    metric: BLEU | CHRF | TER, hypotheses: Sequence[str], references: Sequence[Sequence[str]]
) -> Score:
    try:
        result = metric.corpus_score(hypotheses, references, n_bootstrap=_RESAMPLES)
    except TypeError:
        # With few lines, some resamples score exactly 0, which sacreBLEU can average with the others only in its paired
        # tests.
        signatures, results = PairedTest([("", hypotheses)], {"": metric}, references, "bs", _RESAMPLES)()
        ((name, (found,)),) = ((name, column) for name, column in results.items() if name in signatures)
        assert isinstance(found, Result)
        return _of_result(name, found, signatures[name].format())
    signature = metric.get_signature().format()
    # A sacreBLEU score gives its interval only in formatted output, which omits an interval around 0.
    told = json.loads(result.format(width=_DIGITS, signature=signature, is_json=True))
    interval = Interval(told.get("confidence_mean", 0.0), told.get("confidence_var", 0.0))
    return Score(result.name, result.score, signature, interval)


def _metric(name: str, tokenize: str, lowercase: bool, of_sentences: bool = False) -> BLEU | CHRF | TER:
    match name:
        case "bleu":
            return _bleu(tokenize, lowercase, of_sentences)
        case "chrf":
            return CHRF()
        case "chrf++":
            return CHRF(word_order=2)
        case "ter":
            return TER()
        case _:
            raise ConfigError(f"there is no metric {name}: choose {', '.join(NAMES)}")


def _bleu(tokenize: str, lowercase: bool, of_sentences: bool = False) -> BLEU:
    if tokenize not in BLEU.TOKENIZERS:
        raise ConfigError(f"BLEU has no tokenizer {tokenize}: choose one of {', '.join(BLEU.TOKENIZERS)}")
    try:
        return BLEU(lowercase=lowercase, tokenize=tokenize, effective_order=of_sentences)
    except Stopped:
        raise
    # A missing package, a wrong dictionary, a failed download and a damaged model each raise a different error; a
    # failed certificate check calls sys.exit.
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
    return f'pip install "sacrebleu[{extra}]"'


def worth(score: float, loss: float) -> float:
    """The value of a validation in comparisons, higher being better: its score or, where that is still noise, minus its
    loss, which is below every score; minus infinity for a loss that is not finite."""
    if score >= _SCORE_THAT_COUNTS:
        return score
    return -loss if math.isfinite(loss) else -math.inf


def has_own_tokenizer(language: str) -> bool:
    """Whether BLEU needs another tokenizer than 13a for text in `language`, a BCP-47 tag."""
    return base_language(language) in (*CHINESE, *_MECAB)


def metric_tokenizer(language: str) -> str:
    """BLEU's tokenizer for text in `language`, a BCP-47 tag; only its first subtag counts.

    `zh` for Chinese, where 13a would count a whole clause as one word; MeCab for Japanese and Korean; `13a` otherwise.
    Without the packages of the extras `ja` and `ko`, these two get `char`, with one warning each.
    """
    base = base_language(language)
    if base in CHINESE:
        return "zh"
    return _mecab_or_char(base) if base in _MECAB else "13a"


@cache  # one warning per process and language
def _mecab_or_char(language: str) -> str:
    tokenizer = f"{language}-mecab"
    try:
        _bleu(tokenizer, lowercase=False)
    except ConfigError:
        LOGGER.warning(
            "BLEU counts characters instead of words (tok:char): the tokenizer %s is not installed. For words: %s",
            tokenizer,
            _install(language),
        )
        return "char"
    return tokenizer


def named_set(name: str, pair: str) -> tuple[Path, list[Path]]:
    """The source file and the reference files of one of sacreBLEU's test sets, such as `wmt14/full` in `en-de`.

    Files that are not on this machine are downloaded. Raises ConfigError for an unknown set or pair, DataError when the
    download fails.
    """
    if name not in get_available_testsets():
        near = [other for other in get_available_testsets() if other.split("/")[0] == name.split("/")[0]]
        known = f"of that name there are {', '.join(near)}" if near else "`sacrebleu --list` shows them all"
        raise ConfigError(f"sacreBLEU has no test set {name}: {known}")
    pairs = get_langpairs_for_testset(name)
    if pair not in pairs:
        raise ConfigError(f"the test set {name} has no language pair {pair}: --lang-pair is one of {', '.join(pairs)}")
    try:
        return Path(get_source_file(name, pair)), [Path(file) for file in get_reference_files(name, pair)]
    # A failed download, a changed archive and a failed certificate check each raise a different error or call sys.exit.
    except (Exception, SystemExit) as error:
        raise DataError(
            f"the test set {name} is not on this machine, and fetching it failed ({type(error).__name__}: {error}). Go "
            f"online once, or copy its folder {SACREBLEU_DIR}/{name} from a machine that has it"
        ) from error


def result_line(label: str, scores: Sequence[Score]) -> str:
    """`test BLEU 95.31 chrF2 97.40 nrefs:1|…`: the scores with two decimals, then the signature of the first."""
    return " ".join([label, *map(in_words, scores), scores[0].signature])


def in_words(score: Score) -> str:
    """`BLEU 95.31`, and with an interval `BLEU 95.31 (95.30 ± 0.52)`."""
    around = "" if score.interval is None else f" ({score.interval.mean:.2f} ± {score.interval.half:.2f})"
    return f"{score.name} {score.value:.2f}{around}"


def result_table(results: Mapping[str, Sequence[Score]]) -> list[str]:
    """A result line for each set, with aligned columns."""
    rows = [[name, *map(in_words, scores)] for name, scores in results.items()]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        " ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=True)), scores[0].signature])
        for row, scores in zip(rows, results.values(), strict=True)
    ]


def scores_json(scores: Sequence[Score]) -> dict[str, dict[str, float | str]]:
    """`{"BLEU": {"score": …, "signature": …}, …}`, not rounded; intervals under the names that sacreBLEU gives them."""
    return {score.name: _score_json(score) for score in scores}


def _score_json(score: Score) -> dict[str, float | str]:
    plain: dict[str, float | str] = {"score": score.value, "signature": score.signature}
    if score.interval is not None:
        plain |= {"confidence_mean": score.interval.mean, "confidence_var": score.interval.half}
    return plain
