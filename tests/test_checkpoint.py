"""A model file gives back what was put in or says what is wrong; a failed save costs nothing that was saved before."""

import ast
import errno
import json
import os
import pickle
import random
import resource
import shutil
import stat
import subprocess
import sys
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import transformer_cli
from transformer_cli import checkpoint
from transformer_cli.checkpoint import (
    FORMAT_VERSION,
    METADATA_KEY,
    ModelFile,
    average_weights,
    read,
    write,
)
from transformer_cli.config.schema import Config
from transformer_cli.errors import CheckpointError
from transformer_cli.run_files import checkpoint_path, list_checkpoints, locate

PACKAGE = Path(transformer_cli.__file__).parent

SECTIONS: dict[str, Any] = {
    "name": "tiny",
    "tokenizer": {"vocab_size": 700},
    "training": {"learning_rate": 5e-4, "lr_schedule": "cosine", "adam_betas": [0.9, 0.999], "max_hours": 1},
    "evaluation": {"metrics": ["chrf", "bleu"]},
}
CORPUS = {"source": "/home/somebody/secret.en", "target": "/home/somebody/secret.de"}


def model_file() -> ModelFile:
    """A checkpoint with one of everything, always the same."""
    generator = torch.Generator().manual_seed(1)
    return ModelFile(
        config=Config.model_validate(SECTIONS),
        tokenizers={"shared": bytes(range(256))},
        weights={
            "embedding.weight": torch.randn(3, 2, generator=generator),
            "half": torch.randn(3, generator=generator).half(),
            "brain": torch.randn(3, generator=generator).bfloat16(),
            "scalar": torch.tensor(1.5),
        },
        origin={"kind": "best", "step": 250, "scores": {"bleu": 31.25}},
        training={"step": 250, "best": [250, 31.25], "bad": 0, "note": "Größe 大"},
        optimizer={"embedding.weight.exp_avg": torch.randn(3, 2, generator=generator), "step": torch.tensor(250)},
        longest_source=57,
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.safetensors"


@pytest.fixture
def saved(path: Path) -> Path:
    write(path, model_file())
    return path


def same_tensors(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(
        one[name].dtype == other[name].dtype and torch.equal(one[name], other[name]) for name in one
    )


def same_content(one: ModelFile, other: ModelFile) -> bool:
    return (
        (one.config, one.tokenizers, one.origin, one.training, one.longest_source)
        == (other.config, other.tokenizers, other.origin, other.training, other.longest_source)
        and same_tensors(one.weights, other.weights)
        and same_tensors(one.optimizer, other.optimizer)
    )


def header_of(path: Path) -> dict[str, Any]:
    with safe_open(path, framework="pt") as file:
        header: dict[str, Any] = json.loads(file.metadata()[METADATA_KEY])
    return header


def forge(path: Path, header: Any) -> None:
    """Another header for the tensors at `path`; where it is a mapping with a checksum, that one fits."""
    tensors = load_file(path)
    if isinstance(header, dict) and "checksum" in header:
        rest = {key: value for key, value in header.items() if key != "checksum"}
        header = {**header, "checksum": checkpoint._checksum(rest, tensors)}
    save_file(tensors, path, {METADATA_KEY: header if isinstance(header, str) else json.dumps(header)})


def refusal(path: Path) -> str:
    """What is said of a file when it is refused; the message names it."""
    with pytest.raises(CheckpointError) as caught:
        read(path)
    assert str(path) in str(caught.value)
    return str(caught.value).replace(str(path), "FILE")


# ---------------------------------------------------------------------------------------------- round trip


def test_what_is_written_is_read(saved: Path) -> None:
    found, expected = read(saved), model_file()
    assert same_tensors(found.weights, expected.weights)
    assert same_tensors(found.optimizer, expected.optimizer)
    assert found.tokenizers == expected.tokenizers
    assert found.config == expected.config
    assert (found.origin, found.training) == (expected.origin, expected.training)


def test_a_model_for_use_has_no_optimizer_and_two_tokenizers_keep_their_sides(path: Path) -> None:
    write(path, replace(model_file(), optimizer={}, training={}, tokenizers={"source": b"abc", "target": b"\0\xff"}))
    found = read(path)
    assert (found.optimizer, found.training) == ({}, {})
    assert found.tokenizers == {"source": b"abc", "target": b"\0\xff"}


def test_a_file_without_a_tokenizer_of_each_side_is_damaged(path: Path) -> None:
    for tokenizers in ({}, {"source": b"abc"}, {"source": b"abc", "other": b"abc"}):
        write(path, replace(model_file(), tokenizers=tokenizers))
        with pytest.raises(CheckpointError, match=r"model\.safetensors holds no tokenizers"):
            read(path)


def test_a_file_holds_no_paths_of_the_machine_it_was_made_on(path: Path) -> None:
    data = {"source_lang": "en", "train": [CORPUS], "valid": [CORPUS], "test": {"news": [CORPUS]}}
    write(path, replace(model_file(), config=Config.model_validate(SECTIONS | {"data": data})))
    assert b"secret" not in path.read_bytes()
    assert read(path).config == Config.model_validate(SECTIONS | {"data": {"source_lang": "en"}})


def test_a_file_does_not_tell_what_its_training_started_from(path: Path) -> None:
    sections = SECTIONS | {"training": SECTIONS["training"] | {"init_from": "/home/somebody/secret.safetensors"}}
    write(path, replace(model_file(), config=Config.model_validate(sections)))
    assert b"secret" not in path.read_bytes()
    assert "init_from" not in header_of(path)["config"]["training"]
    assert read(path).config == Config.model_validate(SECTIONS)


def test_a_training_record_that_json_changes_on_its_way_can_be_read(path: Path) -> None:
    """Numbers as keys become texts, which sort otherwise: the checksum must not mind."""
    write(path, replace(model_file(), training={"kept": {9: 1, 10: (2, 3)}, "best": float("-inf")}))
    assert read(path).training == {"kept": {"9": 1, "10": [2, 3]}, "best": float("-inf")}


def test_a_tied_weight_is_stored_once(path: Path) -> None:
    embedding, output = nn.Embedding(5, 3), nn.Linear(3, 5, bias=False)
    output.weight = embedding.weight
    model = nn.ModuleDict({"embedding": embedding, "output": output})
    write(path, replace(model_file(), weights=dict(model.named_parameters()), optimizer={}))
    assert [name for name in load_file(path) if name.startswith("model.")] == ["model.embedding.weight"]
    assert torch.equal(read(path).weights["embedding.weight"], output.weight)


def test_weights_that_do_not_lie_in_order_in_memory_are_written_in_order(path: Path) -> None:
    weight = torch.arange(6.0).view(2, 3).t()
    write(path, replace(model_file(), weights={"w": weight}))
    assert torch.equal(read(path).weights["w"], weight)


def test_the_file_is_safetensors_with_one_json_under_one_key(saved: Path) -> None:
    with safe_open(saved, framework="pt") as file:
        assert list(file.metadata()) == ["transformer_cli"]
        assert set(file.keys()) >= {"model.scalar", "tokenizer.shared", "optimizer.step"}
    header = header_of(saved)
    assert header.keys() == {"format_version", "origin", "config", "training", "checksum", "longest_source"}
    assert header["format_version"] == FORMAT_VERSION == 1


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002])
def test_the_mode_of_a_file_is_what_the_umask_allows(path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        write(path, model_file())
        assert os.umask(umask) == umask, "write left another umask behind"
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~umask


def test_missing_folders_are_made_and_nothing_but_the_file_is_left(tmp_path: Path) -> None:
    path = tmp_path / "runs" / "one" / "model.safetensors"
    write(path, model_file())
    assert os.listdir(path.parent) == ["model.safetensors"]


WRITE_HERE = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from test_checkpoint import model_file, write
write(Path(sys.argv[2]), model_file())
"""


def test_the_same_content_gives_the_same_bytes_in_every_process(saved: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.safetensors"
    write(again, model_file())
    assert again.read_bytes() == saved.read_bytes()
    for seed in ("1", "2"):
        again.unlink()
        subprocess.run(
            [sys.executable, "-c", WRITE_HERE, str(Path(__file__).parent), str(again)],
            env=os.environ | {"PYTHONHASHSEED": seed},
            check=True,
        )
        assert again.read_bytes() == saved.read_bytes()


# ---------------------------------------------------------------------------------------------- damage


def test_a_changed_byte_in_the_tensors_is_always_noticed(saved: Path) -> None:
    content = saved.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    chance = random.Random(1)
    for position in range(start, len(content)):
        damaged = bytearray(content)
        damaged[position] ^= chance.randrange(1, 256)
        saved.write_bytes(damaged)
        assert "damaged" in refusal(saved)


def test_a_changed_byte_in_the_header_is_noticed_or_means_the_same(saved: Path) -> None:
    """1e-09 and 1E-09 are one number; nothing else may pass, and nothing may break the reader."""
    content = saved.read_bytes()
    header = 8 + int.from_bytes(content[:8], "little")
    chance = random.Random(2)
    passed = 0
    for position in [*range(40), *chance.sample(range(40, header), 300)]:
        damaged = bytearray(content)
        damaged[position] ^= chance.choice([1 << chance.randrange(8), chance.randrange(1, 256)])
        saved.write_bytes(damaged)
        try:
            found = read(saved)
        except CheckpointError:
            continue
        assert same_content(found, model_file()), f"byte {position} was changed, and nobody noticed"
        passed += 1
    assert passed < 5


@pytest.mark.parametrize("kept", [1, 7, 8, 100, 0.5, -1])
def test_a_file_cut_short_is_refused(saved: Path, kept: float) -> None:
    content = saved.read_bytes()
    saved.write_bytes(content[: int(kept * len(content)) if isinstance(kept, float) else kept])
    assert "cut short" in refusal(saved)


def test_a_lengthened_file_is_refused(saved: Path) -> None:
    saved.write_bytes(saved.read_bytes() + b"\0")
    assert "damaged" in refusal(saved)


def test_an_empty_file_is_refused(path: Path) -> None:
    path.write_bytes(b"")
    assert "is empty" in refusal(path)


def test_a_missing_file_is_refused(path: Path) -> None:
    assert "does not exist" in refusal(path)


def test_a_folder_is_refused_and_not_said_to_be_missing(tmp_path: Path) -> None:
    assert "FILE is a folder" in refusal(tmp_path)


def test_a_text_file_is_refused(path: Path) -> None:
    path.write_text("name: a configuration\n" * 20)
    assert "is not a safetensors file" in refusal(path)


def test_a_zip_archive_is_refused(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("data.pkl", "x")
    assert "pickle" in refusal(path)


class Evil:
    """Makes a folder when it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return os.mkdir, (str(self.folder),)


@pytest.mark.parametrize("kind", ["torch", "torch legacy", "pickle", "inside a checkpoint"])
def test_a_pickle_is_refused_and_not_run(tmp_path: Path, kind: str) -> None:
    path, pwned = tmp_path / "evil.pt", tmp_path / "PWNED"
    content: dict[str, Any] = {"model": Evil(pwned)}
    if kind == "inside a checkpoint":
        content = {"weights": dict(model_file().weights), "extra": Evil(pwned)}
    if kind == "pickle":
        path.write_bytes(pickle.dumps(content))
    else:
        torch.save(content, path, _use_new_zipfile_serialization=kind != "torch legacy")
    assert "not a safe model file" in refusal(path)
    assert not pwned.exists()
    # The file would have worked.
    if kind != "pickle":
        torch.load(path, weights_only=False)
        assert pwned.exists()


@pytest.mark.parametrize("length", [0x280, 0x880, 0x4B50])
def test_a_damaged_model_file_is_never_called_a_pickle(path: Path, length: int) -> None:
    """The first bytes are the length of the header, and may look like the first bytes of a pickle or a zip archive."""
    text = json.dumps({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).ljust(length)
    content = length.to_bytes(8, "little") + text.encode()
    for kept in (len(content), 8, 1):
        path.write_bytes(content[:kept])
        assert "cut short or damaged" in refusal(path)


@pytest.mark.parametrize("metadata", [None, {}, {"format": "pt"}])
def test_a_safetensors_file_of_others_is_refused(path: Path, metadata: dict[str, str] | None) -> None:
    save_file({"w": torch.zeros(2)}, path, metadata)
    assert "not one that transformer_cli wrote" in refusal(path)


@pytest.mark.parametrize("checksum", ["crc32:00000000", "another:kind"])
def test_a_newer_format_is_refused_with_both_versions_and_whatever_its_checksum(saved: Path, checksum: str) -> None:
    header = header_of(saved) | {"format_version": 12, "checksum": checksum}
    save_file(load_file(saved), saved, {METADATA_KEY: json.dumps(header)})
    message = refusal(saved)
    assert "12" in message
    assert f"up to {FORMAT_VERSION}" in message
    assert "update transformer_cli" in message


@pytest.mark.parametrize("key", ["format_version", "origin", "config", "training", "checksum"])
def test_a_header_without_one_of_its_keys_is_refused(saved: Path, key: str) -> None:
    header = header_of(saved)
    del header[key]
    forge(saved, header)
    refusal(saved)


@pytest.mark.parametrize("value", [None, "1", [1], 1.5e300])
@pytest.mark.parametrize("key", ["format_version", "origin", "config", "training"])
def test_a_header_with_a_value_of_a_wrong_type_is_refused(saved: Path, key: str, value: Any) -> None:
    forge(saved, header_of(saved) | {key: value})
    refusal(saved)


@pytest.mark.parametrize("checksum", [None, 5, [], "crc32:00000000"])
def test_a_header_with_a_wrong_checksum_is_refused(saved: Path, checksum: Any) -> None:
    header = header_of(saved) | {"checksum": checksum}
    save_file(load_file(saved), saved, {METADATA_KEY: json.dumps(header)})
    assert "damaged" in refusal(saved)


@pytest.mark.parametrize("text", ["", "nonsense", "[]", "1", "null", '{"format_version": ', "[" * 100_000])
def test_a_header_that_is_no_json_object_is_refused(saved: Path, text: str) -> None:
    forge(saved, text)
    refusal(saved)


def test_a_configuration_that_this_version_does_not_know_is_refused_by_its_key(saved: Path) -> None:
    header = header_of(saved)
    header["config"]["model"]["num_experts"] = 4
    forge(saved, header)
    assert "num_experts" in refusal(saved)


# ---------------------------------------------------------------------------------------------- failed saves


def no_space(*_: Any, **__: Any) -> NoReturn:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def half_a_file(tensors: Mapping[str, Tensor], path: Path, metadata: Mapping[str, str]) -> NoReturn:
    path.write_bytes(b"half")
    no_space()


@pytest.mark.parametrize(
    ("target", "name", "fault"),
    [
        (checkpoint, "save_file", half_a_file),
        (os, "fsync", no_space),
        (Path, "chmod", no_space),
        (Path, "replace", no_space),
    ],
)
def test_a_failed_save_leaves_the_former_file_and_no_other(
    saved: Path, monkeypatch: pytest.MonkeyPatch, target: Any, name: str, fault: Callable[..., NoReturn]
) -> None:
    monkeypatch.setattr(target, name, fault)
    with pytest.raises(CheckpointError, match="No space left") as caught:
        write(saved, replace(model_file(), training={"step": 500}))
    assert str(saved) in str(caught.value)
    monkeypatch.undo()
    assert same_content(read(saved), model_file())
    assert os.listdir(saved.parent) == [saved.name]


def test_a_file_size_limit_leaves_the_former_file_and_no_other(saved: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        with pytest.raises(CheckpointError, match="File too large"):
            write(saved, replace(model_file(), weights={"w": torch.zeros(100_000)}))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert same_content(read(saved), model_file())
    assert os.listdir(saved.parent) == [saved.name]


def disk_with(monkeypatch: pytest.MonkeyPatch, free: int) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free))


def test_a_disk_without_room_is_known_before_anything_is_written(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """4 MiB of weights and 256 bytes of a tokenizer, and 1 MiB in reserve."""
    big = replace(model_file(), weights={"w": torch.zeros(2**20)}, optimizer={})
    disk_with(monkeypatch, 5 * 2**20 + 255)
    with monkeypatch.context() as untouched:
        untouched.setattr(checkpoint, "save_file", half_a_file)
        with pytest.raises(CheckpointError) as caught:
            write(saved, big)
    assert str(caught.value) == (
        f"cannot write {saved}: it takes 4.0 MiB, and 5.0 MiB are free. What was saved before is intact; make room on "
        "the disk and go on, or choose another folder with --run-dir"
    )
    assert same_content(read(saved), model_file())
    assert os.listdir(saved.parent) == [saved.name]
    disk_with(monkeypatch, 5 * 2**20 + 256)
    write(saved, big)
    assert torch.equal(read(saved).weights["w"], torch.zeros(2**20))


def test_the_disk_asked_is_the_one_that_is_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "runs" / "new" / "model.safetensors"
    asked: list[Path] = []

    def disk_usage(folder: Path) -> SimpleNamespace:
        asked.append(folder)
        return SimpleNamespace(free=2**40)

    monkeypatch.setattr(shutil, "disk_usage", disk_usage)
    write(path, model_file())
    assert asked == [path.parent]


def test_a_save_into_what_is_no_folder_is_a_clean_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CheckpointError, match="cannot write"):
        write(tmp_path / "file" / "model.safetensors", model_file())


def test_an_interrupted_save_leaves_the_former_file_and_stays_an_interruption(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_: int) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write(saved, replace(model_file(), training={"step": 500}))
    monkeypatch.undo()
    assert same_content(read(saved), model_file())
    assert os.listdir(saved.parent) == [saved.name]


def test_the_file_is_on_disk_before_it_has_its_name_and_the_folder_after(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    fsync, rename = os.fsync, Path.replace

    def flush(descriptor: int) -> None:
        events.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        fsync(descriptor)

    def name_it(self: Path, target: Path) -> Path:
        events.append("rename")
        assert self.parent == target.parent
        return rename(self, target)

    monkeypatch.setattr(os, "fsync", flush)
    monkeypatch.setattr(Path, "replace", name_it)
    write(path, model_file())
    assert events == ["file", "rename", "folder"]


# One process imports torch; its children save step after step until they are killed.
KILL_WHILE_SAVING = """
import os, random, signal, sys, time
from itertools import count
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import torch
torch.set_num_threads(1)
from dataclasses import replace
from test_checkpoint import checkpoint_path, list_checkpoints, model_file, read, write

run = Path(sys.argv[2])
big = replace(model_file(), weights={"w": torch.ones(50_000)})

def in_a_child(act):
    pid = os.fork()
    if not pid:
        try:
            act()
        finally:
            os._exit(1)
    return pid

def save_on(first):
    for step in count(first):
        write(checkpoint_path(run, step), replace(big, training={"step": step}))

def die_before_the_rename():
    Path.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
    write(checkpoint_path(run, 1), replace(big, training={"step": 99}))

chance = random.Random(1)
for attempt in range(20):
    before = len(list_checkpoints(run))
    child = in_a_child(lambda: save_on(before + 1))
    while len(list_checkpoints(run)) == before:
        time.sleep(0.001)
    time.sleep(chance.uniform(0, 0.01))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    found = list_checkpoints(run)
    assert [step for step, _ in found] == list(range(1, len(found) + 1))
    for step, path in found[before:]:
        assert read(path).training == {"step": step}
_, status = os.waitpid(in_a_child(die_before_the_rename), 0)
assert os.WTERMSIG(status) == signal.SIGKILL
assert read(checkpoint_path(run, 1)).training == {"step": 1}
assert any(name.startswith(".") for name in os.listdir(run / "checkpoints"))
print("all whole")
"""


def test_every_file_under_a_final_name_is_whole_however_often_its_writer_is_killed(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", KILL_WHILE_SAVING, str(Path(__file__).parent), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == "all whole\n", done.stderr


# ---------------------------------------------------------------------------------------------- finding files


def test_checkpoints_are_listed_by_step_and_nothing_else_is(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    for step in (1000, 250, 123_456_789, 99_999_999):
        checkpoint_path(tmp_path, step).touch()
    for name in (
        ".step-00000500.safetensors.4711.tmp",
        ".tmpClgksY",
        "step-00000500.safetensors.bak",
        "step-500.safetensors",
        "xstep-00000500.safetensors",
        "step-latest.safetensors",
        "notes.txt",
    ):
        (folder / name).touch()
    assert list_checkpoints(tmp_path) == [
        (step, checkpoint_path(tmp_path, step)) for step in (250, 1000, 99_999_999, 123_456_789)
    ]
    assert checkpoint_path(tmp_path, 250) == folder / "step-00000250.safetensors"


def test_a_run_without_checkpoints_has_an_empty_list(tmp_path: Path) -> None:
    assert list_checkpoints(tmp_path) == []
    assert list_checkpoints(tmp_path / "missing") == []


def test_a_run_is_located_by_its_folder_or_by_the_file_itself(saved: Path) -> None:
    assert locate(saved) == saved
    assert locate(saved.parent) == saved


def test_what_is_not_there_is_named_with_what_was_expected(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError) as caught:
        locate(tmp_path / "rnus")
    assert "rnus does not exist" in str(caught.value)
    assert "run directory, a model file or a checkpoint" in str(caught.value)
    with pytest.raises(CheckpointError) as caught:
        locate(tmp_path)
    assert f"{tmp_path} holds no model.safetensors" in str(caught.value)


# ---------------------------------------------------------------------------------------------- averaging


def write_weights(path: Path, **weights: Tensor) -> Path:
    write(path, replace(model_file(), weights=weights))
    return path


def test_the_average_by_hand(tmp_path: Path) -> None:
    paths = [
        write_weights(
            tmp_path / f"{i}",
            single=torch.tensor([[1.0, 2.0], [i, -i]]),
            brain=torch.tensor([1.0, i], dtype=torch.bfloat16),
            half=torch.tensor(60000.0, dtype=torch.float16),  # the sum, 180,000, is beyond fp16
            small=torch.tensor([1.0, 2**-24, 2**-24][i]),  # and 1 + 2^-24 beyond fp32
        )
        for i in range(3)
    ]
    average = average_weights(paths)
    assert torch.equal(average["single"], torch.tensor([[1.0, 2.0], [1.0, -1.0]]))
    assert torch.equal(average["brain"], torch.tensor([1.0, 1.0], dtype=torch.bfloat16))
    assert average["half"] == 60000
    assert average["small"] == torch.tensor((1 + 2**-23) / 3)
    assert [average[name].dtype for name in ("single", "brain", "half")] == [
        torch.float32,
        torch.bfloat16,
        torch.float16,
    ]


def test_the_average_of_one_is_itself_and_the_files_stay_as_they_are(saved: Path) -> None:
    content = saved.read_bytes()
    assert same_tensors(average_weights([saved]), model_file().weights)
    assert same_tensors(average_weights([saved, saved, saved]), model_file().weights)
    assert saved.read_bytes() == content


@pytest.mark.parametrize(
    "other",
    [
        {"a": torch.zeros(2, 2)},
        {"a": torch.zeros(2, 2), "b": torch.zeros(2), "c": torch.zeros(2)},
        {"a": torch.zeros(2, 2), "c": torch.zeros(2)},
        {"a": torch.zeros(2, 2), "b": torch.zeros(3)},
        {"a": torch.zeros(1, 2), "b": torch.zeros(2)},  # would be broadcast
    ],
)
def test_files_of_different_models_are_not_averaged(tmp_path: Path, other: dict[str, Tensor]) -> None:
    one = write_weights(tmp_path / "one", a=torch.zeros(2, 2), b=torch.zeros(2))
    two = write_weights(tmp_path / "two", **other)
    for first, second in ((one, two), (two, one)):
        with pytest.raises(CheckpointError) as caught:
            average_weights([first, first, second])
        assert str(second) in str(caught.value)
        assert str(first) in str(caught.value)


# ---------------------------------------------------------------------------------------------- no code from files

UNPICKLERS = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}


def unsafe_lines(source: str) -> list[int]:
    """Lines that import an unpickler, touch torch.load, or let NumPy unpickle."""
    lines = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names) if {name.name.split(".")[0] for name in names} & UNPICKLERS:
                lines.append(node.lineno)
            case ast.ImportFrom(module=str(module), names=names) if module.split(".")[0] in UNPICKLERS or (
                module.split(".")[0] == "torch" and "load" in {name.name for name in names}
            ):
                lines.append(node.lineno)
            case ast.Attribute(value=ast.Name(id="torch"), attr="load"):
                lines.append(node.lineno)
            case ast.keyword(arg="allow_pickle", value=value) if not (
                isinstance(value, ast.Constant) and value.value is False
            ):
                lines.append(node.value.lineno)
    return sorted(lines)


def test_the_search_for_unsafe_loading_finds_it() -> None:
    source = """
import pickle
import os, dill.session
from torch import load as read_it
from joblib import load
torch.load(path, weights_only=True)
numpy.load(path, allow_pickle=True)
numpy.load(path, allow_pickle=False)
json.load(file)
torch.nn.Module.load_state_dict
"""
    assert unsafe_lines(source) == [2, 3, 4, 5, 6, 7]


def test_no_line_of_the_package_can_run_code_from_a_file() -> None:
    sources = sorted(PACKAGE.rglob("*.py"))
    assert PACKAGE / "checkpoint.py" in sources
    found = [f"{source}:{line}" for source in sources for line in unsafe_lines(source.read_text("utf-8"))]
    assert found == []


def test_a_folder_without_a_model_is_answered_with_what_to_name_instead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine").mkdir()
    with pytest.raises(CheckpointError, match=r"mine holds no model\.safetensors: it is not a run directory"):
        locate(Path("mine"))
    saved = checkpoint_path(Path("mine"), 10)
    saved.parent.mkdir()
    saved.touch()
    with pytest.raises(CheckpointError, match=f"a checkpoint can be named instead, such as {saved}"):
        locate(Path("mine"))
    Path("runs/mine").mkdir(parents=True)
    Path("runs/mine/model.safetensors").touch()
    with pytest.raises(CheckpointError, match="the run is in runs/mine"):
        locate(Path("mine"))
