#!/usr/bin/env bash
# What lives without LLVM (runtime, readers, tools) passes its tests under
# AddressSanitizer, LeakSanitizer and UndefinedBehaviorSanitizer: the unit
# tests, and the tools' lit tests where the default build has a compiler to
# make artefacts with.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
mkdir -p build-sanitize
cmake --preset sanitize -DNSA_BUILD_COMPILER=OFF \
  > build-sanitize/configure.log 2>&1 || {
  cat build-sanitize/configure.log >&2
  exit 1
}
ninja -C build-sanitize --quiet
export ASAN_OPTIONS=detect_leaks=1:detect_stack_use_after_return=1:strict_init_order=1
export UBSAN_OPTIONS=print_stacktrace=1
ctest --test-dir build-sanitize --output-on-failure

if [ -x build/bin/nsa-compile ] && [ -f build/test/lit.site.cfg.py ]; then
  lit=$(sed -n 's/^LLVM_EXTERNAL_LIT:[^=]*=//p' build/CMakeCache.txt)
  "$lit" --quiet -j2 build/test/tools \
    --param "runtime_tools=$PWD/build-sanitize/bin" \
    --param "exec_root=$PWD/build-sanitize/test"
  echo "the tools' lit tests pass"
else
  echo "no compiler in build/: the tools' lit tests are left out"
fi
