"""Building blocks of a self-contained HTML page, which opens from disk, in light and dark mode, wide and narrow."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from string import Template

from transformer_cli.errors import ConfigError, DataError
from transformer_cli.run_files import replace_text

_TEMPLATE = "page.html"
INSTALL = "pip install matplotlib"


def can_draw() -> bool:
    """Whether matplotlib is installed."""
    return find_spec("matplotlib") is not None


def check_installed() -> None:
    """ConfigError when matplotlib is not installed."""
    if not can_draw():
        raise ConfigError(f"drawing needs matplotlib, which is not installed: {INSTALL}")


def check_picture(path: Path) -> None:
    """ConfigError unless attention can be drawn to this file."""
    if path.suffix.lower() not in (".png", ".html"):
        raise ConfigError(f"--attention draws to a file whose name ends in .png or .html, not to {path}")


def page(title: str, body: str) -> str:
    """The whole page; `body` is HTML."""
    template = files("transformer_cli.evaluation").joinpath(_TEMPLATE).read_text(encoding="utf-8")
    return Template(template).substitute(title=escape(title), body=body)


def write_page(path: Path, text: str) -> None:
    """Replace a file atomically. DataError when it cannot be written."""
    try:
        replace_text(path, text)
    except OSError as error:
        raise DataError(f"cannot write {path} ({error.strerror}): name another place for it") from error


def table(head: Sequence[str], rows: Iterable[Sequence[str]], label: str, numbers: Sequence[int] = ()) -> str:
    """A table of HTML cells, the first of each row its heading; it scrolls sideways where it is too wide.

    `numbers` are the columns to align right.
    """
    sides = ['class="number" ' if column in numbers else "" for column in range(len(head))]
    top = "".join(f'<th {side}scope="col">{cell}</th>' for side, cell in zip(sides, head, strict=True))
    body = "".join(
        f'<tr><th scope="row">{first}</th>'
        + "".join(f"<td {side}>{cell}</td>" for side, cell in zip(sides[1:], cells, strict=True))
        + "</tr>"
        for first, *cells in rows
    )
    return wide(f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>", label)


def wide(content: str, label: str) -> str:
    """Content that may be wider than the window, in a box that scrolls by itself, also from the keyboard."""
    return f'<div class="wide" role="region" tabindex="0" aria-label="{escape(label)}">{content}</div>'


def section(name: str, title: str, content: str) -> str:
    """A part of the page that can be linked to."""
    heading = f'<h2 id="{name}-title">{escape(title)}</h2>'
    return f'<section id="{name}" aria-labelledby="{name}-title">{heading}{content}</section>'


def note(text: str) -> str:
    """A small remark; the text is escaped."""
    return f'<p class="faint">{escape(text)}</p>'


def facts(known: Mapping[str, str]) -> str:
    """A list of names and their values; values are HTML."""
    return '<dl class="versions">' + "".join(f"<dt>{escape(k)}</dt><dd>{v}</dd>" for k, v in known.items()) + "</dl>"
