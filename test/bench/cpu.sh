#!/usr/bin/env bash
# How fast the CPU trains showcase and smoke: tokens per second, where the time
# of a step goes, and each kernel beside what the machine reaches in the same
# run, as nsa-train says it.
#   NSA_BENCH_STEPS=N     steps measured [20]
#   NSA_BENCH_THREADS=N   threads [all]
#   NSA_BENCH_DATA=FOLDER token shards [packed from the headers of C++]
source "$(dirname "${BASH_SOURCE[0]}")/../e2e/common.inc"
shapes=$root/test/bench/shapes

steps=${NSA_BENCH_STEPS:-20}
data=${NSA_BENCH_DATA:-}
if [ -z "$data" ]; then
  data=$scratch/shards
  "$bin/nsa-data" pack "$root/README.md" /usr/include/c++ --max-bytes 3000000 \
    -o "$data" > "$scratch/pack.log"
fi

for name in ${*:-showcase smoke}; do
  # Three steps warm up.
  settings=(--set "train.steps=$((steps + 3))" --set train.warmup_steps=1
    --set train.eval_every=0 --set train.save_every=0 --set train.save_minutes=0
    --set train.final_eval_batches=1 --set train.sample_bytes=0)
  "$bin/nsa-model" "$shapes/$name.yaml" "${settings[@]}" \
    -o "$scratch/$name.mlir"
  "$bin/nsa-compile" "$scratch/$name.mlir" -o "$scratch/$name.nsax" \
    2> "$scratch/compile.log" || fail "$(cat "$scratch/compile.log")"
  "$bin/nsa-train" "$scratch/$name.nsax" --config "$shapes/$name.yaml" \
    "${settings[@]}" --threads "${NSA_BENCH_THREADS:-0}" --data "$data" \
    --out-dir "$scratch/runs" --run-name "$name" --no-progress \
    --profile "$steps" > "$scratch/train.log" 2>&1 ||
    fail "$(tail -20 "$scratch/train.log")"
  echo "== $name"
  sed -n '/FMA peak/,/^wrote/p' "$scratch/train.log"
done
