#!/usr/bin/env bash
# The commands of docs/data.md, with the libraries that read tables and tokenize.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

python=$(test/python-env.sh)
# The page, in a folder that looks like the sources with a build in it.
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
ln -s "$PWD/build" "$PWD/docs" "$PWD/lib" "$scratch"
export PATH=$(dirname "$python"):$PATH PYTHONPATH=$PWD/build/python XDG_CACHE_HOME=$scratch/cache
page=$PWD/docs/data.md
cd "$scratch"
{
  echo 'set -euo pipefail'
  sed -n '/^```sh$/,/^```$/p' "$page" | grep -v '^```'
} > commands
bash commands
sed -n '/^```python$/,/^```$/p' "$page" | grep -v '^```' > example.py
"$python" example.py
