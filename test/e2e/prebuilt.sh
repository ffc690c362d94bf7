#!/usr/bin/env bash
# Kernels compiled here are tested by a program without a compiler, as on a GPU
# box: on fresh inputs, with poisoned memory, every entry three times with the
# same bits. Without artefacts it fails.
source "$(dirname "${BASH_SOURCE[0]}")/common.inc"

tests=$root/build/test/gpu
"$tests/nsa-prebuild" "$scratch/kernels" cpu 3 "$RANDOM" 5e6 ||
  fail "compiling the modules"
NSA_PREBUILT=$scratch/kernels NSA_TEST_REPEATS=3 \
  "$tests/PrebuiltKernelsTest" > "$scratch/log" 2>&1 || {
  tail -40 "$scratch/log" >&2
  fail "the kernels"
}
grep PASSED "$scratch/log"

rm "$(find "$scratch/kernels" -name '*.nsax' | sort | head -n 1)"
NSA_PREBUILT=$scratch/kernels "$tests/PrebuiltKernelsTest" \
  > "$scratch/log" 2>&1 && fail "an artefact is missing, and nothing failed"
grep -q 'No such file' "$scratch/log" || fail "a missing artefact is not named"
"$tests/PrebuiltKernelsTest" > "$scratch/log" 2>&1 &&
  fail "no folder, and nothing failed"
exit 0
