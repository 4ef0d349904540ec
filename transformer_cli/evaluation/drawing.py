"""Charts and attention drawn by matplotlib, which only this module imports.

A drawing is made once, in the colours for a light background. In a page, each colour becomes a CSS variable, so that
the same drawing serves light and dark mode, and text stays text, which the browser sets in its own fonts.
"""

import io
import re
import warnings
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import findSystemFonts, fontManager
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter
from numpy.typing import NDArray

from transformer_cli.log import LOGGER

INK, FAINT, GRID = "#1f2328", "#59636e", "#d8dee4"
COLOURS = ("#0b62c4", "#b85c00", "#1a7f37", "#8250df", "#bf3989", "#0a7d8c", "#7d6b00", "#57606a")
"""The colours of runs in order, repeated when they run out."""
_VARIABLES = {INK: "--ink", FAINT: "--faint", GRID: "--line"} | {
    colour: f"--c{number}" for number, colour in enumerate(COLOURS)
}
_HEAT = (0.25, 0.54, 0.88)  # a blue distinct from white and from black

_SIZE = (4.2, 2.3)  # inches: three side by side in a wide window, one in a narrow one
_DPI = 150
_STEPS = [1, 2, 2.5, 5, 10]  # between the ticks of an axis
_LOG_FROM = 3.0  # ratio of maximum to minimum from which a logarithmic axis has enough ticks
_CELL, _WIDEST = 0.17, 40.0  # inches: the side of one weight, the most that all weights may span

_FORMS: dict[str, dict[str, Any]] = {
    "line": {"linewidth": 1.0, "marker": ""},
    "points": {"linewidth": 1.6, "marker": "o", "markersize": 3.2},
    "mark": {"linestyle": "none", "marker": "D", "markersize": 5, "markerfacecolor": "none"},
}

# Fonts for pieces in Chinese, Japanese and Korean, used where they are installed.
_CJK_FONTS = (
    "Noto Sans CJK SC", "Noto Sans CJK JP", "Noto Sans CJK KR", "Noto Sans SC", "Noto Sans JP", "Source Han Sans SC",
    "WenQuanYi Zen Hei", "WenQuanYi Micro Hei", "Droid Sans Fallback", "PingFang SC", "Hiragino Sans",
    "Hiragino Sans GB", "Apple SD Gothic Neo", "Arial Unicode MS", "Microsoft YaHei", "SimHei", "Yu Gothic",
    "MS Gothic", "Malgun Gothic", "Unifont",
)  # fmt: skip


class Series(NamedTuple):
    """A line of a chart. `run` is empty unless there are several; `label` names the values. `kind`: a thin `line`, one
    with `points`, or unconnected `mark`s."""

    run: str
    label: str
    steps: Sequence[float]
    values: Sequence[float]
    colour: str
    kind: Literal["line", "points", "mark"]


class Chart(NamedTuple):
    """Values over the steps of training; NaN and infinity leave a gap."""

    name: str
    title: str
    series: Sequence[Series]
    logarithmic: bool = False

    def legend(self) -> list[tuple[str, str, str]]:
        """(label, colour, kind) of each entry: the series of a single run, or else the runs by colour and then the
        kinds of line, if there are several."""
        if not any(one.run for one in self.series):
            return [(one.label, one.colour, one.kind) for one in self.series]
        runs = {one.run: (one.run, one.colour, "line") for one in self.series}
        kinds = {one.label: (one.label, FAINT, one.kind) for one in self.series}
        return [*runs.values(), *(kinds.values() if len(kinds) > 1 else ())]


class Bars(NamedTuple):
    """A histogram: bar i counts the lines of `width` x i pieces up to the next bar; the last has all longer ones."""

    name: str
    title: str
    width: int
    counts: Sequence[int]
    colour: str


Picture = Chart | Bars


def variable_of(colour: str) -> str:
    """The CSS variable of a colour."""
    return f"var({_VARIABLES[colour]})"


