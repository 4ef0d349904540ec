"""A model exported to CTranslate2 translates as it does here, in every form that a model of ours can have.

The models have learnt nothing; so that they end, and never find padding or the start symbol likely, as none does that
has learnt, these have logits far below all others.
"""

import itertools
import logging
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from untrained import LINES, translator

from transformer_cli import checkpoint
from transformer_cli.config.schema import DecodingConfig
from transformer_cli.data.tokenizer import BOS, PAD
from transformer_cli.decoding.sampling import Sampling
from transformer_cli.decoding.translator import Translation, Translator
from transformer_cli.errors import ConfigError, UserError
from transformer_cli.export import ctranslate2 as module
from transformer_cli.export.ctranslate2 import beside, export
from transformer_cli.export.engine import CTranslate2Translator
from transformer_cli.export.proof import export_with_proof

pytest.importorskip("ctranslate2")

MORE_LINES = [*LINES, "", "mu na pe", "je ki", "ta su ro qi pe na mu lo ki", "ce ce"]
SEARCHES = {
    "greedy": DecodingConfig(beam_size=1, max_length_a=1.0, max_length_b=5),
    "wu": DecodingConfig(beam_size=4, max_length_a=1.0, max_length_b=5),
    "avg": DecodingConfig(beam_size=4, length_penalty=1.0, length_penalty_type="avg", max_length_a=1.0, max_length_b=5),
    "none": DecodingConfig(beam_size=3, length_penalty_type="none", max_length_a=1.0, max_length_b=5),
}


def model(sections: dict[str, Any] | None = None, seed: int = 5) -> Translator:
    made = translator(sections)
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in made.model.parameters():
            parameter.add_(0.3 * parameter.abs().mean() * torch.randn_like(parameter))
        last = made.model.decoder.norm if made.config.model.norm == "pre" else None
        last = last or made.model.decoder.layers[-1].feed_forward_norm
        last.bias[0] += 20.0
        made.model.output.weight.mul_(2.0)
        made.model.output.weight[:, 0] = 0.0
        made.model.output.weight[[PAD, BOS], 0] = -1.0
    made.model.eval()
    return made


def exported(own: Translator, folder: Path) -> CTranslate2Translator:
    export(own, folder / "exported", None)
    return CTranslate2Translator(own, folder / "exported")


def assert_equal(ours: list[list[Translation]], theirs: list[list[Translation]]) -> None:
    """The same, unless our own score of the two is as good as equal."""
    for mine, other in zip(ours, theirs, strict=True):
        assert [one.score for one in mine] == pytest.approx([one.score for one in other], abs=1e-4)
        for one, two in zip(mine, other, strict=True):
            assert one.ids == two.ids or abs(one.score - two.score) < 1e-5
            assert one.source_ids == two.source_ids
            if one.ids == two.ids:
                assert (one.text, one.n, one.truncated) == (two.text, two.n, two.truncated)
                assert one.log_prob == pytest.approx(two.log_prob, abs=1e-4)


FORMS = [
    {"norm": norm, "activation": activation, "tie_embeddings": tie, "positions": positions, "shared": shared}
    for norm, activation, tie, positions, shared in itertools.product(
        ("post", "pre"), ("relu", "gelu", "swish"), ("all", "target", "none"), ("sinusoidal", "learned"), (True, False)
    )
    if tie != "all" or shared
]


@pytest.mark.parametrize("form", FORMS, ids=lambda form: "-".join(map(str, form.values())))
def test_every_form_of_a_model_translates_the_same(tmp_path: Path, form: dict[str, Any]) -> None:
    shared = form["shared"]
    layers = {"encoder_layers": 1, "decoder_layers": 1, "max_positions": 80}
    own = model(
        {
            "model": {**layers, **{key: value for key, value in form.items() if key != "shared"}},
            "tokenizer": {"shared": shared, "vocab_size": 50 if shared else 40},
            "data": {"max_length": 79},
        }
    )
    engine = exported(own, tmp_path)
    for decoding in SEARCHES.values():
        assert_equal(list(own.translate(MORE_LINES, decoding)), list(engine.translate(MORE_LINES, decoding)))


@pytest.fixture(scope="module")
def own() -> Translator:
    return model()


@pytest.fixture(scope="module")
def engine(own: Translator, tmp_path_factory: pytest.TempPathFactory) -> CTranslate2Translator:
    return exported(own, tmp_path_factory.mktemp("engine"))


