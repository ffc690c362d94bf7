#!/usr/bin/env bash
# nsa.torch: 200 random shapes against fp64, and what PyTorch does with operators.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

python=$(test/python-env.sh)
# One thread of PyTorch a process: most of the time goes to compiling.
OMP_NUM_THREADS=1 NSA_TORCH_SHAPES=${NSA_TORCH_SHAPES:-200} \
  "$python" -m pytest -q -n "$(nproc)" test/python/test_torch*.py
