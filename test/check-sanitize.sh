#!/usr/bin/env bash
# What lives without LLVM passes its tests under AddressSanitizer, LeakSanitizer
# and UndefinedBehaviorSanitizer. Always: the unit tests of readers, runtime and
# data, and a short training run that is resumed. With NSA_TEST_SUITE=full: all
# unit tests, and the tools' lit tests.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
tests=(ConfigTest CUDATest DataTest FilesTest NpyTest RuntimeTest TextTest)
targets=("${tests[@]}" nsa-train nsa-data)
if [ "${NSA_TEST_SUITE:-}" = full ]; then
  targets=(all)
  tests=(.)
fi
mkdir -p build-sanitize
cmake --preset sanitize > build-sanitize/configure.log 2>&1 || {
  cat build-sanitize/configure.log >&2
  exit 1
}
ninja -C build-sanitize --quiet "${targets[@]}"
export ASAN_OPTIONS=detect_leaks=1:detect_stack_use_after_return=1:strict_init_order=1
export UBSAN_OPTIONS=print_stacktrace=1
export OPENBLAS_NUM_THREADS=1
ctest --test-dir build-sanitize --output-on-failure -j2 \
  --tests-regex "$(IFS='|'; echo "${tests[*]}")"

# A training run with the artefact of the default build.
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
build/bin/nsa-model configs/smoke.yaml -o "$scratch/smoke.mlir"
build/bin/nsa-compile "$scratch/smoke.mlir" -o "$scratch/smoke.nsax" 2> /dev/null
build-sanitize/bin/nsa-data synth --tokens 50000 --vocab 16 -o "$scratch/data" > /dev/null
train() {
  build-sanitize/bin/nsa-train "$scratch/smoke.nsax" --config configs/smoke.yaml \
    --data "$scratch/data" --out-dir "$scratch/runs" --no-progress \
    --set train.steps=12 --set train.warmup_steps=2 --set train.save_every=6 \
    --set train.eval_every=6 \
    "$@" > "$scratch/log" 2>&1 || {
    tail -20 "$scratch/log" >&2
    exit 1
  }
}
train --stop-after 6
train --resume auto
echo "a training run of 12 steps, resumed at the 6th, is clean"

[ "${NSA_TEST_SUITE:-}" = full ] || exit 0
lit=$(sed -n 's/^LLVM_EXTERNAL_LIT:[^=]*=//p' build/CMakeCache.txt)
"$lit" --quiet -j2 build/test/tools \
  --param "runtime_tools=$PWD/build-sanitize/bin" \
  --param "exec_root=$PWD/build-sanitize/test"
echo "the tools' lit tests pass"
