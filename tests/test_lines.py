"""Each format of the lines that `translate` writes is exactly as documented, and long lines are named."""

import json
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from transformer_cli.decoding.lines import LongLines, json_lines, text_lines
from transformer_cli.decoding.translator import Translation

BEST = Translation(
    text="Œuvre 你好",
    log_prob=-1.25,
    score=-1.0,
    n=4,
    truncated=False,
    ids=(4, 6, 5),
    token_log_probs=(-0.5, -0.25, -0.375, -0.125),
    source_ids=(5, 4),
)
SECOND = Translation(text="", log_prob=-12.34567, score=-9.87654, n=1, truncated=True)


@pytest.mark.parametrize(
    ("numbered", "scores", "expected"),
    [
        (False, False, ["Œuvre 你好", ""]),
        (False, True, ["Œuvre 你好 ||| -1.0000 ||| -1.2500 ||| 4", " ||| -9.8765 ||| -12.3457 ||| 1"]),
        (True, False, ["7 ||| Œuvre 你好 ||| -1.0000", "7 |||  ||| -9.8765"]),
        (True, True, ["7 ||| Œuvre 你好 ||| -1.0000 ||| -1.2500 ||| 4", "7 |||  ||| -9.8765 ||| -12.3457 ||| 1"]),
    ],
)
def test_the_formats_of_plain_text(numbered: bool, scores: bool, expected: list[str]) -> None:
    assert list(text_lines(7, [BEST, SECOND], numbered, scores)) == expected


class Pieces:
    """Ids 4, 5 and 6 as text."""

    @staticmethod
    def pieces(ids: Sequence[int]) -> list[str]:
        return [("▁Œu", "vre", "▁你好")[i - 4] for i in ids]


TOKENIZERS: Any = SimpleNamespace(source=Pieces, target=Pieces)


def test_json_has_one_object_a_translation_unrounded_and_readable() -> None:
    first, second = json_lines(7, [BEST, SECOND], TOKENIZERS)
    assert first == (
        '{"index": 7, "text": "Œuvre 你好", "score": -1.0, "log_prob": -1.25, "n": 4, "truncated": false, '
        '"pieces": ["▁Œu", "▁你好", "vre"], "token_log_probs": [-0.5, -0.25, -0.375, -0.125]}'
    )
    assert json.loads(second) == {
        "index": 7,
        "text": "",
        "score": -9.87654,
        "log_prob": -12.34567,
        "n": 1,
        "truncated": True,
        "pieces": [],
        "token_log_probs": [],
    }


def test_alignments_stand_in_the_form_of_pharaoh_beside_the_pieces_of_the_source() -> None:
    first, second = map(json.loads, json_lines(7, [BEST, SECOND], TOKENIZERS, [[(1, 0), (0, 1), (0, 2)], []]))
    assert list(first)[-3:] == ["token_log_probs", "source_pieces", "alignment"]
    assert (first["source_pieces"], first["alignment"]) == (["vre", "▁Œu"], "1-0 0-1 0-2")
    assert (second["source_pieces"], second["alignment"]) == ([], "")


def test_ten_long_lines_are_named_and_the_rest_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    long = LongLines(longest=5)
    for number in range(1, 25):
        long.note(number, 5 + number % 2)
    long.tell()
    assert len(caplog.messages) == 11
    assert caplog.messages[0].startswith("line 1 has 6 pieces, more than any line in training (at most 5)")
    assert [message.split()[1] for message in caplog.messages[:10]] == [str(n) for n in range(1, 20, 2)]
    assert caplog.messages[10] == "12 lines were longer than any in training"


def test_where_no_more_than_ten_lines_are_long_no_count_is_told(caplog: pytest.LogCaptureFixture) -> None:
    long = LongLines(longest=5)
    long.note(3, 5)
    long.note(4, 6)
    long.tell()
    assert len(caplog.messages) == 1
