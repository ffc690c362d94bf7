#!/usr/bin/env bash
# nsa.torch with the pinned PyTorch: 200 random shapes against fp64, and what
# PyTorch does with operators. NSA_TORCH_PYTHON is an interpreter that has it
# already; otherwise it is installed in build/torch, which takes 6 GB.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

python=${NSA_TORCH_PYTHON:-build/torch/bin/python}
if [ -z "${NSA_TORCH_PYTHON:-}" ] && ! "$python" -c 'import torch, xdist' 2> /dev/null; then
  /usr/bin/python3 -m venv build/torch
  "$python" -m pip install --quiet --disable-pip-version-check -r tools/requirements-torch.txt
fi
# One thread of PyTorch a process: most of the time goes to compiling.
OMP_NUM_THREADS=1 NSA_TORCH_SHAPES=${NSA_TORCH_SHAPES:-200} \
  "$python" -m pytest -q -n "$(nproc)" test/python/test_torch*.py