def as_svg(picture: Picture) -> str:
    """SVG for a page, without title and legend."""
    with _style():
        return _svg(_figure(picture, alone=False))


def as_png(picture: Picture, path: Path) -> None:
    """Write a file, with title and legend."""
    with _style(*_installed_fonts()):
        _figure(picture, alone=True).savefig(path, dpi=_DPI, facecolor="white")


def attention_as_svg(weights: NDArray[np.float64], rows: Sequence[str], columns: Sequence[str]) -> str:
    """SVG for a page; see `attention_as_png`."""
    with _style():
        return _svg(_attention(weights, rows, columns))


def attention_as_png(weights: NDArray[np.float64], rows: Sequence[str], columns: Sequence[str], path: Path) -> None:
    """Write a picture of each layer and head, from weights (layers, heads, rows, columns) in 0 to 1."""
    with _style(*_installed_fonts()), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        _attention(weights, rows, columns).savefig(path, dpi=_DPI, facecolor="white")
    if any("missing from" in str(warning.message) for warning in caught):
        LOGGER.warning(
            "no font on this machine has all the characters of the sentence, and those are drawn as boxes: install one "
            "that does, such as Noto Sans CJK, or draw to a name that ends in .html"
        )


def _style(*fonts: str) -> AbstractContextManager[None]:
    """The style, with fonts for characters that the first font lacks. A page names none, so that it is the same on any
    machine."""
    return matplotlib.rc_context(
        {
            "font.family": ["DejaVu Sans", *fonts],
            "font.size": 9,
            "text.color": INK,
            "axes.labelcolor": FAINT,
            "axes.edgecolor": GRID,
            "xtick.color": GRID,
            "ytick.color": GRID,
            "xtick.labelcolor": FAINT,
            "ytick.labelcolor": FAINT,
            "grid.color": GRID,
            "text.parse_math": False,  # a dollar sign stays one
            "svg.fonttype": "none",  # text stays text
            "svg.hashsalt": "transformer_cli",  # the same picture has the same ids inside
            "axes.unicode_minus": False,
        }
    )


def _installed_fonts() -> list[str]:
    """The installed fonts for Chinese, Japanese and Korean, with those installed since matplotlib cached its list."""
    known = {font.fname for font in fontManager.ttflist}
    for path in findSystemFonts():
        if path not in known:
            with suppress(OSError, RuntimeError):  # a font that matplotlib cannot read
                fontManager.addfont(path)
    installed = set(fontManager.get_font_names())
    return [font for font in _CJK_FONTS if font in installed]


def _figure(picture: Picture, alone: bool) -> Figure:
    # In a page there is no legend or title, and the axes take all the room.
    figure = Figure(figsize=(_SIZE[0], _SIZE[1] + (0.6 if alone else 0.0)))
    axes = figure.add_axes((0.135, 0.17, 0.845, 0.57 if alone else 0.79))
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(length=0)
    match picture:
        case Chart():
            _draw_chart(axes, picture)
        case Bars():
            _draw_bars(axes, picture)
    axes.xaxis.set_major_formatter(FuncFormatter(_number))
    axes.yaxis.set_major_formatter(FuncFormatter(_number))
    if alone:
        figure.text(0.02, 0.93, picture.title, fontsize=10, fontweight="bold")
        if isinstance(picture, Chart):
            entries = [
                Line2D([], [], color=colour, label=label, **_FORMS[kind]) for label, colour, kind in picture.legend()
            ]
            figure.legend(
                handles=entries, loc="upper left", bbox_to_anchor=(0.0, 0.92), ncols=3, fontsize=7, frameon=False
            )
    return figure


