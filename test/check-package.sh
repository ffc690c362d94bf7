#!/usr/bin/env bash
# `ninja package-runtime` writes an archive of a few megabytes that works alone:
# its programs need base libraries only, start in an empty environment, train a
# model on the processor, and say what is missing where there is no GPU.
# check-package.sh [BUILD]: the build folder, build by default.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
build=$(cd "${1:-build}" && pwd)
configs=$PWD/configs
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
fail() { echo "error: $1" >&2; exit 1; }

ninja -C "$build" package-runtime > "$root/build.log" || {
  cat "$root/build.log" >&2
  exit 1
}
archive=$(echo "$build"/package/nsa-runtime-*.tar.gz)
bytes=$(stat -c %s "$archive")
[ "$bytes" -lt $((8 << 20)) ] || fail "$archive has $bytes bytes"
tar xzf "$archive" -C "$root"
cd "$root"/nsa-runtime-*
for file in README.md LICENSE THIRD-PARTY.txt configs/smoke.yaml; do
  test -s "$file" || fail "the package has no $file"
done

for tool in nsa-data nsa-dump nsa-generate nsa-run nsa-train; do
  env -i "bin/$tool" --version | grep -q "$tool 0\." || fail "$tool --version"
  extra=$(ldd "bin/$tool" | awk '{print $1}' |
    grep -vE '^(linux-vdso|libstdc\+\+|libm|libgcc_s|libc|/lib64/ld-linux)' || true)
  [ -z "$extra" ] || fail "$tool needs $extra"
  ! readelf -d "bin/$tool" | grep -E 'R(UN)?PATH' || fail "$tool has a run path"
done

# Without a compiler there is no model to try.
if [ -x "$build/bin/nsa-compile" ]; then
  "$build/bin/nsa-model" "$configs/smoke.yaml" -o "$root/model.mlir"
  "$build/bin/nsa-compile" "$root/model.mlir" -o "$root/cpu.nsax"
  "$build/bin/nsa-compile" "$root/model.mlir" --target=sm_90a --ptxas=none -o "$root/gpu.nsax"
  env -i bin/nsa-data synth --vocab 16 --tokens 20k -o "$root/data" > "$root/log"
  train="bin/nsa-train --config configs/smoke.yaml --data $root/data
    --set train.steps=3 --set train.warmup_steps=1 --set train.final_eval_batches=1
    --out-dir $root/runs"
  env -i $train "$root/cpu.nsax" > "$root/log" || fail "$(cat "$root/log")"
  grep -q '^finished at step 3' "$root/log" || fail "training: $(cat "$root/log")"
  # Where there is no GPU, the message says what was not found.
  if ! env -i $train --set runtime.device=cuda "$root/gpu.nsax" > "$root/log" 2>&1; then
    grep -qE 'nsa-train: error: .*: (the CUDA driver|cuBLASLt) not found' "$root/log" ||
      fail "without a GPU: $(cat "$root/log")"
  fi
fi
echo "$(basename "$archive"): $bytes bytes, works alone"
