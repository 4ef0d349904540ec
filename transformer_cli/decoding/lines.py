"""Text input and output: the lines that `translate` reads and writes."""

import errno
import io
import json
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import repeat
from pathlib import Path
from typing import IO, TYPE_CHECKING, BinaryIO

from transformer_cli.data.lines import Errors, lines_of, read_lines
from transformer_cli.errors import ConfigError, DataError
from transformer_cli.log import LOGGER

if TYPE_CHECKING:  # streams are checked before PyTorch is loaded
    from transformer_cli.data.tokenizer import Tokenizers
    from transformer_cli.decoding.align import Alignment
    from transformer_cli.decoding.translator import Translation

_LONG_LINES_NAMED = 10
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # errors that only writing can raise


def argument_line(argument: str, name: str, errors: Errors) -> str:
    """A command-line argument decoded as UTF-8 instead of by the locale; `name` identifies it in errors."""
    return " ".join(lines_of(io.BytesIO(os.fsencode(argument)), name, errors))


def is_shown_with(target: Path | None) -> bool:
    """Whether output to `target` goes to the terminal, where a progress bar would disturb it."""
    return target is None and sys.stdout is not None and sys.stdout.isatty()


def input_lines(source: Path | None, errors: Errors) -> Iterator[str]:
    """The lines of a file, or of standard input for None."""
    if source is None:
        return lines_of(standard_input(), "standard input", errors)
    return read_lines(source, errors)


def standard_input() -> BinaryIO:
    """Standard input as bytes. DataError when the program was started without one."""
    if sys.stdin is None:
        raise DataError("there is no standard input: give sentences as arguments, or a file with --input")
    return sys.stdin.buffer


def check_input(source: Path) -> None:
    """DataError when a file or folder cannot be read. A pipe is not tried, since it can be opened only once."""
    if source.is_file() or source.is_dir() or not source.exists():
        try:
            source.open("rb").close()
        except OSError as error:
            raise DataError(f"cannot read {source}: {error.strerror}") from error


def check_output(target: Path, sources: Iterable[Path], flag: str = "--output") -> None:
    """Check before the work that its result can be written: ConfigError when `target` is a folder, lies in no existing
    folder, is not writable, or is one of `sources`."""
    if target.is_dir():
        raise ConfigError(f"{flag} {target} is a folder: name a file")
    if not target.absolute().parent.is_dir():
        raise ConfigError(f"cannot write {target}: there is no folder {target.parent}")
    if not os.access(target if target.exists() else target.absolute().parent, os.W_OK):
        raise ConfigError(f"cannot write {target}: {os.strerror(errno.EACCES)}")
    for source in sources:
        if target.exists() and source.exists() and source.samefile(target):
            raise ConfigError(f"{flag} is {source}, which is to be read: it would be lost")


@contextmanager
def output_stream(target: Path | None) -> Iterator[IO[str]]:
    """A UTF-8 stream with \\n line ends whatever the locale: a file, or standard output for None. DataError when it
    cannot be opened, or the disk or quota is full.

    Lines written before an error remain.
    """
    name = "standard output" if target is None else str(target)
    try:
        if target is None:
            yield (stream := _standard_output())
            stream.flush()
            return
        with _opened(target) as stream:
            yield stream
    except OSError as error:
        if error.errno not in _FULL:
            raise
        raise DataError(f"cannot write {name}: {error.strerror}") from error


def _standard_output() -> IO[str]:
    if sys.stdout is None:
        raise DataError("there is no standard output: name a file with --output")
    assert hasattr(sys.stdout, "reconfigure")
    sys.stdout.reconfigure(encoding="utf-8", errors="strict", newline="\n")
    return sys.stdout


def _opened(target: Path) -> IO[str]:
    try:
        return target.open("w", encoding="utf-8", newline="\n")
    except OSError as error:
        raise DataError(f"cannot write {target}: {error.strerror}") from error


def text_lines(index: int, translations: "Iterable[Translation]", numbered: bool, scores: bool) -> Iterator[str]:
    """Lines of plain text for one input line, one per translation.

    A line is the text alone; with `scores`, `text ||| score ||| log-probability ||| n`; if `numbered`, `index ||| text
    ||| score`, and with `scores` also `||| log-probability ||| n`. The index counts input lines from 0.
    """
    for t in translations:
        fields = [str(index)] if numbered else []
        fields.append(t.text)
        if numbered or scores:
            fields.append(f"{t.score:.4f}")
        if scores:
            fields += [f"{t.log_prob:.4f}", str(t.n)]
        yield " ||| ".join(fields)


def json_lines(
    index: int,
    translations: "Iterable[Translation]",
    tokenizers: "Tokenizers",
    alignments: "Iterable[Alignment] | None" = None,
) -> Iterator[str]:
    """One JSON object per translation: index, text, score, log_prob, n, truncated, pieces and token_log_probs.

    With alignments also source_pieces, and alignment in Pharaoh format: `i-j` for source piece i and piece j, from 0.
    """
    aligned = repeat(None) if alignments is None else alignments
    for t, alignment in zip(translations, aligned, strict=False):
        values = {
            "index": index,
            "text": t.text,
            "score": t.score,
            "log_prob": t.log_prob,
            "n": t.n,
            "truncated": t.truncated,
            "pieces": tokenizers.target.pieces(t.ids),
            "token_log_probs": t.token_log_probs,
        }
        if alignment is not None:
            values["source_pieces"] = tokenizers.source.pieces(t.source_ids)
            values["alignment"] = " ".join(f"{i}-{j}" for i, j in alignment)
        yield json.dumps(values, ensure_ascii=False)


class LongLines:
    """Warns of lines longer than any in training, which a model may translate badly; names the first ten."""

    def __init__(self, longest: int, split: bool = False) -> None:
        """`longest`: the pieces of the longest source in training. With `split`, each line counts by its longest
        sentence."""
        self._longest = longest
        self._words = (
            "line %d has a sentence of %d pieces, more than any in training (at most %d): its translation may be poor"
            if split
            else "line %d has %d pieces, more than any line in training (at most %d): its translation may be poor. "
            "--split-sentences translates sentence by sentence"
        )
        self._count = 0

    def note(self, number: int, pieces: int) -> None:
        """Note a line by its number from 1 and the pieces in it, or in its longest sentence."""
        if pieces <= self._longest:
            return
        self._count += 1
        if self._count <= _LONG_LINES_NAMED:
            LOGGER.warning(self._words, number, pieces, self._longest)

    def tell(self) -> None:
        """Warn of their number, if not all were named."""
        if self._count > _LONG_LINES_NAMED:
            LOGGER.warning("%d lines were longer than any in training", self._count)


def write_lines(target: Path, lines: Iterable[str]) -> None:
    """Write a whole file of lines."""
    with output_stream(target) as stream:
        stream.writelines(line + "\n" for line in lines)
