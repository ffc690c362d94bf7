#!/usr/bin/env bash
# The folder rule of README: who may include whom, and what the tools that run
# without a compiler may need at run time.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
status=0

# forbid FOLDERS PATTERN: no file of the folders includes what matches.
forbid() {
  if grep -rnE "#include [\"<]($2)" $1 --include='*.h' --include='*.cpp'; then
    echo "error: the files above include what their folder may not depend on" >&2
    status=1
  fi
}
forbid "include/nsa/Artifact include/nsa/Runtime include/nsa/Support lib/Support runtime" \
  'mlir/|llvm/|dialects/|passes/'
forbid "dialects" 'passes/|lib/|runtime/|tools/'
forbid "dialects/Interfaces" 'dialects/(NN|NSA|RT|Tile|TileGPU)/'
forbid "dialects/NN" 'dialects/(NSA|RT|Tile|TileGPU)/'
forbid "dialects/NSA" 'dialects/(RT|Tile|TileGPU)/'
forbid "dialects/RT" 'dialects/(NN|NSA|Tile|TileGPU)/'
forbid "dialects/Tile dialects/TileGPU" 'dialects/(NN|NSA|RT)/'
forbid "passes" 'lib/|runtime/|tools/'
# Options go from the command line to the pipelines in one struct.
forbid "dialects passes" 'nsa/(Compiler/Compiler|Runtime/)'
forbid "dialects passes/Graph passes/Kernels passes/Host passes/TileGPU passes/TileToCPU" 'nsa/Compiler/'
forbid "lib" 'runtime/|tools/'
forbid "include/nsa" 'lib/|runtime/|dialects/|passes/|tools/'
forbid "runtime" 'lib/(Reference|Frontend|Target|Compiler|Python)|tools/'

for tool in nsa-run nsa-train nsa-generate nsa-dump nsa-data; do
  extra=$(ldd "build/bin/$tool" | awk '{print $1}' |
    grep -vE '^(linux-vdso|libstdc\+\+|libm|libgcc_s|libc|/lib64/ld-linux)' || true)
  if [ -n "$extra" ]; then
    echo "error: $tool needs more than libc, libstdc++, libm, libgcc: $extra" >&2
    status=1
  fi
done
exit $status
