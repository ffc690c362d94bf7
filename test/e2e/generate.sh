#!/usr/bin/env bash
# test/gpu/generate.py on the processor: decoding selects the blocks that whole
# sequences do, and a failure is one.
source "$(dirname "${BASH_SOURCE[0]}")/common.inc"

script=$root/test/gpu/generate.py
python=/usr/bin/python3
"$python" "$script" prepare "$scratch/f" --build "$bin/.." --target cpu --small \
  --only bf16-blocks fp32-blocks > "$scratch/log" 2>&1 ||
  fail "$(tail -20 "$scratch/log")"
run() { "$python" "$script" run "$scratch/f" --out "$scratch/o" > "$scratch/log" 2>&1; }
run || fail "$(tail -20 "$scratch/log")"
[ "$(grep -c 'blocks: 0 of 2048 lists of blocks differ.* passed$' "$scratch/log")" -eq 2 ] ||
  fail "$(cat "$scratch/log")"
# A program that selects other blocks.
sed 's/count = 4>/count = 4, initial = 2>/' "$script" > "$scratch/other.py"
cp "$root/test/gpu/jobs.py" "$scratch"
"$python" "$scratch/other.py" prepare "$scratch/g" --build "$bin/.." --target cpu --small \
  --only fp32-blocks > "$scratch/log" 2>&1
cp "$scratch/g/fp32-blocks-decode.nsax" "$scratch/f"
run && fail "other blocks are selected, and nothing failed"
exit 0
