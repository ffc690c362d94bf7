#!/usr/bin/env bash
# Every C++ file has the format of .clang-format.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
mapfile -t files < <(git ls-files '*.cpp' '*.h')
clang-format-22 --dry-run -Werror "${files[@]}"
echo "${#files[@]} files are formatted"
