#!/usr/bin/env bash
# The Python module with releases of NumPy whose binary layouts differ; the
# other Python tests use the system's.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

for version in 1.26.4 2.4.6; do
  packages=build/numpy-$version
  [ -d "$packages/numpy" ] && [ -d "$packages/ml_dtypes" ] ||
    /usr/bin/python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore \
      --target "$packages" "numpy==$version" ml_dtypes
  found=$(PYTHONPATH=$packages /usr/bin/python3 -c 'import numpy; print(numpy.__version__)')
  [ "$found" = "$version" ] || {
    echo "error: NumPy $found was imported, not $version" >&2
    exit 1
  }
  printf 'NumPy %s: ' "$version"
  PYTHONPATH=$packages /usr/bin/python3 -m pytest -q test/python/test_module.py test/python/test_api.py
done
