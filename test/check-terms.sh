#!/usr/bin/env bash
# Greps the tree for words that have a term of art: test/terms.txt.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
status=0
while IFS=$'\t' read -r expression folders instead; do
  case $expression in '' | '#'*) continue ;; esac
  # shellcheck disable=SC2086
  if git grep -nIE -e "$expression" -- $folders ':!test/terms.txt' ':!*.svg' ':!LICENSE' ':!tools/package/THIRD-PARTY.txt' ':!CHANGELOG.md'; then
    echo "error: '$expression': say $instead (test/terms.txt)" >&2
    status=1
  fi
done < test/terms.txt
exit $status
