#!/usr/bin/env bash
# Ranks that share a batch learn what one rank learns (lessons 18 and 19), and
# a rank that does not belong to the run stops the others. NSA_TEST_SUITE=full
# repeats the runs on two and on eight ranks besides that on four.
source "$(dirname "${BASH_SOURCE[0]}")/common.inc"

again=()
[ "${NSA_TEST_SUITE:-}" = full ] && again=(two eight)
[ -e "$bin/../lib/nsa-gloo.so" ] || fail "nsa-gloo.so is not built: install libgloo-dev"

settings=(--set train.seq_len=64 --set train.batch_size=8 --set train.micro_batch=2
  --set train.steps=20 --set train.log_every=1 --set train.eval_every=10
  --set train.eval_batches=5 --set train.final_eval_batches=7
  --set train.sample_bytes=0 --set train.save_every=5)
"$bin/nsa-model" "$configs/smoke.yaml" "${settings[@]}" -o "$scratch/m.mlir"
"$bin/nsa-compile" "$scratch/m.mlir" -o "$scratch/m.nsax" > /dev/null
"$bin/nsa-compile" "$scratch/m.mlir" -o "$scratch/again.nsax" --recompute=block > /dev/null
"$bin/nsa-data" synth --kind markov --order 1 --vocab 16 --tokens 100000 \
  --seed 7 -o "$scratch/data" > /dev/null
"$bin/nsa-model" "$configs/smoke.yaml" "${settings[@]}" --set data.isolate_documents=true \
  -o "$scratch/isolated.mlir"
"$bin/nsa-compile" "$scratch/isolated.mlir" -o "$scratch/isolated.nsax" > /dev/null
mkdir "$scratch/text"
for i in $(seq 60); do seq "$i" $((i + i * i % 37)) > "$scratch/text/$i.txt"; done
"$bin/nsa-data" pack "$scratch/text" --val-fraction 0.3 -o "$scratch/documents" > /dev/null

# The data set that runs train on.
data=data
# command NAME MODEL OPTION...: prints the command of a run, one word a line.
command() {
  local name=$1 model=$2
  shift 2
  printf '%s\n' "$bin/nsa-train" "$scratch/$model.nsax" --config "$configs/smoke.yaml" \
    --data "$scratch/$data" --out-dir "$scratch" --run-name "$name" \
    --no-progress "${settings[@]}" "$@"
}
# train NAME MODEL OPTION...: runs it and leaves its losses in NAME.losses.
train() {
  local name=$1 words
  mapfile -t words < <(command "$@")
  "${words[@]}" > "$scratch/$name.log" 2>&1 || {
    tail -20 "$scratch/$name.log" >&2
    fail "training $name"
  }
  cut -d, -f1-4 "$scratch/$name/training.csv" > "$scratch/$name.losses"
}
newest() {
  echo "$scratch/$1/checkpoints/$(cat "$scratch/$1/checkpoints/latest")"
}
same() {
  cmp "$scratch/$1.losses" "$scratch/$2.losses" || fail "$3"
  for part in model optimizer; do
    cmp "$(newest "$1")/$part.safetensors" "$(newest "$2")/$part.safetensors" ||
      fail "$3"
  done
}

train one m --threads 1
train two m --nproc 2
train four m --nproc 4
train four-again m --nproc 4
"$bin/nsa-compile" "$scratch/m.mlir" -o "$scratch/single.nsax" --micro-batch 1 > /dev/null
# As many sequences are evaluated.
train eight single --set train.micro_batch=1 --set train.eval_batches=10 \
  --set train.final_eval_batches=14 --nproc 8
for name in "${again[@]}"; do
  case $name in
  two) train two-again m --nproc 2 ;;
  eight)
    train eight-again single --set train.micro_batch=1 --set train.eval_batches=10 \
      --set train.final_eval_batches=14 --nproc 8
    ;;
  esac
  same "$name" "$name-again" "two runs on $name ranks differ"
done
"$bin/nsa-compile" "$scratch/m.mlir" -o "$scratch/half.nsax" --reduce-precision=bf16 > /dev/null
train half half --nproc 2
train half-again half --nproc 2
same half half-again "two runs that reduce in bf16 differ"
train four-separate m --nproc 4 --separate-update
same four four-again "two runs on four ranks differ"
same four four-separate "the fused step differs from accumulate and update"
block=(--set runtime.gradient_checkpointing=block)
train one-block again "${block[@]}" --threads 1
train two-block again "${block[@]}" --nproc 2
# Micro-batches have different numbers of targets where documents are isolated.
data=documents
for ranks in 1 2 4; do
  train "isolated-$ranks" isolated --set data.isolate_documents=true --nproc "$ranks"
done
data=data
grep -q "512 tokens per step = 4 ranks x 1 x 2 sequences of 64" "$scratch/four.log" ||
  fail "tokens per step are not printed"

# Ranks that differ are refused: all end with code 1 and say which one it is.
export MASTER_ADDR=127.0.0.1 WORLD_SIZE=2 LOCAL_WORLD_SIZE=2
refused() {
  local what=$1 port=$2 words
  shift 2
  mapfile -t words < <(command refused m)
  export MASTER_PORT=$port
  RANK=0 LOCAL_RANK=0 "${words[@]}" > "$scratch/0.log" 2>&1 &
  local first=$! code=0
  RANK=1 LOCAL_RANK=1 "$@" > "$scratch/1.log" 2>&1 || code=$?
  [ "$code" = 1 ] || fail "$what: rank 1 ended with code $code"
  code=0
  wait "$first" || code=$?
  [ "$code" = 1 ] || fail "$what: rank 0 ended with code $code"
  grep -q "error: rank 1 has $what [0-9a-z]*, rank 0 has" "$scratch/0.log" ||
    fail "$what: $(cat "$scratch/0.log")"
}
port=$((20000 + RANDOM % 10000))
mapfile -t other < <(command refused m --set train.lr=1e-3)
refused "the configuration" "$port" "${other[@]}"
"$bin/nsa-compile" "$scratch/m.mlir" -o "$scratch/other.nsax" --no-fuse \
  --allow-slow-path all > /dev/null
mapfile -t other < <(command refused other)
refused "the artefact" "$((port + 1))" "${other[@]}"
# It would stop, and leave the others in a reduction.
mapfile -t other < <(command refused m --check-finite)
refused "--check-finite" "$((port + 2))" "${other[@]}"
unset MASTER_ADDR MASTER_PORT WORLD_SIZE LOCAL_WORLD_SIZE

/usr/bin/python3 "$root/test/e2e/ranks.py" "$scratch"
