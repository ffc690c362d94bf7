#!/usr/bin/env bash
# clang-tidy is clean on the C++ files that changed since NSA_TIDY_BASE (the
# parent of the last commit by default). Needs the build's compile commands.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
base=${NSA_TIDY_BASE:-HEAD~1}
git rev-parse -q --verify "$base" > /dev/null || base=$(git hash-object -t tree /dev/null)
mapfile -t files < <(git diff --name-only --diff-filter=d "$base" -- '*.cpp')
if [ ${#files[@]} -eq 0 ]; then
  echo "no C++ file changed since $base"
  exit 0
fi
printf '%s\n' "${files[@]}" |
  xargs -P 2 -n 1 clang-tidy-22 -p build --quiet 2> build/tidy.log || {
  grep -E 'error:' build/tidy.log | head -20 >&2
  exit 1
}
echo "${#files[@]} files are clean"
