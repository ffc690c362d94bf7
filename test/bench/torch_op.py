#!/usr/bin/env python3
"""Measures nsa.torch.attention on a GPU beside PyTorch's causal attention by cuDNN.

    test/bench/torch_op.py [--only NAME...] [--compile] [--extents] [--host] [--packed]

For each shape: milliseconds forward, and forward and backward; bytes that both need at
most; whether results and gradients repeat bit for bit; the largest error of the output of
some queries against fp64, and that of the same formula with rounded tensors; and, where
its package is installed, flash-linear-attention's. Then the error of the gradient of q for short
sequences, and the host's time of a call. Random bf16 inputs, blocks of 32, stride 16, 16
selected blocks of 64, a window of 512. --compile only fills the cache and says how long the
first calls take. --extents times a program for each shape and one for all of them. --host
measures the host's time alone, of calls on the CPU where there is no GPU. --packed times
16,384 tokens in a row as sequences of several lengths, and those as a batch.
"""

import argparse
import os
import statistics
import sys
import time

import torch

import nsa.torch as nsa
from nsa.torch import _kernels

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../python"))
import torch_reference as reference  # noqa: E402

SIZES = {"block": 32, "stride": 16, "select_block": 64, "count": 16, "window": 512}
# batch, tokens, heads, key heads, width
SHAPES = {f"64/4x128-{length}": (1, length, 64, 4, 128) for length in (4096, 8192, 16384, 32768, 65536)}
SHAPES |= {f"12/2x64-{batch}x{length}": (batch, length, 12, 2, 64)
           for batch, length in ((8, 2048), (2, 8192), (1, 32768))}


def inputs(batch, length, heads, groups, width, device="cuda"):
    def normal(heads):
        return torch.randn(batch, length, heads, width, device=device, dtype=torch.bfloat16, requires_grad=True)

    gates = torch.rand(batch, length, heads, 3, device=device, requires_grad=True)
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


def find_fla():
    """flash-linear-attention's operator as a function of the inputs, if it is installed, and what it computes."""
    try:
        from fla.ops.nsa import parallel_nsa
    except ImportError as error:
        return None, f"flash-linear-attention is not measured: {error}"
    try:
        import flash_attn  # noqa: F401
        window = 512
    except ImportError:
        window = 0

    def attention(q, k, v, *others):
        g_cmp, g_slc, g_win = (gate.contiguous() for gate in others[-1].to(q.dtype).unbind(-1))
        return parallel_nsa(q, k, v, g_cmp, g_slc, g_win, block_counts=16, block_size=64, window_size=window)

    return attention, (f"flash-linear-attention compresses blocks of 64 at a stride of 64, with a window of {window} "
                       "(0: flash-attn is not installed), for groups of 16 heads and more")


def timings(attention, tensors, leaves):
    """Milliseconds forward / forward and backward, a function of forward alone and one of both."""
    grad = torch.randn_like(attention(*tensors))

    def both():
        return torch.autograd.grad(attention(*tensors), leaves, grad, allow_unused=True)

    def forward():
        with torch.no_grad():
            return attention(*tensors)

    return f"{milliseconds(forward):.2f} / {milliseconds(both):.2f}", forward, both


def selected(q, k):
    blocks = {"block": 32, "stride": 16}
    compressed = nsa.compress(k, **blocks)
    _, lse = nsa.compressed_attention(q, compressed, compressed, **blocks)
    return nsa.select(q, compressed, lse, **blocks, select_block=64, count=16)


def output_error(tensors, count=32):
    """The largest error of the output of some queries, and of the formula with rounded tensors."""
    q, k, *_, gates = tensors
    queries = torch.linspace(0, q.shape[1] - 1, count, device="cuda").long()
    formula = {name: size for name, size in SIZES.items() if name != "count"}
    with torch.no_grad():
        o = sparse(*tensors)[:, queries]
        indices = selected(q, k)
        some = [q[:, queries], *tensors[1:7], gates[:, queries]]
        results = [reference.native_sparse_attention(*some, indices, **formula, inner=inner, queries=queries)
                   for inner in (torch.float64, torch.float32)]
    error, other = ((x.double() - results[0]).abs().max().item() for x in (o, results[1]))
    return f"{error:.1e} ({other:.1e})"


def measure(name, fla):
    tensors = inputs(*SHAPES[name])
    times, forward, both = timings(sparse, tensors, tensors)
    row = [name, times, f"{peak(both) / 2**20:.0f}"]
    first, second = [[forward(), *both()] for _ in range(2)]
    row.append("yes" if all(torch.equal(a, b) for a, b in zip(first, second)) else "NO")
    del first, second
    row.append(output_error(tensors))
    times, _, both = timings(dense, tensors, tensors[:3])
    row += [times, f"{peak(both) / 2**20:.0f}"]
    if fla:
        groups = SHAPES[name][2] // SHAPES[name][3]
        row.append(timings(fla, tensors, (*tensors[:3], tensors[7]))[0] if groups >= 16 else "-")
    print("| " + " | ".join(row) + " |", flush=True)


def outputs(tensors):
    o = sparse(*tensors)
    return [o.detach(), *torch.autograd.grad(o, tensors, torch.ones_like(o))]


def measure_extents(name):
    """A program for this shape and one for all, in turns."""
    tensors = inputs(*SHAPES[name])
    row, results = [name], []
    for is_dynamic in (False, True, False, True):
        nsa.set_dynamic_shapes(is_dynamic)
        row.append(timings(sparse, tensors, tensors)[0])
        results.append(outputs(tensors))
    equal = [torch.equal(a, b) for a, b in zip(*results[:2])]
    print("| " + " | ".join([*row, f"{sum(equal)} of {len(equal)}"]) + " |", flush=True)


