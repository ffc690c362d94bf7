#!/usr/bin/env bash
# The author of a kernel: the commands of docs/debug-a-kernel.md that need no GPU, on
# its own operator; the CPU, the emulator and a tuned schedule agree, and Python
# differentiates the same file.
source "$(dirname "${BASH_SOURCE[0]}")/common.inc"
page=$root/docs/debug-a-kernel.md
export PATH=$bin:$root/build/test/judge:$PATH PYTHONPATH=$root/build/python
cd "$scratch"

# section NUMBER: its commands, without those of GPUs, of other inputs, and IR.
section() {
  sed -n "/^## $1\./,/^## /s/^    //p" "$page" | grep -vE 'needs a GPU|^#|^\.\.\.' > commands
  [ -s commands ] || fail "section $1 of $page has no commands"
  bash -eu -o pipefail commands > log 2>&1 || fail "section $1 of $page: $(tail -n 3 log)"
}
sed -n '/^## 1\./,/^## 2/{/^```mlir/,/^```$/{/^```/d;p}}' "$page" > attention.mlir
/usr/bin/python3 - << 'END'
import numpy
for name in "qkv":
    numpy.save(name + ".npy", numpy.random.default_rng(ord(name)).standard_normal((1, 256, 1, 64), numpy.float32))
END
section 2
cp o.npy emulated.npy
section 3
for phase in {1..10} layout nvvm; do [ -s $phase.mlir ] || fail "no $phase.mlir"; done
grep -q 'nvvm.wgmma' 10.mlir || fail "no wgmma in 10.mlir"
[ "$(find tree -name '*.mlir' | wc -l)" -gt 20 ] || fail "not every pass has printed a file"
section 7
grep -q '#nsa.schedule<queries = 64, keys = 48>' lists.mlir || fail "the list was not edited"
grep -q '!tile.tile<48x64xbf16>' kernels.mlir || fail "the schedule of the list was not taken"

# The same line in the model, and the gradient by q.
sed 's/^func/module attributes {nsa.schedules = {forward = [#nsa.schedule<queries = 64, keys = 48>]}} {\n&/; $a }' \
  attention.mlir > tuned.mlir
printf '%s\n' 'write q q.npy' 'write k k.npy' 'write v v.npy' 'run main' 'read o o.npy' | nsa-emulate tuned.mlir sm_90a > log
sed 's/bf16/f32/' attention.mlir > f32.mlir
/usr/bin/python3 - << 'END' || fail "results differ"
import numpy, nsa
cpu, others = numpy.load("cpu/o.npy"), [numpy.load(name) for name in ("emulated.npy", "o.npy")]
assert all(abs(other - cpu).max() < 2e-2 for other in others), [abs(other - cpu).max() for other in others]
module = nsa.compile("f32.mlir", gradients=["q"])
values = {name: numpy.load(name + ".npy") for name in "qkv"}
step, weights = numpy.random.default_rng(1).standard_normal((2, 1, 256, 1, 64), numpy.float32)
def run(t):
    return module.main(**{**values, "q": values["q"] + numpy.float32(t) * step}, grad_o=weights)
slope = ((run(1e-2)["o"].astype(float) - run(-1e-2)["o"]) * weights).sum() / 2e-2
expected = (run(0)["grad.q"].astype(float) * step).sum()
assert abs(slope - expected) < 1e-2 * abs(expected), (slope, expected)
END
