#!/usr/bin/env bash
# Installs what is missing, builds, and runs every test: format and layering,
# unit, lit, Python and end-to-end tests.
#   NSA_TEST_SUITE=full   long lists instead of seeded samples
#   NSA_TEST_SEED=N       seed of the random tests (printed): fresh in the full
#                         suite, otherwise a fixed sample
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
start=$SECONDS
sample=1795224286
[ "${NSA_TEST_SUITE:-}" = full ] && sample=$(date +%s)
export NSA_TEST_SEED=${NSA_TEST_SEED:-$sample}
passed=0
failed=()

# check NAME COMMAND...: runs one suite; its output is shown as it comes.
check() {
  local name=$1 began=$SECONDS
  shift
  printf '\n==> %s\n' "$name"
  if "$@"; then
    passed=$((passed + 1))
    printf '==> %s: passed (%d s)\n' "$name" $((SECONDS - began))
  else
    failed+=("$name")
    printf '==> %s: FAILED (%d s)\n' "$name" $((SECONDS - began))
  fi
}

tools/setup.sh all || exit 1

check "format" test/check-format.sh
check "clang-tidy" test/check-tidy.sh
check "layering" test/check-layering.sh
check "lessons" test/check-lessons.py
check "unit tests" ctest --test-dir build --output-on-failure -j2
check "lit tests" ninja -C build check-nsa-lit
check "installation" test/check-install.sh
check "runtime package" test/check-package.sh
check "Python tests" /usr/bin/python3 -m pytest -q test/python
for script in test/e2e/*.sh; do
  check "end-to-end: $(basename "$script" .sh)" bash "$script"
done
check "runtime without LLVM" test/check-runtime-only.sh
check "sanitizers" test/check-sanitize.sh
# Seven targets in three rounds.
fuzz=(60 --jobs 3)
[ "${NSA_TEST_SUITE:-}" = full ] && fuzz=(600 --instrumented)
check "fuzzing" test/fuzz/run.sh "${fuzz[@]}"

printf '\nseed %s, %d s\n' "$NSA_TEST_SEED" $((SECONDS - start))
for name in "${failed[@]}"; do printf 'FAILED: %s\n' "$name"; done
printf '%d passed, %d failed\n' "$passed" ${#failed[@]}
[ ${#failed[@]} -eq 0 ]
