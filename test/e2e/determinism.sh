#!/usr/bin/env bash
# Compiling twice gives identical bytes; training twice from one seed gives
# identical losses, with any number of threads; resuming is bitwise (lesson 14).
source "$(dirname "${BASH_SOURCE[0]}")/common.inc"
unset NSA_KERNEL_CACHE

build "$configs/smoke.yaml" one
# The artefact tells where its commands come from: the file's name, not its
# folder.
mkdir "$scratch/elsewhere"
build "$configs/smoke.yaml" elsewhere/one
mv "$scratch/elsewhere/one.nsax" "$scratch/two.nsax"
cmp "$scratch/one.nsax" "$scratch/two.nsax" || fail "two compilations differ"

"$bin/nsa-data" synth --kind markov --order 1 --vocab 16 --tokens 200000 \
  --seed 7 -o "$scratch/data" > /dev/null

# train NAME OPTION...: trains and leaves the losses in NAME.losses.
train() {
  local name=$1
  shift
  "$bin/nsa-train" "$scratch/one.nsax" --config "$configs/smoke.yaml" \
    --data "$scratch/data" --out-dir "$scratch/$name" --no-progress \
    --set train.log_every=1 --set train.eval_every=0 "$@" \
    > "$scratch/$name.log" 2>&1 || {
    tail -20 "$scratch/$name.log" >&2
    fail "training $name"
  }
  find "$scratch/$name" -name training.csv -exec cat {} + |
    cut -d, -f1-3 > "$scratch/$name.losses"
}
train first --set train.steps=24 --set train.save_every=12 --threads 1
train second --set train.steps=24 --set train.save_every=12 --threads 2
cmp "$scratch/first.losses" "$scratch/second.losses" ||
  fail "the losses of two runs differ"
[ "$(wc -l < "$scratch/first.losses")" -ge 25 ] || fail "losses are missing"

train third --set train.steps=24 --set train.save_every=12 --stop-after 12
train third --set train.steps=24 --set train.save_every=12 --resume auto
sort -t, -n -u "$scratch/third.losses" > "$scratch/third.sorted"
sort -t, -n -u "$scratch/first.losses" > "$scratch/first.sorted"
cmp "$scratch/first.sorted" "$scratch/third.sorted" ||
  fail "a resumed run differs from one that was not interrupted"
echo "24 steps: equal losses from two runs, two thread counts and a resume"
