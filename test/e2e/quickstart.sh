#!/usr/bin/env bash
# The quickstart's path in small: real text, a few steps, the closing line, and
# a sample.
source "$(dirname "${BASH_SOURCE[0]}")/common.inc"

"$bin/nsa-data" pack "$root/README.md" /usr/include/c++ --max-bytes 3000000 \
  -o "$scratch/shards" > "$scratch/pack.log"
settings=(--set train.steps=12 --set train.warmup_steps=2 --set train.eval_every=6
  --set train.final_eval_batches=2 --set train.sample_bytes=20)
XDG_CACHE_HOME=$scratch/cache "$bin/nsa-train" "$configs/showcase.yaml" \
  "${settings[@]}" --data "$scratch/shards" --out-dir "$scratch/run" \
  --no-progress > "$scratch/log" 2>&1 || {
  tail -20 "$scratch/log" >&2
  fail "training"
}
grep -qE '^validation loss [0-9.]+ nats/byte \(order-1 [0-9.]+, order-2 [0-9.]+\)$' \
  <(tail -n 1 "$scratch/log") || {
  tail -5 "$scratch/log" >&2
  fail "the last line is not the validation loss"
}
for file in training.csv val.csv env.json metrics.json heartbeat_rank0.jsonl; do
  find "$scratch/run" -name "$file" -size +0 | grep -q . || fail "no $file"
done
tail -n 1 "$scratch/log"
XDG_CACHE_HOME=$scratch/cache "$bin/nsa-generate" "$scratch"/run/* \
  --prompt '#include ' --tokens 30 --ignore-end > "$scratch/sample" 2> "$scratch/rates" || {
  cat "$scratch/rates" >&2
  fail "generating"
}
[ "$(wc -c < "$scratch/sample")" -eq 31 ] || fail "the sample is not 30 bytes"
grep -q '^decode: 30 tokens' "$scratch/rates" || fail "no rate of decoding"
