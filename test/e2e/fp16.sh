#!/usr/bin/env bash
# fp16: with weights so large that the gradients of the scaled loss overflow, a
# step updates nothing, is said, and halves the scale, until they fit and
# training goes on. A run that is resumed amid this ends with the same losses:
# the scale is part of a checkpoint.
source "$(dirname "${BASH_SOURCE[0]}")/common.inc"

settings=(--set runtime.precision=fp16 --set model.init_std=10)
"$bin/nsa-model" "$configs/smoke.yaml" "${settings[@]}" -o "$scratch/fp16.mlir"
"$bin/nsa-compile" "$scratch/fp16.mlir" --precision=fp16 -o "$scratch/fp16.nsax"
"$bin/nsa-data" synth --kind markov --order 1 --vocab 16 --tokens 200000 \
  --seed 7 -o "$scratch/data" > /dev/null

# train NAME OPTION...
train() {
  local name=$1
  shift
  "$bin/nsa-train" "$scratch/fp16.nsax" --config "$configs/smoke.yaml" \
    "${settings[@]}" --data "$scratch/data" --out-dir "$scratch/$name" \
    --no-progress --set train.steps=24 --set train.save_every=4 \
    --set train.log_every=1 --set train.eval_every=0 "$@" \
    > "$scratch/$name.log" 2>&1 || {
    tail -20 "$scratch/$name.log" >&2
    fail "training $name"
  }
  find "$scratch/$name" -name training.csv -exec cat {} + |
    cut -d, -f1-4 | sort -t, -n -u > "$scratch/$name.losses"
}
train whole
train parts --stop-after 4
train parts --resume auto
cmp "$scratch/whole.losses" "$scratch/parts.losses" ||
  fail "a resumed run differs from one that was not interrupted"

grep -m 2 'gradients beyond fp16 at loss scale' "$scratch/whole.log" ||
  fail "no overflow with weights of standard deviation 10"
/usr/bin/python3 - "$scratch"/whole/* << 'PYTHON' || fail "the records of the run"
import csv, json, math, sys
run = sys.argv[1]
heartbeats = [json.loads(line) for line in open(f"{run}/heartbeat_rank0.jsonl")]
skipped = [b["step"] for b in heartbeats if b["msg"] == "overflow"]
taken = [b["step"] for b in heartbeats if b["msg"] == "step"]
assert skipped and skipped[0] == 1 and taken, (skipped, taken)
scale = 65536
for heartbeat in heartbeats:
    if heartbeat["msg"] == "overflow":
        scale /= 2
    if heartbeat["msg"] in ("overflow", "step"):
        assert heartbeat["loss_scale"] == scale, heartbeat
assert json.load(open(f"{run}/metrics.json"))["skipped_updates"] == len(skipped)
for row in csv.DictReader(open(f"{run}/training.csv")):
    assert math.isfinite(float(row["loss"])), row
    finite = math.isfinite(float(row["grad_norm"]))
    assert finite == (int(row["step"]) in taken), row
print(f"{len(skipped)} steps without, {len(taken)} with an update")
PYTHON
