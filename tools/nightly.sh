#!/usr/bin/env bash
# What takes other builds and is too heavy for every push: the runtime without
# LLVM, the sanitizers, more programs for the judge, generated code, and fuzzing of
# every reader. tools/test.sh comes first.
#   NSA_TEST_SUITE=full   ten minutes of fuzzing for each target instead of one
#                         minute, the compiler under the sanitizers as well, all
#                         unit tests and the tools' lit tests under them, every
#                         public shape at every length for every target, of which
#                         other nights take a third each
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. test/suites.inc

tools/setup.sh all || exit 1

check "runtime without LLVM" test/check-runtime-only.sh
check "wheels" test/check-wheels.sh compiler
check "NumPy 1.26 and 2" test/check-numpy.sh
check "runtime wheel" test/check-wheels.sh runtime build-runtime-wheel
check "source distribution" test/check-wheels.sh sdist
check "wheel with LLVM of PyPI" test/check-wheels.sh pypi
check "sanitizers" test/check-sanitize.sh
judge() {
  OMP_NUM_THREADS=1 NSA_JUDGE_COUNT=8 NSA_JUDGE_PROGRAMS=200 NSA_JUDGE_EMULATED=4 NSA_JUDGE_TRAINING=60 \
    "$(test/python-env.sh)" -m pytest -q -n 2 --dist loadfile test/judge
}
check "judge" judge
grpo() { sed -n '/^```python/,/^```$/{/^```/d;p}' docs/grpo.md | PYTHONPATH=build/python "$(test/python-env.sh)" -; }
check "example of docs/grpo.md" grpo
check "example of docs/add-an-op.md" test/check-add-an-op.sh
for name in markov m7c walk-torch walk-hf two-machines; do
  check "end-to-end: $name" bash "test/e2e/$name.sh"
done
check "reliability of tools that lie" test/reliability.sh --self-test
check "wrong input" env NSA_TEST_SUITE=full python3 test/invalid/check.py build/bin build/invalid
check "PyTorch" test/check-torch.sh
check "lm-eval" test/check-hf.sh
check "commands of docs/data.md" test/check-data.sh
third=(--third $(($(date +%s) / 86400)))
[ "${NSA_TEST_SUITE:-}" = full ] && third=()
check "shapes of public models" test/shapes.py "${third[@]}"
check "random shapes" test/shapes.py --random 40 --seed "${NSA_TEST_SEED:-$(date +%s)}"
check "generated code" test/codegen.py check --all --ptxas
# Seven targets in three rounds.
fuzz=(60 --jobs 3)
[ "${NSA_TEST_SUITE:-}" = full ] && fuzz=(600 --instrumented)
check "fuzzing" test/fuzz/run.sh "${fuzz[@]}"
report
