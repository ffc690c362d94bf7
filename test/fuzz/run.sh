#!/usr/bin/env bash
# Builds the fuzz targets and runs each for some time.
#   test/fuzz/run.sh [SECONDS] [--jobs N] [--instrumented] [--no-build] [TARGET...]
#   test/fuzz/run.sh --regressions
# SECONDS is 60, N, the number of targets that run at a time, 2. The readers'
# targets run under AddressSanitizer and UndefinedBehaviorSanitizer; OptFuzzer
# runs the compiler of the default build, or, with --instrumented, one under
# both sanitizers that has to be built first. --regressions only runs what was
# found once, on the default build.
#
# Inputs start from what make-corpus.py derives from tools and tests, from the
# regressions beside this script, and from what earlier runs found. A crash
# fails the run; its input lies in build-fuzz/findings/TARGET. Findings whose
# stack has no frame of this project are listed and do not fail: LLVM comes from
# the distribution.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
root=$PWD
work=build-fuzz
seconds=60
jobs=2
build=1
alone=0
regressions_only=0
opt_build=build
targets=()
while [ $# -gt 0 ]; do
  case "$1" in
    --jobs) jobs=$2; shift 2 ;;
    --instrumented) opt_build=build-fuzz; shift ;;
    --no-build) build=0; shift ;;
    --regressions) regressions_only=1; shift ;;
    --alone) alone=1; shift ;; # one target, everything built: run by this script
    [0-9]*) seconds=$1; shift ;;
    -*) sed -n '3,4s/^# */usage:/p' test/fuzz/run.sh >&2; exit 2 ;;
    *) targets+=("$1"); shift ;;
  esac
