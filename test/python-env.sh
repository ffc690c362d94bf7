#!/usr/bin/env bash
# Prints a Python that has tools/requirements-test.txt: that of NSA_TEST_PYTHON, or of
# a virtual environment that is made once for these requirements, outside of all
# builds. A second caller waits while the first makes it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if [ -n "${NSA_TEST_PYTHON:-}" ]; then
  echo "$NSA_TEST_PYTHON"
  exit
fi
requirements=tools/requirements-test.txt
key=$({ /usr/bin/python3 --version && cat "$requirements"; } | sha256sum | cut -c1-12)
folder=${XDG_CACHE_HOME:-$HOME/.cache}/nsa/python-$key
mkdir -p "$(dirname "$folder")"
exec 9> "$folder.lock"
flock 9
if [ ! -e "$folder/complete" ]; then
  rm -rf "$folder"
  { /usr/bin/python3 -m venv "$folder" &&
    "$folder/bin/python" -m pip install --quiet --disable-pip-version-check --retries 1 -r "$requirements"; } \
    > "$folder.log" 2>&1 9>&- || {
    echo "error: $requirements cannot be installed: $(tail -n 1 "$folder.log") ($folder.log)" >&2
    exit 1
  }
  touch "$folder/complete"
fi
echo "$folder/bin/python"
