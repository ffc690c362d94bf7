#!/usr/bin/env bash
# Ranks that share the optimizer's state learn what ranks learn that each have
# all of it, in less memory, and go on bitwise from a checkpoint, also after one
# of them was killed.
source "$(dirname "${BASH_SOURCE[0]}")/common.inc"

settings=(--set train.seq_len=64 --set train.batch_size=8 --set train.micro_batch=1
  --set train.steps=12 --set train.warmup_steps=2 --set train.log_every=1
  --set train.eval_every=0 --set train.final_eval_batches=1
  --set train.sample_bytes=0 --set train.save_every=0
  --set model.dim=256 --set model.mlp_dim=512)
"$bin/nsa-model" "$configs/smoke.yaml" "${settings[@]}" -o "$scratch/m.mlir"
# compile NAME OPTION...: several buckets of at most 1 MiB.
compile() {
  local name=$1
  shift
  "$bin/nsa-compile" "$scratch/m.mlir" -o "$scratch/$name.nsax" --bucket-mib=1 "$@" > /dev/null
}
compile whole
compile two --shard=optimizer --shard-ranks=2
compile four --shard=optimizer --shard-ranks=4
compile half-all --reduce-precision=bf16
compile half --shard=optimizer --shard-ranks=4 --reduce-precision=bf16
"$bin/nsa-data" synth --kind markov --order 1 --vocab 16 --tokens 100000 \
  --seed 7 -o "$scratch/data" > /dev/null

states() {
  "$bin/nsa-dump" --memory "$scratch/$1.nsax" |
    awk '/^  optimizer / { sum += $2 } END { print sum }'
}
for part in "two 2" "four 4"; do
  read -r name ranks <<< "$part"
  # Tensors are padded.
  off=$(($(states "$name") * ranks * 1000 / $(states whole)))
  [ "$off" -ge 1000 ] && [ "$off" -le 1010 ] || fail "$name has $off / 1000 of its share"
done
"$bin/nsa-dump" "$scratch/two.nsax" > "$scratch/dump"
[ "$(grep -c reduce_scatter_start "$scratch/dump")" -gt 6 ] || fail "buckets are not scattered"
[ "$(grep -c all_gather_start "$scratch/dump")" -gt 6 ] || fail "buckets are not gathered"

# train NAME MODEL OPTION...
train() {
  local name=$1 model=$2
  shift 2
  # A run that goes on has its name.
  local place=(--run-name "$name")
  [[ " $* " == *" --resume "* ]] && place=()
  "$bin/nsa-train" "$scratch/$model.nsax" --config "$configs/smoke.yaml" --data "$scratch/data" \
    --out-dir "$scratch" "${place[@]}" --no-progress "${settings[@]}" "$@" \
    > "$scratch/$name.log" 2>&1 || fail "training $name: $(tail -20 "$scratch/$name.log")"
}
same() {
  cmp <(cut -d, -f1-4 "$scratch/$1/training.csv") <(cut -d, -f1-4 "$scratch/$2/training.csv") ||
    fail "$3"
  local file folders=("$scratch/$1/checkpoints/step-00000012" "$scratch/$2/checkpoints/step-00000012")
  for file in "${folders[0]}"/*.safetensors; do
    cmp "$file" "${folders[1]}/${file##*/}" || fail "$3"
  done
}
# close A B TOLERANCE: losses and norms differ by no more, relatively.
close() {
  paste -d, "$scratch/$1/training.csv" "$scratch/$2/training.csv" | awk -F, -v most="$3" '
    function off(a, b) { return (a > b ? a - b : b - a) / b }
    NR == 1 { columns = NF / 2; next }
    off($2, $(columns + 2)) > most || off($4, $(columns + 4)) > 10 * most { print; bad = 1 }
    END { exit bad || NR != 13 }' || fail "$1 and $2 are more than $3 apart"
}

train all whole --nproc 2
train shared two --nproc 2
close shared all 1e-5
train again two --nproc 2 --separate-update
same shared again "two runs differ"
train by-four four --nproc 4
close by-four all 1e-5
train half-all half-all --nproc 4
train by-half half --nproc 4
close by-half half-all 1e-5

[ "$(cd "$scratch/shared/checkpoints/step-00000012" && echo optimizer_rank*)" = \
  "optimizer_rank0.safetensors optimizer_rank1.safetensors" ] || fail "ranks have no files"
train stopped two --nproc 2 --stop-after 5
train stopped two --nproc 2 --resume "$scratch/stopped"
same shared stopped "a run that was stopped differs from one that was not"

# Saves beside steps leave the same checkpoints.
for beside in false true; do
  train "saved-$beside" two --nproc 2 --set train.save_every=3 --set train.keep_checkpoints=0 \
    --set train.save_async=$beside
done
same shared saved-true "a run that saves beside steps differs from one that does not"
for step in 03 06 09; do
  for file in "$scratch/saved-false/checkpoints/step-000000$step"/*.safetensors; do
    cmp "$file" "$scratch/saved-true/checkpoints/step-000000$step/${file##*/}" ||
      fail "a checkpoint that was written beside steps differs"
  done
done
[ "$(grep -c "saved .*/step-" "$scratch/saved-true.log")" = 4 ] || fail "$(cat "$scratch/saved-true.log")"

# The same when a rank is killed, and all go on from their parts.
/usr/bin/python3 "$root/test/e2e/kill-rank.py" "$scratch/killed" 1 5 &
(train killed two --nproc 2 --set train.save_every=4 --set train.save_async=true) 2> /dev/null &&
  fail "the run of a killed rank went on"
wait $! || fail "no rank was killed"
train killed two --nproc 2 --resume "$scratch/killed" --set train.save_every=4 --set train.save_async=true
grep -q "resuming from .*/killed/checkpoints/step-0000000[48]" "$scratch/killed.log" ||
  fail "$(cat "$scratch/killed.log")"
same shared killed "a run with a killed rank differs from one without"

# Another number of ranks has no use for it.
"$bin/nsa-train" "$scratch/two.nsax" --config "$configs/smoke.yaml" --data "$scratch/data" \
  --out-dir "$scratch" --run-name alone "${settings[@]}" > "$scratch/log" 2>&1 &&
  fail "one rank ran a program for two"
grep -q "is compiled for 2 ranks that keep parts of its state; this is a run of 1" \
  "$scratch/log" || fail "$(cat "$scratch/log")"
"$bin/nsa-compile" "$scratch/m.mlir" -o "$scratch/x.nsax" --shard=optimizer --shard-ranks=2 --no-fuse \
  > "$scratch/log" 2>&1 && fail "single updates were shared"
grep -q "cannot be used with --no-fuse" "$scratch/log" || fail "$(cat "$scratch/log")"
