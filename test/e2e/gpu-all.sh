#!/usr/bin/env bash
# test/gpu/all.py with kernels alone, on the processor: a table and exit code 0;
# what fails, is not prepared or does not exist is said.
source "$(dirname "${BASH_SOURCE[0]}")/common.inc"

all=$root/test/gpu/all.py
python=/usr/bin/python3
"$python" "$all" prepare "$scratch/f" --build "$bin/.." --target cpu --shapes 1 \
  --work 1e5 --modules 1 --seed "${NSA_TEST_SEED:-$RANDOM}" --only kernels > "$scratch/log" 2>&1 ||
  fail "$(tail -20 "$scratch/log")"
run() { "$python" "$all" run "$scratch/f" --out "$scratch/o" "$@" > "$scratch/log" 2>&1; }

run --only kernels || fail "$(tail -40 "$scratch/log")"
grep -q '^kernels *pass' "$scratch/log" || fail "no table"
run && fail "training is not prepared, and nothing failed"
grep -q "holds no 'lessons'" "$scratch/log" || fail "what is missing is not named"
run --only kernel && fail "there is no 'kernel', and nothing failed"
rm "$(find "$scratch/f/kernels" -name 'module-*.nsax' | sort | head -n 1)"
run --only kernels && fail "an artefact is missing, and nothing failed"
grep -q '^kernels *FAIL' "$scratch/log" || fail "the table hides a failure"
exit 0
