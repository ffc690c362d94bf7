#!/usr/bin/env bash
# Makes faults and counts how the tools end: kills, failing writes, damaged files,
# lost ranks, strangers, signals. See docs/reliability.md.
#   test/reliability.sh [--full] [--only ROW] [--case N] [--seed N]
set -euo pipefail
exec /usr/bin/python3 "$(dirname "${BASH_SOURCE[0]}")/reliability/main.py" "$@"
