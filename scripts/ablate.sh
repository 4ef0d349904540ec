#!/usr/bin/env bash
# What each choice is worth: the built-in corpus, a short training, one thing changed at a time, one table.
#
#     bash scripts/ablate.sh [STEPS]       600 steps by default; nine runs, about half an hour on two cores
#
# Two runs at a time on a thread each, so that the tokens per second are those of one thread. The column `all` is BLEU of
# the test set; `new` of its sentences with a pair of words that never stood together in training. What is kept lies in the
# folder that OUT names.
set -euo pipefail
cd "$(dirname "$0")/.."
steps=${1:-600}
out=${OUT:-$(mktemp -d)}
python=${PYTHON:-$([ -x .venv/bin/python ] && echo "$PWD/.venv/bin/python" || echo python3)}
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}" OMP_NUM_THREADS=1

# The name of a run, and what is changed in it. All begin from the paper's schedule, the highest learning rate being 0.003.
runs=(
    "as-it-is"
    "post-norm model.norm=post"
    "learned-positions model.positions=learned"
    "embeddings-tied-on-the-target-side model.tie_embeddings=target"
    "embeddings-not-tied model.tie_embeddings=none"
    "no-label-smoothing training.label_smoothing=0.0"
    "inverse-sqrt training.lr_schedule=inverse_sqrt training.noam_factor= training.learning_rate=0.003"
    "constant training.lr_schedule=constant training.noam_factor= training.learning_rate=0.003"
    "cosine training.lr_schedule=cosine training.noam_factor= training.learning_rate=0.003"
)

"$python" -m transformer_cli init "$out/text" --quiet >/dev/null

train() {
    local name=$1
    shift
    local settings=()
    for setting in training.lr_schedule=noam training.learning_rate= training.noam_factor=0.48 \
        "training.max_steps=$steps" "training.valid_steps=$((steps / 3))" device=cpu "$@"; do
        settings+=(--set "$setting")
    done
    "$python" -m transformer_cli train "$out/text/config.yaml" --run-dir "$out/$name" "${settings[@]}" \
        >/dev/null 2>"$out/$name.err" || { echo "$name failed, see $out/$name.err" >&2; return 1; }
    echo "$name is done" >&2
}

running=0
for run in "${runs[@]}"; do
    read -ra words <<<"$run"
    train "${words[@]}" &
    running=$((running + 1))
    if [ "$running" -ge 2 ]; then
        wait -n
        running=$((running - 1))
    fi
done
wait

"$python" - "$out" "${runs[@]}" <<'PYTHON'
import json
import sys
from pathlib import Path

out, *runs = sys.argv[1:]
print("| run                                |   all |   new |  valid NLL | tokens/s |")
print("|------------------------------------|------:|------:|-----------:|---------:|")
for run in runs:
    name = run.split()[0]
    folder = Path(out, name)
    if not (folder / "test" / "scores.json").exists():
        print(f"| {name:<34} | failed")
        continue
    scores = json.loads((folder / "test" / "scores.json").read_text())
    events = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    trained = [event for event in events if event["event"] == "train"]
    nll = [event["nll"] for event in events if event["event"] == "valid"][-1]  # label smoothing would enter the loss
    rate = sum(event["tgt_tokens"] for event in trained) / sum(event["seconds"] for event in trained)
    bleu = {part: scores[part]["BLEU"]["score"] for part in ("all", "new")}
    print(f"| {name:<34} | {bleu['all']:5.2f} | {bleu['new']:5.2f} | {nll:10.4f} | {rate:8,.0f} |")
PYTHON
echo "the runs are in $out" >&2