def _draw_chart(axes: Axes, chart: Chart) -> None:
    for one in chart.series:
        form = dict(_FORMS[one.kind])
        if len(one.steps) == 1:
            form["marker"] = form["marker"] or "."  # a line of a single value is invisible
        axes.plot(one.steps, np.where(np.isfinite(one.values), one.values, np.nan), color=one.colour, **form)
    found = [value for one in chart.series for value in one.values if np.isfinite(value)]
    if chart.logarithmic and min(found) > 0 and max(found) > _LOG_FROM * min(found):
        axes.set_yscale("log")
        few = max(found) < 100 * min(found)
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if few else (1.0,), numticks=8))
        axes.yaxis.set_minor_formatter(NullFormatter())
    else:
        axes.yaxis.set_major_locator(MaxNLocator(5, steps=_STEPS))
    axes.xaxis.set_major_locator(MaxNLocator(5, steps=_STEPS, integer=True))
    axes.set_xlim(left=0)  # the same in all charts
    axes.set_xlabel("step", labelpad=2)


def _draw_bars(axes: Axes, bars: Bars) -> None:
    edges = np.arange(len(bars.counts)) * bars.width
    axes.bar(edges, bars.counts, bars.width * 0.9, align="edge", color=bars.colour)
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=_STEPS, integer=True))
    axes.xaxis.set_major_locator(MaxNLocator(6, steps=_STEPS, integer=True))
    axes.set_xlim(0, len(bars.counts) * bars.width)
    axes.set_xlabel("pieces in a line", labelpad=2)


def _number(value: float, _: int | None = None) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _attention(weights: NDArray[np.float64], rows: Sequence[str], columns: Sequence[str]) -> Figure:
    layers, heads = weights.shape[:2]
    cell = min(_CELL, _WIDEST / (heads * len(columns)), _WIDEST / (layers * len(rows)))
    font = cell * 72 * 0.62
    wide, high = cell * len(columns), cell * len(rows)
    gap, title = 1.2 * cell, 2.2 * cell
    left = cell * (1.5 + 0.45 * max(_width(piece) for piece in rows))
    below = cell * (1.0 + 0.45 * max(_width(piece) for piece in columns))
    total = left + heads * (max(wide, 6 * cell) + gap), below + layers * (high + title)
    figure = Figure(figsize=total)
    for layer in range(layers):
        for head in range(heads):
            x = left + head * (max(wide, 6 * cell) + gap)
            y = below + (layers - 1 - layer) * (high + title)
            axes = figure.add_axes((x / total[0], y / total[1], wide / total[0], high / total[1]))
            picture = np.empty((len(rows), len(columns), 4))
            picture[...] = (*_HEAT, 0.0)
            picture[..., 3] = np.clip(weights[layer, head], 0.0, 1.0)
            axes.imshow(picture, interpolation="none", aspect="auto")
            axes.tick_params(length=0, labelsize=font, labelcolor=INK)
            axes.set_yticks(range(len(rows)), rows if head == 0 else [])
            axes.set_xticks(range(len(columns)), columns if layer == layers - 1 else [], rotation=90)
            axes.set_title(f"layer {layer + 1}, head {head + 1}", fontsize=font, color=FAINT, pad=3, loc="left")
    return figure


def _width(text: str) -> float:
    """The approximate width of a text in letters; Chinese, Japanese and Korean characters count twice."""
    return sum(2.0 if character >= "\u2e80" else 1.0 for character in text)


def _svg(figure: Figure) -> str:
    """SVG as part of a page: no XML header or document type, colours as CSS variables."""
    buffer = io.StringIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # the browser has fonts of its own
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"\s*<metadata>.*?</metadata>", "", text, flags=re.S)
    wide, high = figure.get_size_inches() * 72
    opening = f'<svg width="{wide:.1f}pt" height="{high:.1f}pt" viewBox="0 0 {wide:.1f} {high:.1f}" aria-hidden="true">'
    text = re.sub(r"<svg [^>]*>", opening, text, count=1)
    text = re.sub(r"<style.*?</style>", "", text, flags=re.S)  # it would apply to the whole page
    text = re.sub(r'<g id="[^"]*"', "<g", text)  # the same ids in every drawing of a page
    text = text.replace("xlink:href=", "href=")
    for colour in _VARIABLES:
        text = text.replace(colour, variable_of(colour))
    return text
