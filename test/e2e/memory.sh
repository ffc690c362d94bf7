#!/usr/bin/env bash
# Lesson 17: activation memory is linear in the sequence length, from 512 to
# 8,192 tokens.
source "$(dirname "${BASH_SOURCE[0]}")/common.inc"

"$bin/nsa-model" "$configs/showcase.yaml" -o "$scratch/model.mlir"
previous=0
for length in 512 1024 2048 4096 8192; do
  # In hundredths of a MiB.
  arena=$("$bin/nsa-compile" "$scratch/model.mlir" --estimate \
    --micro-batch 1 --seq-len "$length" |
    awk '$1 == "arena" { printf "%d", $2 * 100 }')
  [ -n "$arena" ] || fail "no arena size for $length tokens"
  echo "$length tokens: $arena / 100 MiB of activations"
  if [ "$previous" -gt 0 ]; then
    # Twice the tokens: between 1.8 and 2.1 times the memory.
    [ $((arena * 10)) -le $((previous * 21)) ] ||
      fail "$length tokens need $arena / 100 MiB, half as many $previous"
    [ $((arena * 10)) -ge $((previous * 18)) ] ||
      fail "$length tokens need $arena / 100 MiB, half as many $previous"
  fi
  previous=$arena
done
