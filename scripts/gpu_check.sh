#!/usr/bin/env bash
# What only a GPU can show, in under ten minutes, as one table: the tests marked `gpu`, training speed with its share of the
# peak, a short training with its BLEU, decoding speed.
#
#     bash scripts/gpu_check.sh [DATA]
#
# DATA is a folder with Multi30k (train.en, train.de, val.*, test_2016_flickr.*); without it the corpus of `init` is
# taken. Runs from the checkout, the package need not be installed. Everything printed on the way is kept in the folder
# that FOLDER names. DEVICE=cpu tries the script itself, on smaller models and with more time.
set -uo pipefail
data=${1:+$(realpath "$1")}
cd "$(dirname "$0")/.."
device=${DEVICE:-cuda}
out=${FOLDER:-$(mktemp -d)}; mkdir -p "$out"
python=${PYTHON:-python3}
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}" TRANSFORMER_CLI_DEVICE="$device"

sizes="small base big" cells=25000 updates=10 lines=1000 minutes=1.5 patience=1
if [ "$device" = cpu ]; then
    sizes="small" cells=2048 updates=2 lines=50 minutes=1 patience=6
fi

# Run a command for so many seconds at most, its output into a file; what it printed is in the end all that tells.
step() {
    local name=$1 seconds=$(($2 * patience))
    shift 2
    echo "$name: at most $seconds s" >&2
    timeout --kill-after=10 "$seconds" "$@" >"$out/$name.txt" 2>"$out/$name.err" || echo "$name: exit code $?" >&2
}

step tests 125 "$python" -m pytest -q -p no:cacheprovider -m gpu tests/integration/test_gpu.py

if [ -f "$data/train.en" ]; then
    text=(--source "$data/train.en" --target "$data/train.de")
    test_text=(--test-source "$data/test_2016_flickr.en" --test-target "$data/test_2016_flickr.de")
    cp configs/multi30k_en_de.yaml "$out/config.yaml"
    ln -sfn "$data" "$out/data"
else
    echo "no Multi30k${data:+ in $data}: taking the corpus of init" >&2
    "$python" -m transformer_cli init "$out/made" --quiet >/dev/null || exit 1
    text=(--source "$out/made/data/train.en" --target "$out/made/data/train.de")
    test_text=(--test-source "$out/made/data/test.seen.en" --test-target "$out/made/data/test.seen.de")
    cp "$out/made/config.yaml" "$out/config.yaml"
    ln -sfn "$out/made/data" "$out/data"
fi

for size in $sizes; do
    step "train-$size" 75 "$python" scripts/bench_train.py "${text[@]}" --device "$device" --model "$size" \
        --batch-size "$cells" --updates "$updates" --turns 3 --precision bf16
done

# max_hours is kept to: what has been learnt until then is tested.
step learn 150 "$python" -m transformer_cli train "$out/config.yaml" --run-dir "$out/run" --overwrite \
    --set device="$device" --set training.max_hours="$(awk "BEGIN { print $minutes / 60 }")" --set training.batch_size="$cells" \
    --set training.warmup_steps=300 --set training.max_steps=3000 --set model.norm=post --set training.learning_rate=0.002

step decode 95 "$python" scripts/bench_decode.py --device "$device" --run "$out/run" "${test_text[@]}" --lines "$lines" --batch-size 256

# The table.
row() { printf '| %-30s | %s\n' "$1" "$2"; }
row "commit" "$(git rev-parse --short HEAD 2>/dev/null || echo unknown) |"
row "device" "$("$python" -c "
import torch
name = torch.cuda.get_device_name() if '$device' == 'cuda' and torch.cuda.is_available() else 'cpu'
print(name, '| PyTorch', torch.__version__)") |"
row "tests" "$(tail -n 1 "$out/tests.txt" 2>/dev/null) |"
for size in $sizes; do
    for measure in "target tokens per second" "share of the dense bf16 peak (MFU)" "times the faster baseline in its precision"; do
        # A line of the table of bench_train.py; ours is the last column.
        value=$(cat "$out/train-$size.txt" "$out/train-$size.err" 2>/dev/null | grep -F -m 1 "| $measure" | awk -F'|' '{ print $(NF - 1) }')
        row "$size: ${measure/the dense bf16 peak (MFU)/the peak (MFU)}" "${value:-not measured} |"
    done
done
row "training, $minutes minutes" "$(tail -n 1 "$out/learn.txt" 2>/dev/null) |"
if grep -qE '^\| +[0-9]' "$out/decode.txt" 2>/dev/null; then grep -E '^\|' "$out/decode.txt"; else row "decoding" "not measured |"; fi
grep -E '^(one line|16 lines)' "$out/decode.txt" 2>/dev/null
echo "all output is in $out" >&2
grep -qE '[0-9]+ passed' "$out/tests.txt" && ! grep -qE '[0-9]+ (failed|error)' "$out/tests.txt"
