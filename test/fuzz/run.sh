#!/usr/bin/env bash
# Builds the fuzz targets in build-fuzz and runs each for some time under
# AddressSanitizer and UndefinedBehaviorSanitizer.
#   test/fuzz/run.sh [--seconds N] [--no-build] [TARGET...]
# Inputs start from what make-corpus.py derives from tools and tests, from the
# regressions beside this script, and from what earlier runs found. A crash
# fails the run; its input lies in build-fuzz/findings/TARGET. For OptFuzzer,
# findings whose stack has no frame of this project are listed and do not fail:
# LLVM comes from the distribution.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
root=$PWD
seconds=60
build=1
targets=()
while [ $# -gt 0 ]; do
  case "$1" in
    --seconds) seconds=$2; shift 2 ;;
    --no-build) build=0; shift ;;
    -*) echo "usage: test/fuzz/run.sh [--seconds N] [--no-build] [TARGET...]" >&2; exit 2 ;;
    *) targets+=("$1"); shift ;;
  esac
done
if [ ${#targets[@]} -eq 0 ]; then
  targets=(ArtifactFuzzer ConfigFuzzer ManifestFuzzer NpyFuzzer SafetensorsFuzzer
    ShardFuzzer OptFuzzer)
fi

if [ "$build" -eq 1 ]; then
  mkdir -p build-fuzz
  cmake --preset fuzz > build-fuzz/configure.log 2>&1 || {
    cat build-fuzz/configure.log >&2
    exit 1
  }
  ninja -C build-fuzz --quiet "${targets[@]}"
fi
python3 test/fuzz/make-corpus.py build build-fuzz/corpus

llvm_bin=$(sed -n 's/^LLVM_TOOLS_BINARY_DIR:[^=]*=//p' build/CMakeCache.txt)
export ASAN_SYMBOLIZER_PATH=${llvm_bin:-/usr/lib/llvm-22/bin}/llvm-symbolizer
export ASAN_OPTIONS=detect_stack_use_after_return=1
export UBSAN_OPTIONS=print_stacktrace=1

# has_our_frame LOG: the first stack in it names a source file of ours.
has_our_frame() {
  awk '/^ *#0 /{stack++} stack <= 1 && /^ *#[0-9]+ /' "$1" |
    grep -v "$root/test/fuzz/" |
    grep -qE "$root/(build-fuzz/)?(dialects|passes|lib|runtime|include/nsa|tools)/"
}

# judge TARGET FILE: runs one finding again and says whose it is.
judge() {
  local log=$2.log
  timeout 300 "build-fuzz/fuzz/$1" -rss_limit_mb=4096 -timeout=100 "$2" > "$log" 2>&1 && {
    echo "  does not happen again: $2"
    return 0
  }
  local what
  what=$(grep -a -m1 -E '^violated:|Assertion|runtime error|^SUMMARY|LLVM ERROR' "$log" || true)
  if [ "$1" = OptFuzzer ] && ! grep -aq '^violated:' "$log" && ! has_our_frame "$log"; then
    echo "  in LLVM alone: $2: $what"
    return 0
  fi
  echo "  FOUND $2: $what"
  echo "        again with: build-fuzz/fuzz/$1 $2"
  return 1
}

status=0
for target in "${targets[@]}"; do
  corpus=build-fuzz/corpus/$target
  findings=build-fuzz/findings/$target
  rm -rf "$findings"
  mkdir -p "$corpus/grown" "$findings"
  log=build-fuzz/findings/$target.log

  # What was found once must not come back.
  regressions=()
  if [ -d "test/fuzz/regressions/$target" ]; then
    regressions=("test/fuzz/regressions/$target"/*)
    if ! "build-fuzz/fuzz/$target" -detect_leaks=0 "${regressions[@]}" > "$log" 2>&1; then
      echo "$target: a regression is back; see $log"
      status=1
      continue
    fi
  fi

  options=(-max_total_time="$seconds" -dict="$corpus/dict" -print_final_stats=1
    -timeout=60 -rss_limit_mb=4096 -artifact_prefix="$findings/")
  case "$target" in
    # Crashes inside LLVM must not end the search; contexts live on from input
    # to input, so memory is no leak.
    OptFuzzer) options+=(-fork=1 -ignore_crashes=1 -ignore_ooms=1 -ignore_timeouts=1
      -detect_leaks=0 -max_len=8192) ;;
    ArtifactFuzzer) options+=(-max_len=20000) ;;
  esac
  "build-fuzz/fuzz/$target" "${options[@]}" "$corpus/grown" "$corpus/seeds" \
    > "$log" 2>&1 || true

  last=$(grep -aE '^#[0-9]+:?[[:space:]].*cov: ' "$log" | tail -1 || true)
  runs=$(sed -nE 's/^#([0-9]+).*/\1/p' <<< "$last")
  coverage=$(sed -nE 's/.*cov: ([0-9]+).*/\1/p' <<< "$last")
  printf '%s: %d regressions, %s runs in %s s, %s edges covered, %s inputs kept\n' \
    "$target" ${#regressions[@]} "${runs:-0}" "$seconds" "${coverage:-0}" \
    "$(find "$corpus/grown" -type f | wc -l)"
  if [ "${runs:-0}" -eq 0 ]; then
    echo "  FAILED to run; see $log"
    status=1
  fi
  for finding in "$findings"/*; do
    [ -f "$finding" ] || continue
    judge "$target" "$finding" || status=1
  done
done
exit $status
