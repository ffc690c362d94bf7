#!/usr/bin/env bash
# `cmake --install` puts tools, libraries, headers, documentation and the Python
# module in place, and they work from there: every tool starts, a model compiles
# and runs, and a program of another project links the runtime and the compiler.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source=$PWD
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
prefix=$root/prefix

cmake --install build --prefix "$prefix" > "$root/install.log"

for tool in nsa-compile nsa-data nsa-dump nsa-eval nsa-export nsa-generate nsa-import nsa-model nsa-opt nsa-run nsa-serve nsa-train; do
  "$prefix/bin/$tool" --version | grep -q "$tool 0\." || {
    echo "error: $tool --version" >&2
    exit 1
  }
done
# A tool whose reader has left is stopped, so the text is read to its end.
help=$("$prefix/bin/nsa-lsp-server" --help)
grep -q '^OPTIONS' <<< "$help" || {
  echo "error: nsa-lsp-server --help" >&2
  exit 1
}
# Nothing of the build tree is needed.
mapfile -t programs < <(grep -laP '^\x7fELF' "$prefix"/bin/* "$prefix"/lib/python/nsa/*.so)
if readelf -d "${programs[@]}" | grep -F "$source"; then
  echo "error: the run paths above lead into the source tree" >&2
  exit 1
fi

cd "$root"
"$prefix/bin/nsa-model" "$source/configs/smoke.yaml" -o model.mlir
"$prefix/bin/nsa-compile" model.mlir -o model.nsax
"$prefix/bin/nsa-opt" model.mlir --nsa-phase-precision -o /dev/null
"$prefix/bin/nsa-dump" model.nsax --memory > memory.txt
"$prefix/bin/nsa-run" model.nsax --entry init > /dev/null
PYTHONPATH=$prefix/lib/python /usr/bin/python3 -c 'import nsa; nsa.compile("""
func.func @f(%x: tensor<4xf32> {nn.name = "x"}) -> (tensor<4xf32> {nn.name = "y"}) {
  %y = nn.silu %x : (tensor<4xf32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}
""")'
for page in dialects/NSADialect dialects/NNDialect dialects/TileDialect \
  dialects/RTDialect passes/NSAGraphPasses; do
  test -s "$prefix/share/doc/nsa/$page.md"
done
test -s "$prefix/share/doc/nsa/LICENSE" -a -s "$prefix/share/doc/nsa/THIRD-PARTY.txt"

cmake -S "$source/test/install" -B other -G Ninja -DCMAKE_PREFIX_PATH="$prefix" \
  -DCMAKE_CXX_COMPILER=clang++-22 > other.log || { cat other.log >&2; exit 1; }
ninja -C other > other.log || { cat other.log >&2; exit 1; }
other/run-model model.nsax
other/compile-and-run
echo "the installation works"
