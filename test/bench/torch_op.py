#!/usr/bin/env python3
"""Measures nsa.torch.attention on a GPU beside PyTorch's causal attention by cuDNN.

    test/bench/torch_op.py [--only NAME...] [--compile]

For each shape: milliseconds forward, and forward and backward; bytes that both need at
most; and whether results and gradients repeat bit for bit. Then the largest error against
fp64 for short sequences, and the host's time of a call. Random bf16 inputs, blocks of 32,
stride 16, 16 selected blocks of 64, a window of 512. --compile only fills the cache.
"""

import argparse
import os
import statistics
import sys
import time

import torch

import nsa.torch as nsa

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../python"))
import torch_reference as reference  # noqa: E402

SIZES = {"block": 32, "stride": 16, "select_block": 64, "count": 16, "window": 512}
# batch, tokens, heads, key heads, width
SHAPES = {f"64/4x128-{length}": (1, length, 64, 4, 128) for length in (4096, 8192, 16384, 32768, 65536)}
SHAPES |= {f"12/2x64-{batch}x{length}": (batch, length, 12, 2, 64)
           for batch, length in ((8, 2048), (2, 8192), (1, 32768))}


def inputs(batch, length, heads, groups, width):
    def normal(heads):
        return torch.randn(batch, length, heads, width, device="cuda", dtype=torch.bfloat16, requires_grad=True)

    gates = torch.rand(batch, length, heads, 3, device="cuda", requires_grad=True)
    return [normal(heads), *[normal(groups) for _ in range(6)], gates]


def sparse(*tensors):
    return nsa.attention(*tensors, **SIZES)


def dense(q, k, v, *_):
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.CUDNN_ATTENTION):
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        o = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return o.transpose(1, 2)


def milliseconds(function, seconds=0.5):
    """The median of runs, measured on the GPU."""
    for _ in range(3):
        function()
    times, end = [], time.monotonic() + seconds
    while time.monotonic() < end or len(times) < 5:
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        function()
        stop.record()
        stop.synchronize()
        times.append(start.elapsed_time(stop))
    return statistics.median(times)


def peak(function):
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    function()
    return torch.cuda.max_memory_allocated() - before


def measure(name):
    tensors = inputs(*SHAPES[name])
    row = [name]
    for attention in (sparse, dense):
        leaves = tensors if attention is sparse else tensors[:3]
        grad = torch.randn_like(attention(*tensors))

        def both():
            return torch.autograd.grad(attention(*tensors), leaves, grad)

        def forward():
            with torch.no_grad():
                return attention(*tensors)

        row += [f"{milliseconds(forward):.2f} / {milliseconds(both):.2f}", f"{peak(both) / 2**20:.0f}"]
        if attention is sparse:
            first, second = [[forward(), *both()] for _ in range(2)]
            row.append("yes" if all(torch.equal(a, b) for a, b in zip(first, second)) else "NO")
    print("| " + " | ".join(row) + " |", flush=True)


def measure_error(heads, groups, width, length=1024):
    """The output and the gradient of q, with the indices that are selected."""
    tensors = inputs(1, length, heads, groups, width)
    q, k, v = tensors[:3]
    blocks = {"block": 32, "stride": 16}
    compressed = nsa.compress(k, **blocks)
    _, lse = nsa.compressed_attention(q, compressed, compressed, **blocks)
    indices = nsa.select(q, compressed, lse, **blocks, select_block=64, count=16)
    formula = {name: size for name, size in SIZES.items() if name != "count"}
    o = sparse(*tensors)
    grad = torch.randn_like(o)
    results = [[o, torch.autograd.grad(o, q, grad)[0]]]
    for inner in (torch.float64, torch.float32):
        own = [x.detach().to(inner if inner == torch.float64 else x.dtype).requires_grad_() for x in tensors]
        want = reference.native_sparse_attention(*own, indices, **formula, inner=inner)
        results.append([want, torch.autograd.grad(want, own[0], grad.to(want.dtype))[0]])
    for what, got, want, rounded in zip(("output", "gradient of q"), *results):
        error, other = ((x.double() - want).abs().max().item() for x in (got, rounded))
        print(f"{heads}/{groups}x{width}, {length} tokens, {what}: largest error {error:.2e}; "
              f"{other:.2e} of the formula with rounded tensors")


def measure_host(calls=300):
    """Microseconds that a call takes on the host, in calls that the GPU is faster with."""
    tensors = inputs(1, 64, 4, 2, 64)
    with torch.no_grad():
        for _ in range(20):
            sparse(*tensors)
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(calls):
            sparse(*tensors)
        elapsed = time.perf_counter() - start
    torch.cuda.synchronize()
    print(f"host time of a call: {elapsed / calls * 1e6:.0f} us")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", choices=list(SHAPES), default=list(SHAPES))
    parser.add_argument("--compile", action="store_true")
    args = parser.parse_args()
    if args.compile:
        for name in args.only:
            start = time.perf_counter()
            tensors = inputs(*SHAPES[name])
            sparse(*tensors).sum().backward()
            with torch.no_grad():
                sparse(*tensors)
            print(f"{name}: first calls take {time.perf_counter() - start:.1f} s", flush=True)
        return
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}")
    print("| shape | nsa, ms | MiB | repeats | cuDNN, ms | MiB |\n|---|---|---|---|---|---|")
    for name in args.only:
        measure(name)
    measure_error(16, 1, 128)
    measure_error(12, 2, 64)
    measure_host()


if __name__ == "__main__":
    main()
