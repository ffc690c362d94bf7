#!/usr/bin/env bash
# What test/gpu/lessons.py checks on a GPU, here on the processor and with a
# small model.
source "$(dirname "${BASH_SOURCE[0]}")/common.inc"

lessons=$root/test/gpu/lessons.py
python=/usr/bin/python3
"$python" "$lessons" prepare "$scratch/jobs" --build "$bin/.." --target cpu \
  --config smoke > "$scratch/log" 2>&1 || fail "$(tail -20 "$scratch/log")"
"$python" "$lessons" run "$scratch/jobs" --out "$scratch/runs" ||
  fail "a lesson was forgotten"

rm "$scratch/jobs/memory-2048.nsax"
"$python" "$lessons" run "$scratch/jobs" --out "$scratch/runs" \
  --only lesson-17 > "$scratch/log" 2>&1 && fail "a model is missing, and nothing failed"
grep -q "memory-2048.nsax" "$scratch/log" || fail "the missing model is not named"
