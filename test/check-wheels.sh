#!/usr/bin/env bash
# Wheels install in a fresh virtual environment and work there without a PATH:
# README's example, the compiler, training on the processor.
# check-wheels.sh runtime|compiler|sdist|pypi [BUILD]
#   runtime   nsa-runtime alone
#   compiler  nsa-runtime and nsa-compiler, with the system's LLVM inside
#   sdist     what `pip install` makes of the source distribution: one wheel,
#             with the system's LLVM inside
#   pypi      the same of these sources where there is no LLVM: with g++ and
#             LLVM of PyPI
# BUILD is the folder of the build, build-wheel or build-pypi by default.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source=$PWD
kind=$1
build=$(realpath -m "${2:-build-$([ "$kind" = pypi ] && echo pypi || echo wheel)}")
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
fail() { echo "error: $1" >&2; exit 1; }
quiet() { "$@" > "$root/log" 2>&1 || { cat "$root/log" >&2; fail "$*"; }; }
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore

# wheel PIP FOLDER MOST OPTION...: one wheel of at most MOST megabytes.
wheel() {
  local pip=$1 folder=$2 most=$3 bytes
  shift 3
  rm -rf "$root/new"
  quiet "$pip" wheel -v --no-deps -w "$root/new" "$@" "$folder"
  bytes=$(stat -c %s "$root"/new/*.whl)
  [ "$bytes" -lt "${most}000000" ] || fail "the wheel of $folder has $bytes bytes"
  echo "$(basename "$root"/new/*.whl): $bytes bytes"
  mkdir -p "$root/dist"
  mv "$root"/new/*.whl "$root/dist"
}

# Not isolated, so that ccache knows what it compiles: the compiler is that of
# the other builds where nobody names one.
system_wheels() {
  local python=$build/venv/bin/python
  unset CC CXX
  [ -d "$build/venv" ] || /usr/bin/python3 -m venv "$build/venv"
  quiet "$python" -m pip install --upgrade pip $("$python" -c '
import tomllib
print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"])')
  if [ "$kind" = sdist ]; then
    quiet env PYTHONPATH=lib/Python/compiler "$python" -c \
      'import sys, backend; backend.build_sdist(sys.argv[1])' "$root/sdist"
    wheel "$build/venv/bin/pip" "$root"/sdist/*.tar.gz 56 --no-build-isolation -Cbuild-dir=build
    return
  fi
  wheel "$build/venv/bin/pip" lib/Python/runtime 6 --no-build-isolation "-Cbuild-dir=$build" \
    "-Ccmake.define.NSA_BUILD_COMPILER=$([ "$kind" = compiler ] && echo ON || echo OFF)" \
    -Ccmake.define.NSA_STATIC_LLVM=ON
  grep -q '^CMAKE_CXX_COMPILER:.*/clang++-22$' "$build/CMakeCache.txt" || fail "pip takes another compiler than clang"
  [ "$kind" = runtime ] ||
    wheel "$build/venv/bin/pip" lib/Python/compiler 50 --no-build-isolation "-Cbuild-dir=$build"
}

/usr/bin/python3 -m venv "$root/venv"
quiet "$root/venv/bin/pip" install --upgrade pip
if [ "$kind" = pypi ]; then
  # The LLVM of each build lies elsewhere: ccache would find nothing.
  export CC=gcc CXX=g++ CCACHE_DISABLE=1
  wheel "$root/venv/bin/pip" . 56 "-Cbuild-dir=$build" \
    -Ccmake.define.CMAKE_IGNORE_PREFIX_PATH=/usr/lib/llvm-22
  grep -o 'MLIR .*/mlir/lib/cmake/mlir' "$root/log" || fail "the wheel has another LLVM than PyPI's"
else
  system_wheels
fi
quiet "$root/venv/bin/pip" install "$root"/dist/*.whl

cd "$root"
bin=$root/venv/bin
packages=$(echo "$bin"/../lib/python3.*/site-packages)
for info in "$packages"/nsa*.dist-info; do
  for text in LICENSE THIRD-PARTY.txt; do
    [ -s "$info/licenses/$text" ] || fail "$info has no $text"
  done
done
# A C library is all that they need, and one that is not newer than their tag says.
for file in "$packages"/nsa/bin/* "$packages"/nsa/*.so "$packages"/nsa/lib/*.so; do
  [ -e "$file" ] || continue
  extra=$(readelf -d "$file" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' |
    grep -vE '^(libm\.so|libc\.so|ld-linux|libNSACompiler\.so)' || true)
  [ -z "$extra" ] || fail "$file needs $extra"
  newest=$( (echo GLIBC_2.35; readelf -V "$file" | grep -oE 'GLIBC_2\.[0-9]+') | sort -V | tail -1)
  [ "$newest" = GLIBC_2.35 ] || fail "$file needs $newest, expected GLIBC_2.35 at most"
done
alone() { quiet env -i "HOME=$root" "$@"; }
for tool in nsa-data nsa-dump nsa-eval nsa-export nsa-import nsa-run nsa-serve nsa-train; do
  alone "$bin/$tool" --version
done
if [ "$kind" = runtime ]; then
  ! env -i "$bin/python" -c 'import nsa; nsa.compile("func.func @f() { return }")' 2> log ||
    fail "nsa.compile without nsa-compiler"
  grep -q 'nsa-compiler' log || fail "nsa.compile: $(cat log)"
  exit
fi

awk '/^```python/ { on = 1; next } /^```/ { on = 0 } on' "$source/README.md" > example.py
grep -q nsa.compile example.py || fail "README.md has no example"
alone "$bin/python" example.py
alone "$bin/nsa-generate" --version
alone "$bin/nsa-model" "$source/configs/smoke.yaml" -o model.mlir
alone "$bin/nsa-opt" model.mlir --nsa-expand-model -o expanded.mlir
alone "$bin/nsa-compile" model.mlir --target=sm_90a -o gpu.nsax
alone "$bin/nsa-data" synth --vocab 16 --tokens 20k -o data
train=(--set train.steps=20 --set train.warmup_steps=1 --set train.final_eval_batches=1 --data data
  --out-dir runs)
alone "$bin/nsa-train" "$source/configs/smoke.yaml" "${train[@]}"
grep -q '^finished at step 20' log || fail "training: $(cat log)"
# Where there is no GPU, the message says what was not found, and who has it.
if ! env -i "HOME=$root" "$bin/nsa-train" gpu.nsax --config "$source/configs/smoke.yaml" \
  --set runtime.device=cuda "${train[@]}" > log 2>&1; then
  grep -qE 'error: .*: (the CUDA driver|cuBLASLt) not found .*; it comes with .*PyPI' log ||
    fail "without a GPU: $(cat log)"
fi