@pytest.mark.parametrize("seed", [0, 1, 3, 4, 5])
def test_many_ends_of_many_lengths_are_ranked_the_same(tmp_path: Path, seed: int) -> None:
    own = model({"model": {"tie_embeddings": "none"}}, seed)
    with torch.no_grad():
        own.model.output.weight[3, 0] += 0.2  # the end symbol
    engine = exported(own, tmp_path)
    decoding = DecodingConfig(beam_size=5, max_length_a=2.0, max_length_b=10)
    ended = 0
    for kind in ("wu", "avg", "none"):
        chosen = decoding.model_copy(update={"length_penalty_type": kind, "length_penalty": 1.2})
        ours, theirs = list(own.translate(MORE_LINES, chosen)), list(engine.translate(MORE_LINES, chosen))
        assert_equal(ours, theirs)
        ended += sum(not best.truncated for (best,) in ours)
    assert ended > len(MORE_LINES)


@pytest.mark.parametrize("batch_size", [1, 3, 64])
def test_a_line_with_its_own_limit_depends_on_no_neighbour(
    own: Translator, engine: CTranslate2Translator, batch_size: int
) -> None:
    alone = [next(engine.translate([line], SEARCHES["wu"])) for line in MORE_LINES]
    assert_equal(alone, list(engine.translate(MORE_LINES, SEARCHES["wu"], batch_size)))


@pytest.mark.parametrize("seed", [0, 1, 3, 5])
def test_n_best_lists_are_the_same_where_all_have_ended(tmp_path: Path, seed: int) -> None:
    own = model({"model": {"tie_embeddings": "none"}}, seed)
    with torch.no_grad():
        own.model.output.weight[3, 0] += 0.22
    engine = exported(own, tmp_path)
    # So large an alpha puts those that ended last before the first.
    decoding = DecodingConfig(beam_size=4, n_best=4, length_penalty=3.0, max_length_a=3.0, max_length_b=60)
    compared = 0
    for ours, theirs in zip(own.translate(MORE_LINES, decoding), engine.translate(MORE_LINES, decoding), strict=True):
        assert len(ours) == len(theirs)
        if not any(one.truncated for one in ours):
            assert_equal([ours], [theirs])
            compared += 1
    assert compared >= 3


