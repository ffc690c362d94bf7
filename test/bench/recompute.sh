#!/usr/bin/env bash
# Memory against time of what the backward graph computes again, for the
# m7c_125m: the arena, the peak of the process and the seconds of a step.
#   test/bench/recompute.sh [CONFIG]
#   NSA_BENCH_LENGTH=N    tokens of a sequence [2048]
#   NSA_BENCH_STEPS=N     steps measured [2]
#   NSA_BENCH_BUDGET=MIB  the budget of the last row [800]
source "$(dirname "${BASH_SOURCE[0]}")/../e2e/common.inc"
shapes=$root/test/bench/shapes

name=${1:-m7c_125m}
length=${NSA_BENCH_LENGTH:-2048}
steps=${NSA_BENCH_STEPS:-2}
budget=${NSA_BENCH_BUDGET:-800}
settings=(--set "train.seq_len=$length" --set "train.steps=$((steps + 1))"
  --set train.warmup_steps=0 --set train.lr_schedule=constant
  --set train.batch_size=1 --set train.micro_batch=1
  --set train.accumulate_grad_batches=1 --set train.eval_every=0
  --set train.save_every=0 --set train.save_minutes=0 --set train.final_eval_batches=1
  --set runtime.precision=fp32 --set train.sample_bytes=0)
"$bin/nsa-model" "$shapes/$name.yaml" "${settings[@]}" -o "$scratch/model.mlir"
"$bin/nsa-data" synth --kind markov --order 1 --vocab 64 --tokens $((40 * length)) \
  --seed 3 -o "$scratch/data" > /dev/null

# row NAME CHECKPOINTING OPTION...: compiles, trains and prints a row.
row() {
  local label=$1 policy=$2 arena rss seconds
  shift 2
  "$bin/nsa-compile" "$scratch/model.mlir" --recompute="$policy" "$@" \
    -o "$scratch/model.nsax" 2> "$scratch/log" || fail "$(cat "$scratch/log")"
  arena=$("$bin/nsa-compile" "$scratch/model.mlir" --recompute="$policy" "$@" \
    --estimate | awk '$1 == "arena" { print $2 }')
  "$bin/nsa-train" "$scratch/model.nsax" --config "$shapes/$name.yaml" \
    "${settings[@]}" --set "runtime.gradient_checkpointing=$policy" \
    --data "$scratch/data" --out-dir "$scratch/runs" --run-name "$label" \
    --no-progress > "$scratch/log" 2>&1 || fail "$(tail -20 "$scratch/log")"
  read -r rss seconds < <(/usr/bin/python3 - "$scratch/runs/$label" << 'PYTHON'
import csv, glob, json, sys
run = sys.argv[1]
peak = json.load(open(f"{run}/metrics.json"))["memory_peak"]
rows = list(csv.DictReader(open(glob.glob(f"{run}/**/training.csv", recursive=True)[0])))
# The first step touches memory for the first time.
speeds = sorted(float(row["toks_per_s"]) for row in rows[1:])
tokens = json.load(open(f"{run}/metrics.json"))["tokens"] / len(rows)
print(f"{peak / 2**20:.0f} {tokens / speeds[len(speeds) // 2]:.2f}")
PYTHON
  )
  printf '| %-14s | %9.1f | %8s | %8s |\n' "$label" "$arena" "$rss" "$seconds"
  rm -rf "$scratch/runs/$label"
}

echo "$name, one sequence of $length tokens, fp32"
echo '| recompute      | arena MiB | peak MiB | s / step |'
echo '|----------------|-----------|----------|----------|'
row none none
row cheap cheap
row block block
row "block-$budget" block --recompute-budget="$budget"
