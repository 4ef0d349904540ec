"""Drawings for a page: text that stays text, colours that follow the page, nothing from elsewhere; and files."""

import math
import re
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from transformer_cli.evaluation.drawing import (
    COLOURS,
    Bars,
    Chart,
    Series,
    as_png,
    as_svg,
    attention_as_png,
    attention_as_svg,
)

SERIES = Series("", "training", [10, 20, 30], [3.0, 2.0, 1.5], COLOURS[0], "line")
PNG = b"\x89PNG"


def texts(svg: str) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]*)</text>", svg)


def test_text_stays_text_and_every_colour_is_a_variable_of_the_page() -> None:
    svg = as_svg(Chart("loss", "Loss", [SERIES]))
    assert {"step", "10", "20", "30"} <= set(texts(svg))
    assert "var(--c0)" in svg
    assert "var(--faint)" in svg
    assert set(re.findall(r"#[0-9a-f]{6}\b", svg)) <= {"#000000", "#ffffff"}


def test_a_drawing_brings_nothing_from_elsewhere_and_nothing_for_the_whole_page() -> None:
    svg = as_svg(Chart("loss", "Loss", [SERIES])) + as_svg(Bars("x", "x", 2, [1, 5, 2], COLOURS[1]))
    for foreign in ("http:", "https:", "<style", "<metadata", "<!DOCTYPE", "<?xml"):
        assert foreign not in svg


def test_the_same_chart_is_drawn_the_same() -> None:
    chart = Chart("loss", "Loss", [SERIES])
    assert as_svg(chart) == as_svg(chart)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_no_number_leaves_a_gap(value: float) -> None:
    gap = SERIES._replace(steps=[10, 20, 30, 40, 50], values=[3.0, 2.0, value, 1.0, 1.0])
    whole = gap._replace(values=[3.0, 2.0, 2.0, 1.0, 1.0])
    strokes = [
        re.findall(r'<path d="([^"]*)"[^>]*style="[^"]*stroke: var\(--c0\)', as_svg(Chart("x", "x", [one])))
        for one in (gap, whole)
    ]
    assert [path.count("M") for path in (strokes[0][0], strokes[1][0])] == [2, 1]


def test_a_single_value_is_seen() -> None:
    one = SERIES._replace(steps=[10], values=[3.0])
    assert "<use" in as_svg(Chart("x", "x", [one]))


def test_values_of_several_magnitudes_have_a_logarithmic_axis_where_that_is_wanted() -> None:
    wide = SERIES._replace(values=[5000.0, 300.0, 8.0])
    assert {"10", "100", "1,000"} <= set(texts(as_svg(Chart("ppl", "Perplexity", [wide], logarithmic=True))))
    assert "100" not in texts(as_svg(Chart("ppl", "Perplexity", [wide])))
    near = SERIES._replace(values=[14.0, 13.5, 13.0])  # no power of ten between them
    assert len(texts(as_svg(Chart("ppl", "Perplexity", [near], logarithmic=True)))) > 5


def test_the_legend_of_several_runs_names_each_once_and_what_is_drawn_of_it() -> None:
    series = [
        Series(run, label, [1, 2], [1, 2], colour, kind)  # type: ignore[arg-type]
        for run, colour in (("a", COLOURS[0]), ("b", COLOURS[1]))
        for label, kind in (("training", "line"), ("validation", "points"))
    ]
    assert [label for label, _, _ in Chart("x", "x", series).legend()] == ["a", "b", "training", "validation"]
    assert [label for label, _, _ in Chart("x", "x", series[::2]).legend()] == ["a", "b"]


def test_a_picture_alone_is_a_png(tmp_path: Path) -> None:
    as_png(Chart("loss", "Loss", [SERIES]), tmp_path / "x.png")
    assert (tmp_path / "x.png").read_bytes().startswith(PNG)


def test_attention_has_a_title_for_each_layer_and_head_and_the_pieces_as_labels(tmp_path: Path) -> None:
    weights = np.full((2, 3, 2, 4), 0.25)
    rows, columns = ["▁你好", "</s>"], ["▁a", "<b>", "$c^$", "</s>"]
    svg = attention_as_svg(weights, rows, columns)
    found = texts(svg)
    assert [t for t in found if t.startswith("layer")] == [f"layer {x}, head {y}" for x in (1, 2) for y in (1, 2, 3)]
    assert found.count("▁你好") == 2  # beside each row of pictures
    assert found.count("&lt;b&gt;") == 3  # under each column
    assert found.count("$c^$") == 3
    attention_as_png(weights, ["a", "b"], list("abcd"), tmp_path / "x.png")
    assert (tmp_path / "x.png").read_bytes().startswith(PNG)


def test_characters_without_a_font_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    attention_as_png(np.ones((1, 1, 1, 1)), ["\U0001039f"], ["a"], tmp_path / "x.png")  # Ugaritic
    told = [record.getMessage() for record in caplog.records]
    assert not told or "no font on this machine has all the characters" in told[0]
