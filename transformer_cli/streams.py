"""Text in and out of the program: files, standard input and output, and arguments, UTF-8 whatever the locale."""

import errno
import io
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, BinaryIO

from transformer_cli.data.lines import Errors, lines_of, read_lines
from transformer_cli.errors import ConfigError, DataError

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
        raise DataError("there is no standard output for the result: leave it open, or send it to a file with > FILE")
    assert hasattr(sys.stdout, "reconfigure")
    sys.stdout.reconfigure(encoding="utf-8", errors="strict", newline="\n")
    return sys.stdout


def _opened(target: Path) -> IO[str]:
    try:
        return target.open("w", encoding="utf-8", newline="\n")
    except OSError as error:
        raise DataError(f"cannot write {target}: {error.strerror}") from error


def write_lines(target: Path, lines: Iterable[str]) -> None:
    """Write a whole file of lines."""
    with output_stream(target) as stream:
        stream.writelines(line + "\n" for line in lines)