def test_a_repetition_penalty_means_the_same(own: Translator, engine: CTranslate2Translator) -> None:
    for penalty in (1.2, 2.0):
        for name in ("greedy", "wu"):
            decoding = SEARCHES[name].model_copy(update={"repetition_penalty": penalty})
            ours = list(own.translate(MORE_LINES, decoding))
            assert ours != list(own.translate(MORE_LINES, SEARCHES[name]))
            assert_equal(ours, list(engine.translate(MORE_LINES, decoding)))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"min_length": 3}, "--min-length 3 gives other scores with --engine ctranslate2"),
        ({"no_repeat_ngram_size": 2}, "--no-repeat-ngram-size 2 gives other scores with --engine ctranslate2"),
    ],
)
def test_what_the_engine_forbids_in_another_way_is_refused(
    engine: CTranslate2Translator, settings: dict[str, int], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        list(engine.translate(LINES, SEARCHES["wu"].model_copy(update=settings)))


def test_samples_and_prefixes_are_refused(engine: CTranslate2Translator) -> None:
    for settings in ({"sampling": Sampling(1.0, 0, 1.0, 1)}, {"prefixes": ["BA"] * len(LINES)}):
        with pytest.raises(ConfigError, match="neither samples nor takes prefixes"):
            list(engine.translate(LINES, **settings))  # type: ignore[arg-type]


def test_padding_and_the_start_symbol_are_never_emitted_though_they_are_the_likeliest(tmp_path: Path) -> None:
    own = model()
    with torch.no_grad():
        own.model.output.weight[[PAD, BOS], 0] = 0.1
    engine = exported(own, tmp_path)
    for decoding in SEARCHES.values():
        found = [best for (best,) in engine.translate(MORE_LINES, decoding)]
        assert not {PAD, BOS} & {i for best in found for i in best.ids}
        assert [bool(best.n) for best in found] == [bool(line) for line in MORE_LINES]
    greedy = SEARCHES["greedy"]
    assert [b.ids for (b,) in engine.translate(LINES, greedy)] == [b.ids for (b,) in own.translate(LINES, greedy)]


def test_a_line_beyond_the_exported_positions_is_translated_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_POSITIONS", 12)
    own = model()
    engine = exported(own, tmp_path)
    assert len(list(engine.translate(["", "bababababa"], SEARCHES["wu"]))) == 2
    _, (found,) = engine.translate(["", "bababababab"], SEARCHES["wu"])
    assert [len(part.source_ids) for part in found.parts] == [11, 1]
    assert len(found.source_ids) == 12
    # A translation ends where the positions do.
    (best,) = next(engine.translate(["ba"], DecodingConfig(beam_size=1, max_length_b=100)))
    assert best.n <= 12


# Folders


def test_an_export_is_a_folder_with_model_tokenizers_and_what_to_do_with_them(own: Translator, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    export(own, tmp_path / "empty", None)
    names = {path.name for path in (tmp_path / "empty").iterdir()}
    assert {"model.bin", "config.json", "shared.model", "README.md"} <= names
    assert (tmp_path / "empty" / "shared.model").read_bytes() == own.tokenizers.source.proto
    assert [path.name for path in tmp_path.iterdir()] == ["empty"]


@pytest.mark.parametrize("kind", ["wu", "avg", "none"])
def test_the_example_in_the_folder_runs_and_names_the_length_penalty(tmp_path: Path, kind: str) -> None:
    sides = {"tokenizer": {"shared": False, "vocab_size": 40}, "model": {"tie_embeddings": "target"}}
    own = model({**sides, "decoding": {"length_penalty_type": kind, "length_penalty": 0.7}})
    export(own, tmp_path / "out", None)
    readme = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert {"wu": "(5 + n) / 6) ** 0.7", "avg": "`length_penalty=0.7`", "none": "`length_penalty=0`"}[kind] in readme
    (code,) = re.findall(r"```python\n(.*?)```", readme, re.S)
    done = subprocess.run(
        [sys.executable, "-c", code.replace("…", "ba ce di")], cwd=tmp_path / "out", capture_output=True, check=True
    )
    assert done.stdout.strip()


def test_a_folder_that_is_not_empty_and_a_file_are_refused(own: Translator, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "theirs").touch()
    (tmp_path / "file").touch()
    for name in ("full", "file"):
        with pytest.raises(ConfigError, match=f"{name} is not empty: name a new folder, or remove it first"):
            export(own, tmp_path / name, None)
        with pytest.raises(ConfigError, match="is not empty"):
            next(export_with_proof(own, tmp_path / name, None, LINES))
    assert (tmp_path / "full" / "theirs").exists()


def test_an_export_that_fails_leaves_nothing(own: Translator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full_disk(translator: Translator, quantization: str | None) -> str:
        raise OSError("No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(module, "_readme", full_disk)
        with pytest.raises(OSError, match="No space left"):
            export(own, tmp_path / "out", None)
    assert list(tmp_path.iterdir()) == []
    export(own, tmp_path / "out", None)
    CTranslate2Translator(own, tmp_path / "out")


def test_an_export_is_proven_greedily_and_with_the_beam(own: Translator, tmp_path: Path) -> None:
    said = list(export_with_proof(own, tmp_path / "out", None, MORE_LINES))
    assert said == [f"beam {beam}: 11 of 11 lines the same, 0 ties" for beam in (1, 4)]
    assert (tmp_path / "out" / "model.bin").is_file()
    said = list(export_with_proof(own, tmp_path / "int8", "int8", MORE_LINES))
    same = re.fullmatch(r"in int8: (\d+) of 11 lines the same, greedily", said[-1])
    assert same
    assert int(same[1]) > 5
    assert (tmp_path / "int8" / "model.bin").stat().st_size < (tmp_path / "out" / "model.bin").stat().st_size


@pytest.mark.parametrize("quantization", ["int8", "int16", "float16"])
def test_quantizing_the_export_leaves_the_model_as_it_is(tmp_path: Path, quantization: str) -> None:
    own = model()
    before = {name: parameter.detach().clone() for name, parameter in own.model.named_parameters()}
    export(own, tmp_path / "out", quantization)
    assert all(torch.equal(before[name], parameter) for name, parameter in own.model.named_parameters())


def test_what_a_run_forbids_does_not_keep_it_from_being_proven(tmp_path: Path) -> None:
    own = model({"decoding": {"min_length": 3, "no_repeat_ngram_size": 2, "beam_size": 1}})
    assert len(list(export_with_proof(own, tmp_path / "out", None, MORE_LINES))) == 2


def test_a_format_that_this_machine_does_not_compute_in_is_written_and_said(
    own: Translator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module.module(), "get_supported_compute_types", lambda device: {"float32"})
    *_, said = export_with_proof(own, tmp_path / "out", "float16", LINES)
    assert said == "in float16: not compared, for this processor does not compute in it"
    assert (tmp_path / "out" / "model.bin").is_file()


def test_a_broken_export_fails_the_proof_and_leaves_no_folder(
    own: Translator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    whole = module._linear

    def without_bias(theirs: Any, ours: torch.nn.Linear) -> None:
        whole(theirs, ours)
        theirs.weight = np.ascontiguousarray(theirs.weight[::-1])

    monkeypatch.setattr(module, "_linear", without_bias)
    with pytest.raises(UserError, match=r"translates some lines differently \(above\), so nothing is exported"):
        list(export_with_proof(own, tmp_path / "out", None, MORE_LINES))
    said = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert said
    assert all(re.match(r"DIFFERENT: .*\n  torch +-\d+\.\d+  .*\n  ctranslate2 +-\d", one) for one in said)
    assert list(tmp_path.iterdir()) == []


def test_a_compute_type_that_there_is_not_is_told(
    own: Translator, engine: CTranslate2Translator, tmp_path: Path
) -> None:
    export(own, tmp_path / "out", None)
    with pytest.raises(ConfigError, match=r"CTranslate2 cannot use .*out in float99"):
        CTranslate2Translator(own, tmp_path / "out", "float99")


def test_a_run_is_exported_beside_its_model_once_and_again_when_the_model_changes(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    first, second = model(), model(seed=6)
    checkpoint.write(file, first.as_file({}))
    folder = beside(first, tmp_path)
    assert folder == tmp_path / "ctranslate2"
    made = (folder / "model.bin").stat().st_mtime_ns
    assert beside(first, file) == folder
    assert (folder / "model.bin").stat().st_mtime_ns == made
    checkpoint.write(file, second.as_file({}))
    engine = CTranslate2Translator(second, beside(second, tmp_path))
    assert_equal(list(engine.translate(MORE_LINES, SEARCHES["wu"])), list(second.translate(MORE_LINES, SEARCHES["wu"])))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ctranslate2", "model.safetensors"]


def test_what_a_killed_export_left_beside_a_model_does_no_harm_and_is_removed_an_hour_later(tmp_path: Path) -> None:
    own = model()
    checkpoint.write(tmp_path / "model.safetensors", own.as_file({}))
    begun = ".ctranslate2.transformer-cli-"
    (tmp_path / f"{begun}nowhere").symlink_to("nowhere")
    for name, age in ((f"{begun}killed", 3700), (f"{begun}at-work", 3500), (".ctranslate2-notes", 9000)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.bin").write_bytes(b"half")
        os.utime(tmp_path / name, (time.time() - age,) * 2)
    CTranslate2Translator(own, beside(own, tmp_path))
    found = sorted(path.name for path in tmp_path.iterdir())
    assert found == [".ctranslate2-notes", f"{begun}at-work", f"{begun}nowhere", "ctranslate2", "model.safetensors"]


def test_two_programs_that_export_a_run_at_once_both_have_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = model()
    checkpoint.write(tmp_path / "model.safetensors", own.as_file({}))
    made, inner = module._made, []

    def slower(*arguments: Any) -> Path:
        if not inner:  # while the first is at it the second begins and ends
            inner.append(True)
            inner.append(CTranslate2Translator(own, beside(own, tmp_path)))
        return made(*arguments)

    monkeypatch.setattr(module, "_made", slower)
    first = CTranslate2Translator(own, beside(own, tmp_path))
    expected = list(own.translate(LINES, SEARCHES["wu"]))
    for engine in (first, inner[1]):
        assert_equal(list(engine.translate(LINES, SEARCHES["wu"])), expected)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ctranslate2", "model.safetensors"]


@pytest.mark.parametrize("name", SEARCHES)
def test_the_log_probabilities_of_pieces_are_those_of_our_search(own: Translator, tmp_path: Path, name: str) -> None:
    export(own, tmp_path / "out", None)
    engine = CTranslate2Translator(own, tmp_path / "out", token_log_probs=True)
    compared = 0
    for (ours, *_), (theirs, *_) in zip(
        own.translate(MORE_LINES, SEARCHES[name]), engine.translate(MORE_LINES, SEARCHES[name]), strict=True
    ):
        assert sum(theirs.token_log_probs) == pytest.approx(theirs.log_prob, abs=1e-3)
        assert len(theirs.token_log_probs) == theirs.n
        if ours.ids == theirs.ids:
            assert theirs.token_log_probs == pytest.approx(ours.token_log_probs, abs=1e-4)
            compared += 1
    assert compared >= len(MORE_LINES) - 1


def test_a_folder_of_somebody_elses_beside_a_model_is_left_alone(tmp_path: Path) -> None:
    own = model()
    checkpoint.write(tmp_path / "model.safetensors", own.as_file({}))
    (tmp_path / "ctranslate2").mkdir()
    (tmp_path / "ctranslate2" / "theirs").touch()
    with pytest.raises(ConfigError, match=r"ctranslate2 was not made by --engine ctranslate2.*rename it"):
        beside(own, tmp_path)
    assert (tmp_path / "ctranslate2" / "theirs").exists()


def test_without_the_package_one_line_says_what_to_install(own: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    with pytest.raises(ConfigError, match=r"^CTranslate2 is not installed: pip install ctranslate2$"):
        export(own, Path("nowhere"), None)
