#!/usr/bin/env bash
# docs/add-an-op.md as its reader tries it: applies the diffs of the page to a
# copy of this commit, builds it, and lets the tests that the page names judge it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
tree=build/add-an-op
git worktree remove --force "$tree" 2> /dev/null || true
git worktree add --quiet --force --detach "$tree" HEAD
trap 'git worktree remove --force "$tree"' EXIT
cd "$tree"
sed -n '/^```diff$/,/^```$/p' docs/add-an-op.md | sed '/^```/d' | git apply --recount
files=$(git status --porcelain | wc -l)
if [ "$files" -eq 0 ] || [ "$files" -gt 9 ]; then
  echo "error: the branch of docs/add-an-op.md is in $files files, expected 1 to 9" >&2
  exit 1
fi
cmake --preset default > /dev/null
ninja -C build > /dev/null
"$(find build -name VisibilityTest -type f)"
OMP_NUM_THREADS=1 NSA_JUDGE_COUNT=2 NSA_JUDGE_PROGRAMS=40 NSA_JUDGE_EMULATED=1 NSA_JUDGE_TRAINING=0 \
  "$(test/python-env.sh)" -m pytest -q test/judge
