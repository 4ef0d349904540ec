"""Preparing data at scale: python scripts/bench_data.py [--pairs 100000 1000000 10000000] [--threads 1]

Writes synthetic pairs to a temporary folder, prepares them as `train` does, and prints one table. Each row is measured
in a process of its own that ends before the next begins:

    tokenizer    trained on a sample of `tokenizer.sample_lines`
    encode alone the batch call of SentencePiece on lines in memory, before and after the next row
    tokenise     from text files to the cache: read, filtered, encoded, written; its ratio to the row above, also by the
                 CPU seconds of both, for a machine where others work
    plan         one epoch, in batches of 4,096 tokens
    second start from the end of `import torch` to the first batch, with the cache there
    memory       the most that the processes of the rows above held of their own; pages of a memory map are not
                 counted, which the system takes back when it needs them
"""

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from sentencepiece import SentencePieceProcessor

from transformer_cli.config.load import load_training_config
from transformer_cli.data.batching import make_batch, micro_batches, plan_epoch
from transformer_cli.data.dataset import TokenDataset
from transformer_cli.data.prepared import Preparation
from transformer_cli.device import set_threads

WORDS_A_LINE = 20  # about 25 tokens
WORDS = 30_000
LETTERS = "eeeeaaiioonnrrttsshhdlucmfgpwbyvk"
BLOCK = 100_000
DISTINCT = 1_000_000
ENCODED_ALONE = 200_000  # lines
BATCH = 4096

Result = dict[str, Any]

CONFIG = """\
data:
  train: [{{source: train.src, target: train.tgt}}]
  valid: [{{source: valid.src, target: valid.tgt}}]
  max_length: 100
  cache_dir: {cache}
tokenizer: {{vocab_size: 8000}}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, nargs="+", default=[100_000, 1_000_000, 10_000_000])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--step", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.step:
        print(json.dumps(STEPS[args.step](args.folder, args.threads)))
        return
    columns = [measure(count, args.threads) for count in args.pairs]
    width = max(map(len, columns[0]))
    for name in columns[0]:
        print(f"{name:<{width}}  " + "  ".join(f"{column[name]:>12}" for column in columns))


def measure(count: int, threads: int) -> dict[str, str]:
    """One column of the table."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder, count)
        found = {}
        for step in STEPS:
            command = [sys.executable, __file__, "--step", step, "--folder", name, "--threads", str(threads)]
            done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
            found[step] = json.loads(done.stdout.splitlines()[-1])
            print(f"{count:,} {step}: {found[step]}", file=sys.stderr)
        bytes_kept = sum(path.stat().st_size for path in (folder / "cache").iterdir())
    tokenised, second = found["tokenise"], found["second"]
    (ours, alone), (ours_cpu, alone_cpu) = tokenised["rates"]["wall"], tokenised["rates"]["cpu"]
    return {
        "pairs": f"{count:,}",
        "threads": str(threads),
        "tokens a line": f"{tokenised['tokens']:.1f}",
        "tokenizer trained, s": f"{found['tokenizer']['seconds']:.1f}",
        "encode alone, lines/s": f"{alone:,.0f}",
        "tokenise, lines/s": f"{ours:,.0f}",
        "  of encode alone": f"{ours / alone:.2f}",
        "  by CPU seconds": f"{ours_cpu / alone_cpu:.2f}",
        "plan of an epoch, s": f"{second['plan']:.2f}",
        "second start, s": f"{second['seconds']:.2f}",
        "memory, GB": f"{max(tokenised['memory'], second['memory']) / 1e9:.2f}",
        "  training tokenizer": f"{found['tokenizer']['memory'] / 1e9:.2f}",
        "cache on disk, GB": f"{bytes_kept / 1e9:.2f}",
    }


# --- Made-up text -----------------------------------------------------------------------------------------------------


def write(folder: Path, count: int) -> None:
    """Lines of words whose frequencies fall as in a language (Zipf). Beyond a million pairs the lines repeat, which
    changes nothing of what is measured."""
    (folder / "config.yaml").write_text(CONFIG.format(cache=folder / "cache"), encoding="utf-8")
    generator = np.random.default_rng(1)
    words = ["".join(generator.choice(list(LETTERS), generator.integers(2, 10))) for _ in range(WORDS)]
    frequencies = 1 / (np.arange(WORDS) + 3.0)
    frequencies /= frequencies.sum()
    for split, lines in (("valid", 100), ("train", count)):
        for side in ("src", "tgt"):
            with (folder / f"{split}.{side}").open("w", encoding="utf-8") as file:
                for written in range(0, lines, BLOCK):
                    if written < DISTINCT:
                        lengths = generator.poisson(WORDS_A_LINE - 1, BLOCK) + 1
                        drawn = iter(generator.choice(WORDS, lengths.sum(), p=frequencies).tolist())
                        block = [" ".join([words[next(drawn)] for _ in range(length)]) for length in lengths]
                    file.writelines(line + "\n" for line in block[: lines - written])


# --- Each in a process of its own -------------------------------------------------------------------------------------


class Memory:
    """The most that this process held of its own while the block ran; Linux tells."""

    def __enter__(self) -> "Memory":
        self.most = 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(0.01):
            status = Path("/proc/self/status").read_text(encoding="ascii")
            self.most = max(self.most, 1024 * int(status.partition("RssAnon:")[2].split()[0]))


def preparation(folder: Path, threads: int) -> Preparation:
    set_threads(threads)
    return Preparation(load_training_config(folder / "config.yaml"), threads)


def train_tokenizer(folder: Path, threads: int) -> Result:
    started = time.perf_counter()
    with Memory() as memory:
        preparation(folder, threads).tokenizers()
    return {"seconds": time.perf_counter() - started, "memory": memory.most}


def tokenise(folder: Path, threads: int) -> Result:
    prepared = preparation(folder, threads)
    tokenizers = prepared.tokenizers()
    model = SentencePieceProcessor(model_proto=tokenizers.source.proto)
    with (folder / "train.src").open(encoding="utf-8") as file:
        lines = [line.rstrip("\n") for line in islice(file, ENCODED_ALONE)]
    alone = [timed(lambda: model.encode(lines, num_threads=threads))]
    with Memory() as memory:
        dataset: list[TokenDataset] = []
        ours = timed(lambda: dataset.append(prepared.dataset(tokenizers)[0]))
    alone.append(timed(lambda: model.encode(lines, num_threads=threads)))  # before and after: others work here, too
    pairs = len(dataset[0])
    rates = {
        clock: (2 * pairs / ours[clock], 2 * len(lines) / sum(one[clock] for one in alone)) for clock in ("wall", "cpu")
    }
    return {"rates": rates, "tokens": len(dataset[0].source.ids) / pairs, "memory": memory.most}


def timed(work: Callable[[], object]) -> dict[str, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}


def second_start(folder: Path, threads: int) -> Result:
    started = time.perf_counter()
    with Memory() as memory:
        prepared = preparation(folder, threads)
        dataset, _ = prepared.dataset(prepared.tokenizers())
        prepared.splits.valid()
        planning = time.perf_counter()
        updates = plan_epoch(dataset, BATCH, "tokens", 1, 0)
        planned = time.perf_counter() - planning
        make_batch(dataset, micro_batches(updates[0], dataset, BATCH, "tokens")[0])
    return {"seconds": time.perf_counter() - started, "plan": planned, "memory": memory.most}


STEPS: dict[str, Callable[[Path, int], Result]] = {
    "tokenizer": train_tokenizer,
    "tokenise": tokenise,
    "second": second_start,
}

if __name__ == "__main__":
    main()
