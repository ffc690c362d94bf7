#!/usr/bin/env bash
# nsa.data with the libraries that read tables and tokenize, which the other
# Python tests do without where they are not installed; and the commands of
# docs/data.md.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

packages=build/data-packages
cmp -s tools/requirements-data.txt "$packages/requirements.txt" || {
  rm -rf "$packages"
  /usr/bin/python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --no-deps \
    --target "$packages" -r tools/requirements-data.txt
  cp tools/requirements-data.txt "$packages"
}
export PYTHONPATH=$PWD/$packages
/usr/bin/python3 -c 'import pyarrow, tokenizers, zstandard'
/usr/bin/python3 -m pytest -q test/python/test_data.py

# The page, in a folder that looks like the sources with a build in it.
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
ln -s "$PWD/build" "$PWD/docs" "$PWD/lib" "$scratch"
mkdir "$scratch/path" && ln -s /usr/bin/python3 "$scratch/path"
export PATH=$scratch/path:$PATH PYTHONPATH=$PYTHONPATH:$PWD/build/python XDG_CACHE_HOME=$scratch/cache
page=$PWD/docs/data.md
cd "$scratch"
{
  echo 'set -euo pipefail'
  sed -n '/^```sh$/,/^```$/p' "$page" | grep -v '^```'
} > commands
bash commands
sed -n '/^```python$/,/^```$/p' "$page" | grep -v '^```' > example.py
/usr/bin/python3 example.py
