"""The measurement of preparation: its memory is what was held, and the script prints its table."""

import importlib
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

SCRIPTS = Path(__file__).parents[1] / "scripts"
sys.path.append(str(SCRIPTS))
bench = importlib.import_module("bench_data")


@pytest.mark.skipif(sys.platform != "linux", reason="read from /proc")
def test_memory_is_the_most_that_was_held_for_a_while() -> None:
    with bench.Memory() as before:
        time.sleep(0.1)
    with bench.Memory() as during:
        held = np.ones(150_000_000)  # 1.2 GB: more than the C library may have kept of what others freed
        time.sleep(0.1)
        del held
    assert 1.15e9 < during.most - before.most < 1.25e9


def test_the_text_has_as_many_lines_as_asked_for_and_repeats_after_the_distinct_ones(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(bench, "BLOCK", 20)
    monkeypatch.setattr(bench, "DISTINCT", 60)
    bench.write(tmp_path, 130)
    source, target = ((tmp_path / f"train.{side}").read_text().splitlines() for side in ("src", "tgt"))
    assert len(source) == len(target) == 130
    assert len(set(source)) > 50
    assert source[60:80] == source[40:60] != source[20:40]
    assert source != target


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="read from /proc")
def test_the_script_prints_one_table() -> None:
    command = [sys.executable, str(SCRIPTS / "bench_data.py"), "--pairs", "200", "300"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["pairs", "200", "300"]
    assert [line[:20].strip() for line in lines if line.startswith("second")] == ["second start, s"]
    assert len({len(line) for line in lines}) == 1