done
if [ ${#targets[@]} -eq 0 ]; then
  targets=(OptFuzzer ArtifactFuzzer ConfigFuzzer ManifestFuzzer NpyFuzzer
    SafetensorsFuzzer ShardFuzzer)
fi

# folder_of TARGET: the build that holds it.
folder_of() {
  if [ "$1" = OptFuzzer ]; then echo "$opt_build"; else echo build-sanitize; fi
}

# build_in FOLDER PRESET TARGET...
build_in() {
  mkdir -p "$1"
  cmake --preset "$2" > "$1/configure.log" 2>&1 || {
    cat "$1/configure.log" >&2
    exit 1
  }
  ninja -C "$1" --quiet "${@:3}"
}

build_all() {
  local readers=()
  for target in "${targets[@]}"; do
    [ "$target" = OptFuzzer ] || readers+=("$target")
  done
  [ ${#readers[@]} -eq 0 ] || build_in build-sanitize sanitize "${readers[@]}"
  case " ${targets[*]} " in
    *" OptFuzzer "*)
      if [ "$opt_build" = build ]; then
        ninja -C build --quiet OptFuzzer
      else
        build_in build-fuzz fuzz OptFuzzer
      fi ;;
  esac
}

llvm_bin=$(sed -n 's/^LLVM_TOOLS_BINARY_DIR:[^=]*=//p' build/CMakeCache.txt)
export ASAN_SYMBOLIZER_PATH=${llvm_bin:-/usr/lib/llvm-22/bin}/llvm-symbolizer
export ASAN_OPTIONS=detect_stack_use_after_return=1
export UBSAN_OPTIONS=print_stacktrace=1
export LSAN_OPTIONS=suppressions=$root/test/fuzz/leaks.supp:print_suppressions=0

# has_our_frame LOG: the first stack in it has a frame of this project: a source
# file, or, without debug information, a function of ours in the target. The
# parser of an operation that asked MLIR's parser for attributes is none.
has_our_frame() {
  awk '/^ *#0 /{stack++}
       stack > 1 || !/^ *#[0-9]+ / {next}
       / mlir::detail::Parser::parse/ {inside = 1}
       !(inside && /::parse\(mlir::OpAsmParser&/)' "$1" |
    grep -vE "$root/test/fuzz/|nsa::fuzz::" |
    sed -E 's/^ *#[0-9]+ 0x[0-9a-f]+ (in )?//' |
    grep -vE '^(fuzzer::|LLVMFuzzer|__|_start|main |check\(|print\(|requireRoundTrip|store\()' |
    grep -qE "$root/(build[a-z-]*/(\.\./)?)?(dialects|passes|lib|runtime|include/nsa|tools)/|nsa::.*/OptFuzzer\+|^[^ :]*\(.*/OptFuzzer\+"
}

# judge TARGET FILE: runs one finding again and says whose it is.
judge() {
  local log=$2.log program
  program=$(folder_of "$1")/fuzz/$1
  timeout 300 "$program" -rss_limit_mb=4096 -timeout=100 "$2" > "$log" 2>&1 && {
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
  echo "        again with: $program $2"
  return 1
}

# fuzz TARGET
fuzz() {
  local target=$1 program corpus findings log status=0
  program=$(folder_of "$target")/fuzz/$target
  corpus=$work/corpus/$target
  findings=$work/findings/$target
  log=$work/findings/$target.log
  rm -rf "$findings"
  mkdir -p "$corpus/grown" "$findings"

  # What was found once must not come back.
  local regressions=()
  if [ -d "test/fuzz/regressions/$target" ]; then
    regressions=("test/fuzz/regressions/$target"/*)
    if ! "$program" -detect_leaks=0 "${regressions[@]}" > "$log" 2>&1; then
      echo "$target: a regression is back; see $log"
      return 1
    fi
  fi

  local options=(-max_total_time="$seconds" -dict="$corpus/dict"
    -print_final_stats=1 -timeout=60 -rss_limit_mb=4096
    -seed="${NSA_TEST_SEED:-0}" -artifact_prefix="$findings/")
  case "$target" in
    # Crashes inside LLVM must not end the search; contexts live on from input
    # to input, so memory is no leak.
    OptFuzzer) options+=(-fork=1 -ignore_crashes=1 -ignore_ooms=1 -ignore_timeouts=1
      -detect_leaks=0 -max_len=12000) ;;
    ArtifactFuzzer) options+=(-max_len=20000) ;;
  esac
  "$program" "${options[@]}" "$corpus/grown" "$corpus/seeds" > "$log" 2>&1 || true

  local last runs coverage
  last=$(grep -aE '^#[0-9]+:?[[:space:]].*cov: ' "$log" | tail -1 || true)
  runs=$(sed -nE 's/^#([0-9]+).*/\1/p' <<< "$last")
  coverage=$(sed -nE 's/.*cov: ([0-9]+) ft: ([0-9]+).*/\1 edges, \2 features/p' <<< "$last")
  printf '%s: %d regressions, %s runs in %s s, %s, %s inputs kept\n' \
    "$target" ${#regressions[@]} "${runs:-0}" "$seconds" "${coverage:-nothing}" \
    "$(find "$corpus/grown" -type f | wc -l)"
  if [ "${runs:-0}" -eq 0 ]; then
    echo "  FAILED to run; see $log"
    status=1
  fi
  local finding
  for finding in "$findings"/*; do
    case "$finding" in */slow-unit-* | *.log) continue ;; esac
    [ -f "$finding" ] || continue
    judge "$target" "$finding" || status=1
  done
  return $status
}

if [ "$regressions_only" -eq 1 ]; then
  ninja -C build --quiet "${targets[@]}"
  status=0
  mkdir -p build/fuzz
  for folder in test/fuzz/regressions/*; do
    target=$(basename "$folder")
    if build/fuzz/"$target" -detect_leaks=0 "$folder"/* > "build/fuzz/$target.log" 2>&1; then
      echo "$target: $(find "$folder" -type f | wc -l) regressions"
    else
      tail -20 "build/fuzz/$target.log" >&2
      echo "$target: a regression is back; see build/fuzz/$target.log" >&2
      status=1
    fi
  done
  exit $status
fi
if [ "$alone" -eq 1 ]; then
  fuzz "${targets[0]}"
  exit
fi
[ "$build" -eq 0 ] || build_all
mkdir -p "$work"
python3 test/fuzz/make-corpus.py build "$work/corpus"
again=("$seconds" --no-build --alone)
[ "$opt_build" = build ] || again+=(--instrumented)
printf '%s\n' "${targets[@]}" | xargs -P "$jobs" -n 1 test/fuzz/run.sh "${again[@]}"
