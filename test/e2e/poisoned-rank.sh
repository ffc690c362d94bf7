#!/usr/bin/env bash
# One rank whose numbers are not finite stops all (lesson 10), at once and with
# the same code, also where it stops in the middle of a step and the others wait
# for it in a reduction: rank 0 says which rank it was and which tensor, and
# nobody has updated.
source "$(dirname "${BASH_SOURCE[0]}")/common.inc"

[ -e "$bin/../lib/nsa-gloo.so" ] || fail "nsa-gloo.so is not built: install libgloo-dev"
compiler=$(sed -n 's/^CMAKE_C_COMPILER:[A-Z]*=//p' "$root/build/CMakeCache.txt")
"$compiler" -shared -fPIC "$root/test/e2e/poisoned-blas.c" -o "$scratch/blas.so"

# Only steps multiply.
settings=(--set train.seq_len=64 --set train.batch_size=8 --set train.micro_batch=2
  --set train.steps=20 --set train.log_every=1000 --set train.eval_every=0
  --set train.final_eval_batches=1 --set train.sample_bytes=0 --set train.save_every=5)
"$bin/nsa-model" "$configs/smoke.yaml" "${settings[@]}" -o "$scratch/m.mlir"
"$bin/nsa-compile" "$scratch/m.mlir" -o "$scratch/whole.nsax" > /dev/null
"$bin/nsa-compile" "$scratch/m.mlir" -o "$scratch/shared.nsax" --shard-optimizer=2 > /dev/null
"$bin/nsa-data" synth --kind markov --order 1 --vocab 16 --tokens 100000 \
  --seed 7 -o "$scratch/data" > /dev/null

# train MODEL OPTION...: on two ranks, with the poisonous library.
train() {
  local model=$1
  shift
  timeout 60 "$bin/nsa-train" "$scratch/$model.nsax" --config "$configs/smoke.yaml" \
    --data "$scratch/data" --out-dir "$scratch" --no-progress --threads 1 \
    --blas "$scratch/blas.so" "${settings[@]}" --nproc 2 "$@" > "$scratch/log" 2>&1
}
# poisoned RANK MODEL WHAT OPTION...: WHAT is said of the rank and the tensor.
poisoned() {
  local rank=$1 model=$2 what=$3 name="$2-$1$4" code=0 run
  local options=("${@:4}")
  [ -n "$4" ] || options=()
  run=$scratch/$name
  NSA_POISONED_RANK=$rank NSA_POISONED_PRODUCT=1000 \
    train "$model" --run-name "$name" "${options[@]}" || code=$?
  [ "$code" = 3 ] || fail "$name: code $code: $(tail "$scratch/log")"
  local each step last
  for each in 0 1; do
    grep -q "rank $each exited with code 3" "$scratch/log" ||
      fail "$name: rank $each: $(tail "$scratch/log")"
    [ "$(tail -n 1 "$run/heartbeat_rank$each.jsonl" | grep -c '"msg":"nan_loss')" = 1 ] ||
      fail "$name: rank $each: $(tail -n 2 "$run/heartbeat_rank$each.jsonl")"
  done
  step=$(sed -n "s/.*step \([0-9]*\): $what on rank $rank.*/\1/p" "$run/train.log")
  [ -n "$step" ] || fail "$name: $(cat "$run/train.log")"
  # The steps before are all there is.
  [ "$step" -gt 5 ] && [ "$step" -lt 20 ] || fail "$name: poisoned at step $step"
  grep -q "\"step\": $((step - 1))," "$run/metrics.json" || fail "$name: metrics.json"
  grep -q '"end": "nan_loss"' "$run/metrics.json" || fail "$name: metrics.json"
  [ "$(cat "$run/.anomaly_type")" = nan_loss ] || fail "$name: .anomaly_type"
  last=$(printf 'step-%08d' $(((step - 1) / 5 * 5)))
  [ "$(cat "$run/checkpoints/latest")" = "$last" ] || fail "$name: not at $last"
}
gradient='loss .*, gradient norm nan; first tensor that is not finite: grad\..*'
command="entry '[a-z]*', command [0-9]* (gemm .*): wrote nan .* of its float output 0, from .*"
for model in whole shared; do
  poisoned 1 "$model" "$gradient" ""
  for rank in 0 1; do
    poisoned "$rank" "$model" "$command" --check-finite
  done
  # It goes on as if nothing had been.
  train "$model" --run-name "$model" || fail "$(tail "$scratch/log")"
  train "$model" --resume "$scratch/$model-1--check-finite" || fail "$(tail "$scratch/log")"
  for file in "$scratch/$model/checkpoints/step-00000020"/*.safetensors; do
    cmp "$file" "$scratch/$model-1--check-finite/checkpoints/step-00000020/${file##*/}" ||
      fail "$model: going on differs"
  done
done
