#!/usr/bin/env bash
# The project configures, builds and passes its runtime tests without LLVM.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
cmake --preset runtime > build/runtime-configure.log 2>&1 || {
  cat build/runtime-configure.log >&2
  exit 1
}
! grep -qi 'llvm_dir\|mlir_dir' build-runtime/CMakeCache.txt
ninja -C build-runtime
ctest --test-dir build-runtime --output-on-failure
