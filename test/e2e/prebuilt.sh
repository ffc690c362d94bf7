#!/usr/bin/env bash
# Kernels and random modules compiled here are tested by a program without a
# compiler, as on a GPU box: with poisoned memory, every entry three times with
# the same bits. Wrong results and missing artefacts are failures.
source "$(dirname "${BASH_SOURCE[0]}")/common.inc"

tests=$root/build/test/gpu
seed=${NSA_TEST_SEED:-$RANDOM}
echo "seed $seed"
"$tests/nsa-prebuild" "$scratch/kernels" cpu 3 "$seed" 6 5e6 ||
  fail "compiling the modules"
NSA_PREBUILT=$scratch/kernels NSA_TEST_REPEATS=3 \
  "$tests/PrebuiltKernelsTest" > "$scratch/log" 2>&1 || {
  tail -40 "$scratch/log" >&2
  fail "the kernels"
}
grep PASSED "$scratch/log"

# The last element of each random module's cases becomes 1e5.
for cases in "$scratch"/kernels/*.cases; do
  printf '\x00\x50\xc3\x47\n' |
    dd of="$cases" bs=1 seek=$(($(stat -c %s "$cases") - 5)) conv=notrunc status=none
done
NSA_PREBUILT=$scratch/kernels "$tests/PrebuiltKernelsTest" \
  --gtest_filter='*Modules*' > "$scratch/log" 2>&1 &&
  fail "a result is wrong, and nothing failed"
grep -q 'the largest element is' "$scratch/log" || fail "no wrong result is named"

# Not one of them: which tests would read it?
rm "$scratch"/kernels/[0-9a-f]*.nsax
NSA_PREBUILT=$scratch/kernels "$tests/PrebuiltKernelsTest" \
  --gtest_filter='*AllKernels*' > "$scratch/log" 2>&1 &&
  fail "artefacts are missing, and nothing failed"
grep -q 'No such file' "$scratch/log" || fail "a missing artefact is not named"
"$tests/PrebuiltKernelsTest" > "$scratch/log" 2>&1 &&
  fail "no folder, and nothing failed"
exit 0
