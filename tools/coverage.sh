#!/usr/bin/env bash
# Which lines and functions the tests run, by folder, by Clang's source-based
# coverage. Builds into build-coverage, without the compiler cache: an hour on two
# cores for everything.
#   tools/coverage.sh                 unit, lit and Python tests of everything
#   tools/coverage.sh TARGET...       only these unit tests (CMake targets)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
llvm=${NSA_LLVM:-/usr/lib/llvm-22}
build=$PWD/build-coverage

flags="-fprofile-instr-generate -fcoverage-mapping"
cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release \
  -DCMAKE_C_COMPILER=clang-22 -DCMAKE_CXX_COMPILER=clang++-22 \
  -DCMAKE_C_FLAGS="$flags" -DCMAKE_CXX_FLAGS="$flags" \
  -DCMAKE_C_COMPILER_LAUNCHER= -DCMAKE_CXX_COMPILER_LAUNCHER=env > "$build-configure.log" 2>&1 || {
    cat "$build-configure.log" >&2
    exit 1
  }
mv "$build-configure.log" "$build/configure.log"

# One file for each program: runs of the same program merge into it.
rm -rf "$build/profiles"
mkdir -p "$build/profiles"
export LLVM_PROFILE_FILE="$build/profiles/%m.profraw"
status=0
if [ $# -gt 0 ]; then
  ninja -C "$build" "$@"
  for target in "$@"; do
    "$build/test/unit/$target" --gtest_brief=1 || status=1
  done
else
  ninja -C "$build" all
  ctest --test-dir "$build" --output-on-failure -j2 || status=1
  ninja -C "$build" check-nsa-lit || status=1
  NSA_PYTHON_PATH="$build/python" /usr/bin/python3 -m pytest -q test/python || status=1
fi

"$llvm/bin/llvm-profdata" merge -sparse "$build"/profiles/*.profraw -o "$build/coverage.profdata"
objects=()
while read -r file; do
  objects+=(-object "$file")
done < <(find "$build/bin" "$build/test" "$build/python" "$build/lib" -type f \( -perm -u+x -o -name '*.so' \) \
  -exec sh -c 'head -c 4 "$1" | grep -q ELF' _ {} \; -print 2> /dev/null)
"$llvm/bin/llvm-cov" export -summary-only -instr-profile "$build/coverage.profdata" "${objects[@]}" \
  -ignore-filename-regex='(^/usr/|/build-coverage/|/test/)' > "$build/coverage.json"
python3 - "$PWD" "$build/coverage.json" <<'PYTHON'
import collections
import json
import os
import sys

root, path = sys.argv[1:]
with open(path) as file:
    files = json.load(file)["data"][0]["files"]
sums = collections.defaultdict(lambda: [0, 0, 0, 0])
for entry in files:
    folder = os.path.dirname(os.path.relpath(entry["filename"], root))
    lines, functions = entry["summary"]["lines"], entry["summary"]["functions"]
    for name in (folder, "all"):
        for i, part in enumerate((lines["covered"], lines["count"], functions["covered"], functions["count"])):
            sums[name][i] += part
print(f"{'folder':44} {'lines':>22} {'functions':>20}")
for name, (lines, of_lines, functions, of_functions) in sorted(sums.items(), key=lambda x: (x[0] == "all", x[0])):
    print(f"{name:44} {lines:7} of {of_lines:6} {100 * lines / max(of_lines, 1):4.0f}% "
          f"{functions:5} of {of_functions:5} {100 * functions / max(of_functions, 1):4.0f}%")
PYTHON
exit $status
