"""Write configs/README.md, the reference of the configuration, from the schema: python scripts/config_reference.py."""

import sys
from pathlib import Path
from types import UnionType
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from transformer_cli.config.schema import Config, Corpus, HubSet, Table

TARGET = Path(__file__).parents[1] / "configs" / "README.md"

BEGINNING = """\
# The configuration

Each experiment is one YAML file; the files beside this one are examples that load. A key left out has the default
shown here. `--set section.key=VALUE` changes one for one run, an empty VALUE resets it. Relative paths count from the
folder of the YAML file. An unknown key is an error that names the nearest valid one, and the names that other toolkits
use are answered with the name used here.

Made from `transformer_cli/config/schema.py` by `python scripts/config_reference.py`; a test keeps it true.
"""

ENDING = """\

## Long runs and large text

**Several GPUs or machines.** `torchrun --nproc-per-node 8 -m transformer_cli train CONFIG` makes the updates of one
process: `batch_size` x `gradient_accumulation_steps` is the size of an update, whose parts the processes share (each
has dropout of its own). A run can be resumed with another number of processes, unless its text is streamed. For
several machines see `scripts/slurm_train.sh`, or torchrun's `--nnodes` and `--rdzv-endpoint`; the run directory, and
best the cache, lie on a disk that all share. (Tested with two processes on CPU.)

**Memory.** The largest batch is tried first. If memory runs out, updates are computed in smaller parts from then on,
with the same gradient (up to dropout). With several processes, running out of memory later ends the run: `--resume`
it with a smaller `batch_size` and a `gradient_accumulation_steps` raised by as much.
`training.activation_checkpointing: true` needs less memory and more time.

**Beside other work.** Threads wait for each other by spinning, so another busy program can make training several
times slower. Use fewer `--threads`, or set the environment variable `OMP_WAIT_POLICY=passive`, which costs a little
on an idle machine.

**Large text.** Text is tokenised once, on `--threads` threads, and memory-mapped from then on. The cache
(`data.cache_dir`, by default in your own cache folder) may be deleted at any time; what no run has used for 30 days
is removed when another text is prepared. `weight` sets how often a corpus is used in an epoch: `{source: …, target:
…, weight: 0.5}` takes another half of it each epoch. A Hugging Face data set with `streaming: true` is never stored,
and at most twice its `shuffle_buffer` is held in memory; processes share its shards, and `--resume` finds their
positions in it. `scripts/bench_data.py` measures ten million pairs.

**Tokenizers.** `transformer-cli tokenizer train`, `encode` and `decode` train and use one; `tokenizer.model: FILE`
trains with it. `tokenizer.sampling_alpha` cuts the text into other pieces each epoch (subword regularisation, BPE
dropout).

**Precision.** `auto` is bf16 where the processor multiplies it natively, else fp32: on recent NVIDIA GPUs, and on
CPUs with avx512_bf16 or amx_bf16 for models from `d_model` 128 on, below which there is little to save.
Translation is in fp32 on CPUs, and in bf16 on such GPUs. A step whose loss or gradient is not finite is skipped and
counted; twenty in a row end the run.

**Fine-tuning.** `training.init_from: runs/other` starts from that run's weights, with its tokenizer.
"""

CORPORA: dict[str, type[BaseModel]] = {
    "An entry of data.train, valid or test: text": Corpus,
    "An entry of data.train, valid or test: a table": Table,
    "An entry of data.train, valid or test: a data set": HubSet,
}


def reference() -> str:
    """The whole text."""
    top = [(name, field) for name, field in Config.model_fields.items() if not is_section(field)]
    parts = [BEGINNING, "## Top level\n", *(entry(name, field) for name, field in top)]
    for name, field in Config.model_fields.items():
        if is_section(field):
            section = field.annotation
            assert isinstance(section, type)
            assert issubclass(section, BaseModel)
            parts += [f"\n## {name}\n", f"{section.__doc__}\n"]
            parts += entries(section)
        if name == "data":
            for title, corpus in CORPORA.items():
                parts += [f"\n### {title}\n", f"{corpus.__doc__}\n"]
                parts += entries(corpus)
    return "\n".join([*parts, ENDING])


def entries(section: type[BaseModel], prefix: str = "") -> list[str]:
    """Each key of a section; those of a section inside it with the name of that in front."""
    lines = []
    for name, field in section.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            lines += [f"- **`{prefix}{name}`**  \n  {field.annotation.__doc__}"]
            lines += entries(field.annotation, f"{prefix}{name}.")
        else:
            lines.append(entry(prefix + name, field))
    return lines


def is_section(field: FieldInfo) -> bool:
    return isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)


def entry(name: str, field: FieldInfo) -> str:
    words = " ".join((field.description or "").split())
    return f"- **`{name}`** {allowed(field)}{default(field)}  \n  {words}"


def allowed(field: FieldInfo) -> str:
    choices = [choice for choice in options(field.annotation) if choice is not None]
    return " | ".join(f"`{choice}`" for choice in choices) + ", " if choices else ""


def options(annotation: Any) -> list[Any]:
    """The literal values of a type, through unions and lists."""
    if get_origin(annotation) is Literal:
        return list(get_args(annotation))
    if isinstance(annotation, UnionType) or get_origin(annotation) is tuple:
        return [choice for part in get_args(annotation) for choice in options(part)]
    return []


def default(field: FieldInfo) -> str:
    if field.is_required():
        return "no default"
    value = field.default
    if value is None:
        return "default: left out"
    if isinstance(value, bool):
        return f"default `{str(value).lower()}`"
    if isinstance(value, tuple):
        return f"default `[{', '.join(map(str, value))}]`"
    return f"default `{value}`"


if __name__ == "__main__":
    TARGET.write_text(reference(), encoding="utf-8")
    print(f"wrote {TARGET}", file=sys.stderr)
