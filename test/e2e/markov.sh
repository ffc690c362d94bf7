#!/usr/bin/env bash
# On a source of known entropy the loss comes within 0.05 nats of the entropy
# and its running mean never goes below it.
source "$(dirname "${BASH_SOURCE[0]}")/common.inc"

settings=(--set train.steps=600 --set train.lr=4e-3 --set train.warmup_steps=20)
build "$configs/smoke.yaml" model "${settings[@]}"
"$bin/nsa-data" synth --kind markov --order 2 --vocab 8 --tokens 1500000 \
  --seed "${NSA_TEST_SEED:-1}" -o "$scratch/data"
"$bin/nsa-train" "$scratch/model.nsax" --config "$configs/smoke.yaml" \
  "${settings[@]}" --set train.log_every=1 --set train.eval_every=0 \
  --data "$scratch/data" --out-dir "$scratch/run" --no-progress \
  > "$scratch/log" 2>&1 || {
  tail -20 "$scratch/log" >&2
  fail "training"
}
/usr/bin/python3 - "$scratch" << 'PYTHON'
import csv, glob, json, sys
scratch = sys.argv[1]
entropy = json.load(open(f"{scratch}/data/manifest.json"))["facts"]["entropy"]
rows = list(csv.DictReader(open(glob.glob(f"{scratch}/run/**/training.csv", recursive=True)[0])))
losses = [float(row["loss"]) for row in rows]
assert len(losses) == 600, f"{len(losses)} losses instead of 600"
total = 0.0
for number, loss in enumerate(losses, 1):
    total += loss
    assert total / number >= entropy, f"the running mean {total / number} at step {number} is below the entropy {entropy}"
last = sum(losses[-50:]) / 50
print(f"entropy {entropy:.4f} nats, mean of the last 50 losses {last:.4f}")
assert last <= entropy + 0.05, f"the loss {last} stays more than 0.05 above the entropy {entropy}"
PYTHON
