"""Prints what a profile.json says of the kernels of a training step, and holds
it against the machine: attention kernels against the multiply-add peak of the
vectors that they are compiled for, other kernels that memory limits against
the copy rate. Kernels below `SMALLEST` of a step are shown but not judged: the
cost of starting them counts there."""

import json
import sys

SMALLEST = 0.002
ATTENTION_FACTOR = 4
ELEMENTWISE_FACTOR = 2
SHOWN = 10

other = json.load(open(sys.argv[1]))["otherData"]
one, all_threads = other["machine"]
for machine in (one, all_threads):
    print(
        f"peak of {machine['threads']} threads: {machine['fma_gflops']:.1f} GFLOP/s"
        f" ({machine['fma_gflops_512']:.1f} in 512-bit vectors),"
        f" copy {machine['copy_gbytes']:.1f} GB/s"
    )
print(f"{other['tokens_per_second']:.0f} tokens/s, {other['step_ms']:.2f} ms per step")

# Caches let small tensors pass faster than a copy; more threads than memory
# channels do not make a copy slower.
copy = max(one["copy_gbytes"], all_threads["copy_gbytes"])
peak = all_threads["fma_gflops"]


def describe(group):
    return (
        f"{100 * group['share']:5.1f} % {group['ms']:9.3f} ms {group['count']:4d} x"
        f" {group['gflops']:7.1f} GFLOP/s {group['gbytes']:6.1f} GB/s"
        f"  {group['command']}"
    )


print("most expensive, by kernel:")
for group in other["groups"][:SHOWN]:
    print("  " + describe(group))

failures = 0
for group in other["groups"]:
    kind, _, name = group["command"].partition(" ")
    if kind != "launch" or group["share"] < SMALLEST:
        continue
    if "attention" in name and group["flops"]:
        factor, limit = peak / max(group["gflops"], 1e-9), ATTENTION_FACTOR
        what = f"{factor:.1f} times below the multiply-add peak, {limit} allowed"
    elif group["compute_bound"]:
        continue
    else:
        factor, limit = copy / max(group["gbytes"], 1e-9), ELEMENTWISE_FACTOR
        what = f"{factor:.1f} times below the copy rate, {limit} allowed"
    passed = factor <= limit
    failures += not passed
    print(f"{'pass' if passed else 'FAIL'}: {name}: {what}")
print(f"{failures} kernels too slow")
sys.exit(failures > 0)
