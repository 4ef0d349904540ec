"""The page on a run: it holds what is known, leaves out what is not, escapes all text and needs nothing but itself."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from untrained import translator

pytest.importorskip("matplotlib")

from transformer_cli.config.load import dump_config
from transformer_cli.config.schema import Config
from transformer_cli.data.corpus import Pair
from transformer_cli.evaluation.history import read_history
from transformer_cli.evaluation.report import Reported, load_run, named, report

EVIL = "<script>alert(1)</script> & \"'"
PARTS = ("overview", "curves", "scores", "samples", "sentences", "attention", "text", "configuration", "environment")


def write_run(folder: Path, **config: Any) -> Path:
    """A run of two validations and a test, of which every text is evil."""
    for name in ("samples", "test"):
        (folder / name).mkdir(parents=True)
    settings = Config.model_validate({"name": "x", **config})
    (folder / "config.yaml").write_text(dump_config(settings), encoding="utf-8")
    scores = {"BLEU": {"score": 20.0, "signature": EVIL}}
    events = [
        {"event": "train", "step": 5, "epoch": 1, "loss": 4.0, "seconds": 1.0, "tgt_tokens": 50},
        {"event": "valid", "step": 5, "epoch": 1, "loss": 3.0, "scores": {"BLEU": {"score": 10.0, "signature": ""}}},
        {"event": "train", "step": 10, "epoch": 2, "loss": None, "seconds": 1.0, "tgt_tokens": 50},
        {"event": "valid", "step": 10, "epoch": 2, "loss": 2.0, "scores": scores},
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    for step, words in ((5, "fo gu"), (10, f"fo {EVIL}")):
        (folder / "samples" / f"step-{step:08d}.tsv").write_text(f"ba ce {EVIL}\tBA CE\t{words}\n" * 4)
    (folder / "test" / "scores.json").write_text(json.dumps({EVIL: scores}))
    record = {"command": ["train", EVIL], "git_commit": "abc", "data": [{"key": EVIL, "path": EVIL, "sha256": EVIL}]}
    (folder / "run.json").write_text(json.dumps(record | {"versions": {EVIL: EVIL}}))
    return folder


def page(*folders: Path) -> str:
    return report(named([load_run(folder) for folder in folders]))


def part(text: str, name: str) -> str:
    found = re.search(rf'<section id="{name}".*?</section>', text, re.S)
    assert found is not None
    return found[0]


def test_text_of_any_kind_stays_text(tmp_path: Path) -> None:
    folder = write_run(
        tmp_path / "<b>run", data={"source_lang": "en", "test": {"a": [{"source": "a", "target": "<i>"}]}}
    )
    run = Reported(read_history(folder), translator(), {EVIL: [Pair("a", "b")]})
    text = report(named([run]))
    assert "<script>alert" not in text
    assert "<b>" not in text
    assert "<i>" not in text
    assert text.count("<script") == 2  # the data of the attention, and the script that draws them
    data = re.search(r'id="attention-data">(.*?)</script>', text, re.S)
    assert data is not None
    assert json.loads(data[1])[0].keys() == {"rows", "columns", "weights"}


def test_the_page_needs_nothing_but_itself(tmp_path: Path) -> None:
    text = page(write_run(tmp_path / "a"))
    assert not re.search(r"https?:|<link|@import|url\((?!#)|\bsrc=", text)


def test_every_part_is_there_with_what_is_known(tmp_path: Path) -> None:
    text = page(write_run(tmp_path / "a", model={"d_model": 128}, data={"target_lang": "de"}))
    assert re.findall(r'<section id="(\w+)"', text) == list(PARTS)
    assert re.findall(r'<a href="#(\w+)"', text) == list(PARTS)
    assert "BLEU 20.00 at step 10" in part(text, "overview")
    assert "<mark>" in part(text, "samples")
    assert part(text, "curves").count("<svg") == 2  # loss and BLEU; nothing else was measured
    assert "model.d_model</code></th><td ><code>512</code></td><td ><code>128</code>" in part(text, "configuration")
    assert "abc" in part(text, "environment")


def test_an_empty_folder_has_a_page_that_says_what_is_missing(tmp_path: Path) -> None:
    text = page(tmp_path)
    assert re.findall(r'<section id="(\w+)"', text) == list(PARTS)
    assert "no such file" in part(text, "configuration")
    assert "No attention is shown" in part(text, "overview")
    assert "<svg" not in text


@pytest.mark.parametrize(
    "gone", ["config.yaml", "metrics.jsonl", "run.json", "test/scores.json", "samples/step-00000010.tsv"]
)
def test_whatever_is_gone_or_damaged_the_rest_is_shown(tmp_path: Path, gone: str) -> None:
    folder = write_run(tmp_path / "a")
    (folder / gone).write_bytes(b'{"x": \xff')
    assert re.findall(r'<section id="(\w+)"', page(folder)) == list(PARTS)
    (folder / gone).unlink()
    assert re.findall(r'<section id="(\w+)"', page(folder)) == list(PARTS)


@pytest.mark.parametrize(
    "record",
    [
        {"text": {"counts": {"read": 5, "kept": 4}, "lengths": {}, "sets": {"valid": 2}}},
        {"text": 3, "data": 5, "versions": [], "command": "x", "finished": 7},
        {"finished": {"step": 3, "reason": "step 3 of training.max_steps 3"}},
    ],
)
def test_a_record_of_another_shape_is_shown_as_far_as_it_goes(tmp_path: Path, record: dict[str, Any]) -> None:
    folder = write_run(tmp_path / "a")
    (folder / "run.json").write_text(json.dumps(record))
    text = page(folder)
    assert ("5</td>" in part(text, "text")) == isinstance(record.get("text"), dict)
    assert ("finished: step 3" in text) == ("reason" in str(record.get("finished")))


def test_an_interval_is_given_where_the_translations_still_give_the_score(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a", evaluation={"metrics": ["bleu"]})
    lines = ["the dog sleeps in the house", "a cat eats in the garden", "all of them run through the woods"]
    (folder / "test" / "news.hyp").write_text("".join(line + "\n" for line in lines))
    tests = {"news": [Pair("s", line) for line in lines]}
    for score, known in ((100.0, True), (90.0, False)):
        scores = {"news": {"BLEU": {"score": score, "signature": "nrefs:1"}}}
        (folder / "test" / "scores.json").write_text(json.dumps(scores))
        found = part(report(named([Reported(read_history(folder), None, tests)])), "scores")
        assert ("100.00 ± 0.00" in found, "not known" in found) == (known, not known)
        assert "nrefs:1" in found


def test_best_and_worst_are_of_the_test_set_or_where_its_text_is_gone_of_the_samples(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a")
    (folder / "test" / "scores.json").write_text(json.dumps({"news": {"BLEU": {"score": 1.0}}}))
    (folder / "test" / "news.hyp").write_text("a\nb\n")
    tests = {"news": [Pair("s", "a"), Pair("t", "c")]}
    assert "news, 2 sentences" in part(report(named([Reported(read_history(folder), None, tests)])), "sentences")
    gone = part(report(named([Reported(read_history(folder), None, {})])), "sentences")
    assert "samples of the validation at step 10, 4 sentences" in gone
    other = {"news": [Pair("s", "a")]}  # another number of lines than were translated
    assert "samples of" in part(report(named([Reported(read_history(folder), None, other)])), "sentences")


def test_runs_of_the_same_name_are_told_apart_by_their_paths(tmp_path: Path) -> None:
    one, other = write_run(tmp_path / "a" / "x"), write_run(tmp_path / "b" / "x")
    assert list(named([load_run(one), load_run(other)])) == [str(one), str(other)]
    assert list(named([load_run(one)])) == ["x"]
    text = page(one, other)
    assert part(text, "curves").count("<svg") == 2
    assert part(text, "environment").count("<h3>") == 2


def test_attention_is_of_short_sentences_and_its_rows_sum_to_a_hundred_percent(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a")
    lines = ["ba ce " * 30, "", "ba ce di", "fo gu", "ki lo mu", "na", "pe qi"]
    (folder / "samples" / "step-00000010.tsv").write_text("".join(f"{line}\tR\tH\n" for line in lines))
    text = part(report(named([Reported(read_history(folder), translator(), {})])), "attention")
    assert re.findall(r"<option>(.*?)</option>", text) == ["ba ce di", "fo gu", "ki lo mu", "na"]
    data = re.search(r'id="attention-data">(.*?)</script>', text, re.S)
    assert data is not None
    for one in json.loads(data[1]):
        assert len(one["weights"]) == 2  # layers
        assert [len(heads) for heads in one["weights"]] == [2, 2]
        for rows in (rows for heads in one["weights"] for rows in heads):
            assert len(rows) == len(one["rows"])
            assert all(abs(sum(row) - 100) <= len(row) / 2 for row in rows)
            assert {len(row) for row in rows} == {len(one["columns"])}
        assert one["rows"][-1] == one["columns"][-1] == "</s>"