def measure_error(heads, groups, width, length=1024):
    """The output and the gradient of q, with the indices that are selected."""
    tensors = inputs(1, length, heads, groups, width)
    q, k = tensors[:2]
    indices = selected(q, k)
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


def microseconds(function, calls=100, rounds=9):
    """What a call takes on the host: the median of rounds, each of so many calls that the GPU keeps up."""
    times = []
    for _ in range(rounds):
        function()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(calls):
            function()
        times.append((time.perf_counter() - start) / calls * 1e6)
    return statistics.median(times)


def measure_host():
    """What a call takes on the host, and what of it is beside the runtime, which launches; beside that of PyTorch's
    causal attention."""
    tensors = inputs(1, 64, 4, 2, 64, "cuda" if torch.cuda.is_available() else "cpu")

    def without_gradients(function):
        with torch.no_grad():
            return function(*tensors)

    def backward(function):
        o = function(*tensors)
        torch.autograd.grad(o, tensors, grad, allow_unused=True)

    def causal(q, k, v, *_):
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        o = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return o.transpose(1, 2)

    def measure(function):
        return [microseconds(lambda: without_gradients(function)), microseconds(lambda: function(*tensors)),
                microseconds(lambda: backward(function))]

    grad = torch.randn_like(without_gradients(sparse))
    whole, other = measure(sparse), measure(causal)
    launches = []
    for call in _kernels._calls[tensors[0].is_cuda].values():
        launches.append(call._run.num_commands)
        call._run = lambda *_: None
    rest = measure(sparse)
    print(f"commands of programs: {launches}")
    names = ("without gradients", "forward", "forward and backward")
    for what, total, own, theirs in zip(names, whole, rest, other):
        print(f"host time, {what}: {total:.1f} us, of them {own:.1f} beside the runtime; causal attention of PyTorch "
              f"{theirs:.1f} us", flush=True)


def measure_packed(shape=(1, 16384, 12, 2, 64), lengths=(256, 2048, 16384)):
    """A row of sequences with cu_seqlens, beside the same sequences as a batch."""
    tensors = inputs(*shape)
    total = shape[1]

    def packed(ends):
        return lambda *tensors: nsa.attention(*tensors, **SIZES, cu_seqlens=ends)

    def measure(name, function, leaves):
        times, forward, both = timings(function, leaves, leaves)
        results = [[forward(), *both()] for _ in range(2)]
        repeats = all(torch.equal(a, b) for a, b in zip(*results))
        print(f"| {name} | {times} | {peak(both) / 2**20:.0f} | {'yes' if repeats else 'NO'} |", flush=True)

    print("| tokens | nsa, ms | MiB | repeats |\n" + "|---" * 4 + "|")
    for length in lengths:
        count = total // length
        ends = torch.arange(0, total + 1, length, dtype=torch.int32, device="cuda")
        measure(f"{count}x{length}, packed", packed(ends), tensors)
        batch = [x.detach().view(count, length, *x.shape[2:]).requires_grad_() for x in tensors]
        measure(f"{count}x{length}, a batch", sparse, batch)
        grad = torch.randn_like(tensors[0])
        pairs = []
        for function, leaves in ((packed(ends), tensors), (sparse, batch)):
            o = function(*leaves)
            pairs.append([o, *torch.autograd.grad(o, leaves, grad.view_as(o))])
        errors = [((a.flatten().double() - b.flatten().double()).abs().max() / b.double().abs().max()).item()
                  for a, b in zip(*pairs)]
        print(f"{count}x{length}, largest difference of both, of the largest value: output {errors[0]:.1e}, "
              f"gradients {max(errors[1:]):.1e}", flush=True)


def time_first_calls(name):
    tensors = inputs(*SHAPES[name])
    seconds = []

    def measure(function):
        start = time.perf_counter()
        result = function()
        torch.cuda.synchronize()
        seconds.append(f"{time.perf_counter() - start:.2f}")
        return result

    o = measure(lambda: sparse(*tensors))
    grad = torch.randn_like(o)
    measure(lambda: torch.autograd.grad(o, tensors, grad))
    with torch.no_grad():
        measure(lambda: sparse(*tensors))
    print(f"{name}: first calls forward, backward and without gradients take {', '.join(seconds)} s", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", choices=list(SHAPES), default=list(SHAPES))
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--extents", action="store_true")
    parser.add_argument("--host", action="store_true")
    parser.add_argument("--packed", action="store_true")
    args = parser.parse_args()
    if args.host:
        measure_host()
        return
    if args.compile:
        for name in args.only:
            time_first_calls(name)
        return
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}")
    if args.packed:
        measure_packed()
        return
    if args.extents:
        print("| shape | one shape, ms | all shapes, ms | one shape, again | all shapes, again | equal results |\n"
              + "|---" * 6 + "|")
        for name in args.only:
            measure_extents(name)
        return
    fla, note = find_fla()
    print(note)
    print("| shape | nsa, ms | MiB | repeats | error | cuDNN, ms | MiB |" + " fla, ms |" * bool(fla) + "\n"
          + "|---" * (7 + bool(fla)) + "|")
    for name in args.only:
        measure(name, fla)
    measure_error(16, 1, 128)
    measure_error(12, 2, 64)
    measure_host()


if __name__ == "__main__":
    main()
