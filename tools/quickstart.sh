#!/usr/bin/env bash
# From a fresh Debian 12 machine to a trained sparse-attention language model:
# installs, builds, makes shards from the documentation and headers that the
# build's own dependencies install, compiles the showcase model, trains it, and
# lets it continue a text.
#
#   tools/quickstart.sh [OPTION of nsa-train but --out-dir and --run-name...]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
start=$SECONDS

tools/setup.sh nsa-model nsa-compile nsa-data nsa-train nsa-generate
bin=build/bin
work=build/quickstart
mkdir -p "$work"

if [ ! -f "$work/shards/manifest.json" ]; then
  printf '\n==> packing text into token shards\n'
  $bin/nsa-data pack /usr/lib/llvm-22/include/mlir /usr/include/c++ \
    --max-bytes 24000000 -o "$work/shards"
fi

printf '\n==> compiling and training the showcase model (set-up took %d s)\n' \
  $((SECONDS - start))
name=$(date +%Y-%m-%d_%H-%M-%S)
$bin/nsa-train configs/showcase.yaml --data "$work/shards" \
  --out-dir "$work/runs" --run-name "$name" "$@"

printf '\n==> continuing "#include " with the model\n'
$bin/nsa-generate "$work/runs/$name" --prompt '#include ' --tokens 300 \
  --temperature 0.7

printf '\nThe other programs (nsa-eval, nsa-export, nsa-opt, ...) and the Python module: tools/setup.sh all\n'
