"""What a run has left is read as far as it goes: nothing in its folder can stop the reading."""

import json
import math
from pathlib import Path

import pytest

from transformer_cli.evaluation.history import Sample, number, read_history, scores_of


def write(folder: Path, name: str, content: str | bytes) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())


def test_an_empty_folder_is_a_run_of_which_nothing_is_known(tmp_path: Path) -> None:
    run = read_history(tmp_path)
    assert (run.config, run.record, run.text, run.scores, run.sample_files) == (None, {}, {}, {}, {})
    assert not run.trained
    assert not run.validated
    assert "config.yaml" in run.trouble
    assert run.hypotheses("test") == []


def test_lines_that_cannot_be_read_are_left_out_of_the_metrics(tmp_path: Path) -> None:
    lines = [
        '{"event": "train", "step": 10, "loss": 2.0}',
        "not json",
        '{"event": "train", "step": null}',
        "[1, 2]",
        '{"event": "valid", "step": 10, "loss": null, "scores": {}}',
        '{"event": "valid", "step": 10, "averaged": [5, 10], "loss": 1.5}',
    ]
    write(tmp_path, "metrics.jsonl", "\n".join(lines).encode() + b'\n\xff{}\n{"event": "train", "st')
    run = read_history(tmp_path)
    assert [event["loss"] for event in run.trained] == [2.0]
    assert [math.isnan(number(event, "loss")) for event in run.validated] == [True]
    assert [event["averaged"] for event in run.averaged] == [[5, 10]]
    assert run.unreadable == 4  # not the last, which is being written


@pytest.mark.parametrize("content", ["", "{", "[]", b"\xff"])
def test_a_damaged_record_and_damaged_scores_are_as_good_as_none(tmp_path: Path, content: str | bytes) -> None:
    for name in ("run.json", "test/scores.json", "config.yaml"):
        write(tmp_path, name, content)
    run = read_history(tmp_path)
    assert (run.record, run.scores, run.config) == ({}, {}, None)


def test_scores_are_those_that_are_numbers() -> None:
    found = {"BLEU": {"score": 20.5, "signature": "x"}, "chrF2": {"score": None}, "TER": 3}
    assert scores_of(found) == {"BLEU": 20.5}
    assert scores_of(None) == scores_of({}) == {}


def test_samples_come_by_step_and_broken_lines_are_left_out(tmp_path: Path) -> None:
    write(tmp_path, "samples/step-00000020.tsv", "a\tb\tc\nhalf\tli")
    write(tmp_path, "samples/step-00000010.tsv", "a\u2028x\tb\t\n")
    write(tmp_path, "samples/step-x.tsv", "")
    (tmp_path / "samples/step-00000030.tsv").write_bytes(b"a\rx\tb\tc\r\n")  # a CR ends no line
    run = read_history(tmp_path)
    assert list(run.sample_files) == [10, 20, 30]
    assert run.samples(20) == [Sample("a", "b", "c")]
    assert run.samples(10) == [Sample("a\u2028x", "b", "")]
    assert run.samples(30) == [Sample("a\rx", "b", "c\r")]


def test_translations_of_a_set_are_its_lines(tmp_path: Path) -> None:
    write(tmp_path, "test/news.hyp", "one\n\ntwo\u0085 and\n")
    assert read_history(tmp_path).hypotheses("news") == ["one", "", "two\u0085 and"]


def test_what_run_json_tells_of_the_text_is_known(tmp_path: Path) -> None:
    write(tmp_path, "run.json", json.dumps({"text": {"sets": {"valid": 3}}}))
    assert read_history(tmp_path).text == {"sets": {"valid": 3}}
