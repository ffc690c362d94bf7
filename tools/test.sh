#!/usr/bin/env bash
# Installs what is missing, builds, and runs every test: format and layering,
# unit, lit, Python and end-to-end tests. What needs another build is in
# tools/nightly.sh.
#   NSA_TEST_SUITE=full   long lists instead of seeded samples
#   NSA_TEST_SEED=N       seed of the random tests (printed): fresh in the full
#                         suite, otherwise a fixed sample
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
sample=1795224286
[ "${NSA_TEST_SUITE:-}" = full ] && sample=$(date +%s)
export NSA_TEST_SEED=${NSA_TEST_SEED:-$sample}
# What several tests compile is compiled once, but where a test says otherwise.
export NSA_KERNEL_CACHE=${NSA_KERNEL_CACHE-$PWD/build/kernel-cache}
. test/suites.inc

# What the Python tests take is made while the build runs; they wait for it.
tools/setup.sh build.ninja || exit 1
test/python-env.sh > /dev/null 2>&1 &
tools/setup.sh all || exit 1

# With the machine for itself.
check "end-to-end: compile-time" bash test/e2e/compile-time.sh

python_tests() {
  local python parallel=(-n 2 --dist loadfile)
  python=$(test/python-env.sh) || {
    echo "the Python tests run without what is in tools/requirements-test.txt"
    python=/usr/bin/python3 parallel=()
  }
  OMP_NUM_THREADS=1 NSA_TORCH_SHAPES=4 "$python" -m pytest -q -rs "${parallel[@]}" test/python
}

# Most of these have one process at a time.
small_suites() {
  check "installation" test/check-install.sh
  check "runtime package" test/check-package.sh
  for script in test/e2e/*.sh; do
    name=$(basename "$script" .sh)
    # One is above, whole trainings and what takes PyTorch are in tools/nightly.sh.
    case $name in compile-time | markov | m7c | walk-torch | walk-hf | two-machines) continue ;; esac
    check "end-to-end: $name" bash "$script"
  done
  check "Python tests" python_tests
  check "reliability" test/reliability.sh
  check "fuzz regressions" test/fuzz/run.sh --regressions
}
beside small_suites
check "format" test/check-format.sh
check "terms" test/check-terms.sh
check "clang-tidy" test/check-tidy.sh
check "layering" test/check-layering.sh
check "documentation" tools/docs.py check
check "lessons" test/check-lessons.py
judge() {
  local python parallel=(-n 2)
  python=$(test/python-env.sh) || python=/usr/bin/python3 parallel=()
  OMP_NUM_THREADS=1 NSA_JUDGE_COUNT=1 NSA_JUDGE_EMULATED=1 NSA_JUDGE_PROGRAMS=12 NSA_JUDGE_TRAINING=6 \
    "$python" -m pytest -q -rs "${parallel[@]}" test/judge
}
# Many wait for time-outs.
check "unit tests" ctest --test-dir build --output-on-failure -j3
check "generated code" test/codegen.py check --only smoke showcase m7c_125m-sm_90a decode-sm_90a losses
check "shapes of public models" test/shapes.py --quick
check "lit tests" ninja -C build check-nsa-lit
check "judge" judge
join

report
