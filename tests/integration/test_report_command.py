"""`report` and `translate --attention`: what they write, and the page in a real browser."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from transformer_cli.errors import DataError
from transformer_cli.evaluation.page import write_page

pytest.importorskip("matplotlib")

Command = Callable[..., CompletedProcess[str]]

PNG = b"\x89PNG"


def test_a_page_is_written_into_the_run_or_where_one_wants_it(cli: Command, trained: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(trained, run)
    (run / "report.html").unlink()
    done = cli("report", run)
    assert (done.returncode, done.stdout) == (0, f"{run / 'report.html'}\n")
    other = cli("report", run, trained, "--output", tmp_path / "x.html", "--png", tmp_path / "new" / "png")
    assert other.returncode == 0, other.stderr
    written = [Path(line) for line in other.stdout.splitlines()]
    assert written[0] == tmp_path / "x.html"
    names = {"loss", "ppl", "BLEU", "chrF2", "lr", "grad_norm", "tokens_per_s"}
    names |= {f"{name}_{side}_lengths" for name in ("run", "config") for side in ("source", "target")}
    assert {path.stem for path in written[1:]} == names
    assert all(path.read_bytes().startswith(PNG) for path in written[1:])


def test_training_leaves_the_page_that_report_draws(cli: Command, trained: Path, tmp_path: Path) -> None:
    def without_the_time(path: Path) -> str:
        return re.sub(r"drawn \d[^<]*", "", path.read_text(encoding="utf-8"))

    cli("report", trained, "-o", tmp_path / "x.html")
    assert without_the_time(tmp_path / "x.html") == without_the_time(trained / "report.html")


def test_the_page_holds_scores_with_intervals_and_what_the_run_was_made_from(trained: Path) -> None:
    text = (trained / "report.html").read_text(encoding="utf-8")
    scores = json.loads((trained / "test" / "scores.json").read_text())
    for found in scores.values():
        for score in found.values():
            assert f"{score['score']:.2f}</td>" in text
            assert score["signature"] in text
    assert text.count(" ± ") == 4
    assert "not known" not in text
    record = json.loads((trained / "run.json").read_text())
    assert all(file["sha256"] in text for file in record["data"])
    assert "finished: step 180 of training.max_steps 180" in text
    assert "test, 40 sentences by their BLEU" in text
    assert "again, 80 sentences by their BLEU" in text


@pytest.mark.parametrize("name", ["x", "x/config.yaml"])
def test_what_is_no_run_is_refused(cli: Command, small: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "config.yaml").write_text("")
    done = cli("report", tmp_path / name)
    assert (done.returncode, done.stdout) == (1, ""), "as every command that has no run to work with"
    assert "is not a run directory" in done.stderr


def test_a_page_that_cannot_be_written_is_known_at_once(cli: Command, trained: Path, tmp_path: Path) -> None:
    done = cli("report", trained, "-o", tmp_path / "gone" / "x.html")
    assert done.returncode == 2
    assert "there is no folder" in done.stderr
    (tmp_path / "file").touch()
    for flags, words in (
        (["-o", tmp_path], f"--output {tmp_path} is a folder: name a file"),
        (["--png", tmp_path / "file"], f"--png {tmp_path / 'file'} is a file: name a folder"),
    ):
        done = cli("report", trained, *flags)
        assert (done.returncode, done.stdout) == (2, "")
        assert words in done.stderr


def test_a_page_that_turns_out_not_to_be_writable_is_told_by_its_own_name(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"cannot write .*folder \(.*\): name another place for it"):
        write_page(tmp_path / "gone" / "folder", "text")


# Attention


@pytest.mark.parametrize("suffix", [".png", ".html", ".PNG"])
def test_attention_is_drawn_beside_the_translation(cli: Command, trained: Path, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"out{suffix}"
    done = cli("translate", trained, "ba <ce> $di$", "--attention", path)
    assert (done.returncode, done.stdout) == (0, cli("translate", trained, "ba <ce> $di$").stdout)
    if suffix == ".html":
        text = path.read_text(encoding="utf-8")
        assert re.findall(r">(layer \d, head \d)<", text) == [
            f"layer {x}, head {y}" for x in (1, 2) for y in range(1, 5)
        ]
        assert "<ce>" not in text
        assert "ba &lt;ce&gt; $di$" in text
    else:
        assert path.read_bytes().startswith(PNG)


def test_attention_of_a_sentence_that_is_too_long_to_be_looked_at_is_refused(
    cli: Command, trained: Path, tmp_path: Path
) -> None:
    done = cli("translate", trained, "ba ce di fo " * 100, "--attention", tmp_path / "x.png")
    assert (done.returncode, done.stdout, [*tmp_path.iterdir()]) == (2, "", [])
    assert re.search(r"a sentence of at most 128 pieces, and this one has [\d,]+: give a shorter one", done.stderr)


def test_attention_of_an_empty_sentence_is_that_of_the_end_symbol(cli: Command, trained: Path, tmp_path: Path) -> None:
    assert cli("translate", trained, "", "--attention", tmp_path / "x.html").returncode == 0
    assert '"rows":["</s>"]'.replace("<", "\\u003c") in (tmp_path / "x.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["ba", "--attention", "x.pdf"], "a file whose name ends in .png or .html, not to x.pdf"),
        (["ba", "ce", "--attention", "x.png"], "--attention draws one sentence, given as an argument in quotes; there"),
        (["--attention", "x.png"], "there are 0"),
        (["ba", "--attention", "gone/x.png"], "there is no folder gone"),
        (["ba", "--attention", "x.png", "--split-sentences"], "--attention is for whole lines"),
        (["ba", "--attention", "x.png", "--engine", "ctranslate2"], "--attention is not there with --engine"),
    ],
)
def test_what_cannot_be_drawn_is_refused_before_the_work(
    cli: Command, trained: Path, words: list[str], message: str
) -> None:
    done = cli("translate", trained, *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr


# In a browser


@pytest.fixture(scope="module")
def browse(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., tuple[str, list[str]]]:
    """`browse(page, script)`: the page after its scripts and this one, and what was said on the console."""
    names = ("chromium", "chromium-browser", "google-chrome")
    program = next((found for name in names if (found := shutil.which(name))), None)
    if program is None:
        pytest.skip("no Chromium is installed")

    def run(page: Path, script: str = "", narrow: bool = False, dark: bool = False) -> tuple[str, list[str]]:
        folder = tmp_path_factory.mktemp("browser")
        text = page.read_text(encoding="utf-8").replace("</body>", f"<script>{script}</script></body>")
        (folder / "page.html").write_text(text, encoding="utf-8")
        # A window has a least width of its own; a frame has none.
        frame = '<iframe src="page.html" style="border: 0; width: 380px; height: 900px"></iframe>'
        (folder / "narrow.html").write_text(frame, encoding="utf-8")
        done = subprocess.run(
            [
                program, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", "--enable-logging=stderr",
                "--virtual-time-budget=5000", f"--user-data-dir={folder / 'profile'}", "--window-size=1280,900",
                "--allow-file-access-from-files", f"--blink-settings=preferredColorScheme={0 if dark else 1}",
                (folder / ("narrow.html" if narrow else "page.html")).as_uri(),
            ],
            capture_output=True, text=True, timeout=120, check=True, env={**os.environ, "LANG": "C.UTF-8"},
        )  # fmt: skip
        return done.stdout, re.findall(r'CONSOLE.*?\] "(.*)", source', done.stderr)

    return run


Browse = Callable[..., tuple[str, list[str]]]

SAY = "console.log('said', {});"


def test_the_page_renders_without_an_error_and_charts_and_attention_are_there(browse: Browse, trained: Path) -> None:
    dom, said = browse(trained / "report.html")
    assert said == []
    assert len(re.findall(r"<figure><figcaption>.*?<svg", dom, re.S)) == 9
    table = re.search(r'<table class="weights" id="weights">.*?</table>', dom, re.S)
    assert table is not None
    assert "Layer 1 of 2, head all, their mean" in table[0]
    rows = re.findall(r"<tr>.*?</tr>", table[0])[1:]
    assert len(rows) > 1
    for row in rows:
        cells = [int(cell) for cell in re.findall(r"<td[^>]*>(\d+)</td>", row)]
        assert abs(sum(cells) - 100) <= len(cells) / 2


def test_attention_is_stepped_through_by_buttons(browse: Browse, trained: Path) -> None:
    click = 'document.getElementById("{}").click();'
    caption = SAY.format('document.querySelector("#weights caption").textContent')
    _, said = browse(trained / "report.html", (click.format("after") + caption) * 6 + click.format("before") + caption)
    places = [
        f"Layer {layer} of 2, head {head}"
        for layer in (1, 2)
        for head in ("all, their mean", *(f"{n} of 4" for n in (1, 2, 3, 4)))
    ]
    assert said == [f"said {place}" for place in [*places[1:7], places[5]]]


def test_everything_has_a_name_for_those_who_do_not_see_it_and_a_place_for_the_keyboard(
    browse: Browse, trained: Path
) -> None:
    script = SAY.format(
        '[...document.querySelectorAll("select")].every(one => one.labels.length === 1 && one.labels[0].textContent), '
        '[...document.querySelectorAll("[role=img]")].every(one => one.ariaLabel.length > 20), '
        '[...document.querySelectorAll("svg")].every(one => one.closest("[role=img]")), '
        '[...document.querySelectorAll(".wide")].every(one => one.tabIndex === 0 && one.ariaLabel), '
        '[...document.querySelectorAll("nav a")].every(one => document.querySelector(one.hash)), '
        '[...document.querySelectorAll("table:not(.weights)")].every(one => one.querySelector("th[scope=col]")), '
        "document.documentElement.lang"
    )
    _, said = browse(trained / "report.html", script)
    assert said == ["said true true true true true true en"]


@pytest.mark.parametrize(("narrow", "width"), [(True, 380), (False, 1280)])
def test_nothing_is_wider_than_the_window(browse: Browse, trained: Path, narrow: bool, width: int) -> None:
    widths = "innerWidth, document.documentElement.scrollWidth <= document.documentElement.clientWidth"
    _, said = browse(trained / "report.html", SAY.format(widths), narrow=narrow)
    assert said == [f"said {width} true"]


def test_the_keyboard_comes_to_what_steps_through_attention(browse: Browse, trained: Path) -> None:
    script = "".join(
        f'document.getElementById("{name}").focus();'
        + SAY.format("document.activeElement.id, document.activeElement.type")
        for name in ("before", "after")
    )
    _, said = browse(trained / "report.html", script)
    assert [words.split()[:2] for words in said] == [["said", "before"], ["said", "after"]]


@pytest.mark.parametrize("dark", [False, True])
def test_the_colours_are_those_of_the_reader(browse: Browse, trained: Path, dark: bool) -> None:
    script = SAY.format(
        "getComputedStyle(document.body).backgroundColor, "
        'getComputedStyle(document.querySelector(".charts svg text")).fill'
    )
    _, said = browse(trained / "report.html", script, dark=dark)
    light = ["said rgb(255, 255, 255) rgb(89, 99, 110)"]
    assert said == (["said rgb(13, 17, 23) rgb(155, 165, 176)"] if dark else light)


def test_the_page_of_attention_renders_without_an_error(
    browse: Browse, cli: Command, trained: Path, tmp_path: Path
) -> None:
    assert cli("translate", trained, "ba ce di", "--attention", tmp_path / "x.html").returncode == 0
    dom, said = browse(tmp_path / "x.html")
    assert said == []
    assert "Layer 1 of 2, head all, their mean" in dom


def test_runs_of_one_folder_name_have_pictures_of_their_own(cli: Command, trained: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        shutil.copytree(trained, tmp_path / name / "run")
    words = [tmp_path / "a" / "run", tmp_path / "b" / "run", "-o", tmp_path / "x.html", "--png", tmp_path / "png"]
    done = cli("report", *words)
    assert done.returncode == 0, done.stderr
    written = [Path(line) for line in done.stdout.splitlines()[1:]]
    assert {path.parent for path in written} == {tmp_path / "png"}
    assert len(set(written)) == len(written)
    assert all(path.is_file() for path in written)


def test_the_folder_that_one_is_in_has_its_name(
    cli: Command, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(trained)
    assert cli("report", ".", "-o", tmp_path / "x.html").returncode == 0
    assert f"<title>Report: {trained.name}</title>" in (tmp_path / "x.html").read_text(encoding="utf-8")
