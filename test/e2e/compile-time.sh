#!/usr/bin/env bash
# Showcase compiles within 5 s of processor time, the 125M-class model within
# 15 s, and twice the layers cost at most 1.3 times as much: layers share their
# kernels.
source "$(dirname "${BASH_SOURCE[0]}")/common.inc"

# seconds FILE: the least processor time of three compilations; other work on
# the machine adds to it, and nothing takes away from it.
seconds() {
  local best='' now
  for _ in 1 2 3; do
    now=$({ TIMEFORMAT='%U %S'; time "$bin/nsa-compile" "$1" \
      -o "$scratch/model.nsax" > /dev/null 2> "$scratch/log"; } 2>&1 |
      awk '{ print $1 + $2 }')
    [ -s "$scratch/model.nsax" ] || fail "$(cat "$scratch/log")"
    best=$(printf '%s\n%s\n' "$now" "$best" | awk 'NF' | sort -g | head -n 1)
  done
  echo "$best"
}

# within LABEL SECONDS LIMIT
within() {
  echo "$1: $2 (at most $3)"
  awk -v a="$2" -v b="$3" 'BEGIN { exit !(a <= b) }' || fail "$1: $2 > $3"
}

"$bin/nsa-model" "$configs/showcase.yaml" -o "$scratch/showcase.mlir"
"$bin/nsa-model" "$configs/m7c_125m.yaml" -o "$scratch/twelve.mlir"
"$bin/nsa-model" "$configs/m7c_125m.yaml" --set model.n_layers=24 \
  -o "$scratch/twenty-four.mlir"
within "showcase, seconds" "$(seconds "$scratch/showcase.mlir")" 5
twelve=$(seconds "$scratch/twelve.mlir")
within "12 layers, seconds" "$twelve" 15
more=$(seconds "$scratch/twenty-four.mlir")
within "24 layers over 12" \
  "$(awk -v a="$more" -v b="$twelve" 'BEGIN { printf "%.3f", a / b }')" 1.3
