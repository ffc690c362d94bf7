#!/usr/bin/env bash
# m7c_125m compiles for the CPU and takes a training step. The full
# suite runs it at its own length, otherwise 256 tokens do.
source "$(dirname "${BASH_SOURCE[0]}")/common.inc"

length=256
[ "${NSA_TEST_SUITE:-}" = full ] && length=2048
settings=(--set train.seq_len=$length --set train.steps=1
  --set train.warmup_steps=0 --set train.lr_schedule=constant --set train.batch_size=1 --set train.micro_batch=1
  --set train.eval_every=0
  --set train.final_eval_batches=1 --set runtime.precision=fp32 --set runtime.device=cpu
  --set train.sample_bytes=0)
build "$root/test/bench/shapes/m7c_125m.yaml" model "${settings[@]}"
"$bin/nsa-data" synth --kind markov --order 1 --vocab 64 --tokens 20000 \
  --seed 3 -o "$scratch/data" > /dev/null
"$bin/nsa-train" "$scratch/model.nsax" --config "$root/test/bench/shapes/m7c_125m.yaml" \
  "${settings[@]}" --data "$scratch/data" --out-dir "$scratch/run" \
  --no-progress > "$scratch/log" 2>&1 || {
  tail -20 "$scratch/log" >&2
  fail "training"
}
grep -E '^step ' "$scratch/log"
