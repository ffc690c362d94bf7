#!/usr/bin/env python3
"""Entries of nsa on tensors of PyTorch on a GPU: values, memory, streams, graphs, threads.

    python3 test/gpu/python_api.py [--target sm_90a] [--checkpoint runs/small]

Needs PyTorch for CUDA and the package nsa with its compiler. Prints a line for each
check and exits with 1 if one fails. A checkpoint is evaluated on the CPU and on the GPU,
where it also continues prompts.
"""

import argparse
import sys
import threading
import time
import traceback

import numpy
import torch

import nsa

BATCH, LENGTH, HEADS, WIDTH, WINDOW = 2, 1024, 4, 64, 128
TYPE = f"tensor<{BATCH}x{LENGTH}x{HEADS}x{WIDTH}xbf16>"
LSE = f"tensor<{BATCH}x{HEADS}x{LENGTH}xf32>"
SOURCE = f"""func.func @window(%q: {TYPE} {{nn.name = "q"}}, %k: {TYPE} {{nn.name = "k"}}, %v: {TYPE} {{nn.name = "v"}})
    -> ({TYPE} {{nn.name = "o"}}, {LSE} {{nn.name = "lse"}}) {{
  %o, %lse = nsa.window_attention %q, %k, %v {{window = {WINDOW} : i64}} : ({TYPE}, {TYPE}, {TYPE}) -> ({TYPE}, {LSE})
  return %o, %lse : {TYPE}, {LSE}
}}
"""


def tensors(seed=0):
    torch.manual_seed(seed)
    return {name: torch.randn(BATCH, LENGTH, HEADS, WIDTH, device="cuda", dtype=torch.bfloat16) for name in "qkv"}


def reference(q, k, v):
    q, k, v = (x.double().transpose(1, 2) for x in (q, k, v))
    scores = q @ k.transpose(-1, -2) / WIDTH ** 0.5
    distance = torch.arange(LENGTH, device="cuda")[:, None] - torch.arange(LENGTH, device="cuda")[None]
    scores = scores.masked_fill((distance < 0) | (distance >= WINDOW), -float("inf"))
    return (scores.softmax(-1) @ v).transpose(1, 2), scores.logsumexp(-1)


def check_values(module):
    arrays = tensors()
    got = module.window(**arrays)
    assert got["o"].is_cuda and got["o"].dtype == torch.bfloat16
    o, lse = reference(**arrays)
    error = (got["o"].double() - o).abs().max().item() / o.abs().max().item()
    assert error < 1e-2, f"error of o {error}"
    assert (got["lse"].double() - lse).abs().max().item() < 1e-2
    return f"largest error of o {error:.2g} of its largest element"


def check_gradients(module):
    arrays = {name: array.requires_grad_() for name, array in tensors(1).items()}
    o, _ = reference(**arrays)
    do = torch.randn_like(arrays["q"])
    want = torch.autograd.grad(o, list(arrays.values()), do.double())
    trained = nsa.compile(SOURCE, target=module.target, gradients=["q", "k", "v"])
    got = trained.window(**{name: array.detach() for name, array in arrays.items()}, grad_o=do.detach())
    errors = [((got[f"grad.{name}"].double() - dx).abs().max() / dx.abs().max()).item() for name, dx in zip("qkv", want)]
    assert max(errors) < 2e-2, errors
    return f"largest errors of dq, dk, dv {', '.join(f'{error:.2g}' for error in errors)}"


def check_no_copies(module):
    arrays = tensors(2)
    out = {"o": torch.empty_like(arrays["q"]), "lse": torch.empty(BATCH, HEADS, LENGTH, device="cuda")}
    module.window(**arrays, out=out)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        result = module.window(**arrays, out=out)
        torch.cuda.synchronize()
    assert result["o"] is out["o"] and torch.cuda.memory_allocated() == before
    copies = [event.key for event in profile.key_averages() if "memcpy" in event.key.lower()]
    assert not copies, copies
    return "a call on given tensors moves and allocates nothing"


def check_stream(module):
    """What a stream has before a call is waited for, and what comes after finds the outputs."""
    stream = torch.cuda.Stream()
    arrays = tensors(3)
    want = module.window(**arrays)["o"].clone()
    torch.cuda.synchronize()
    for _ in range(20):
        with torch.cuda.stream(stream):
            late = {name: torch.full_like(array, float("nan")) for name, array in arrays.items()}
            torch.cuda._sleep(20_000_000)
            for name, array in arrays.items():
                late[name].copy_(array)
            begin = time.perf_counter()
            got = module.window(**late, stream=stream)["o"]
            host = time.perf_counter() - begin
            doubled = got * 2
        assert host < 5e-3, f"the call took {host * 1e3:.1f} ms: it waited"
        stream.synchronize()
        assert torch.equal(got, want) and torch.equal(doubled, want * 2)
    # The default stream, by its number.
    got = module.window(**arrays, stream=torch.cuda.current_stream().cuda_stream)["o"]
    torch.cuda.synchronize()
    assert torch.equal(got, want)
    return "20 calls queued after 10 ms of other work, none waited"


def check_host_time(module):
    arrays = tensors(4)
    out = module.window(**arrays)
    stream = torch.cuda.current_stream()
    for _ in range(20):
        module.window(**arrays, out=out, stream=stream)
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(200):
        module.window(**arrays, out=out, stream=stream)
    host = (time.perf_counter() - begin) / 200
    torch.cuda.synchronize()
    return f"{host * 1e6:.0f} us of the host a call"


def check_cuda_graph(module):
    arrays = tensors(5)
    want = module.window(**arrays)["o"].clone()
    static = {name: torch.zeros_like(array) for name, array in arrays.items()}
    out = {"o": torch.empty_like(want), "lse": torch.empty(BATCH, HEADS, LENGTH, device="cuda")}
    module.window(**static, out=out)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        module.window(**static, out=out, stream=torch.cuda.current_stream())
    for name, array in arrays.items():
        static[name].copy_(array)
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(out["o"], want)
    return "a graph of PyTorch replays the call"


def check_threads(module):
    cases = [(tensors(10 + i),) for i in range(4)]
    wants = [module.window(**case)["o"].clone() for case, in cases]
    wrong = []

    def work(number):
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.default_stream())
        for _ in range(25):
            with torch.cuda.stream(stream):
                got = module.window(**cases[number][0], stream=stream)["o"]
            stream.synchronize()
            if not torch.equal(got, wants[number]):
                wrong.append(number)

    torch.cuda.synchronize()
    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, wrong
    return "4 threads on streams of their own, 25 calls each"


class Interface:
    """A tensor that is known by the CUDA array interface alone; bf16 as the bits in uint16."""

    def __init__(self, tensor):
        self.tensor = tensor
        kind = "<u2" if tensor.dtype == torch.bfloat16 else "<f4"
        self.__cuda_array_interface__ = {"shape": tuple(tensor.shape), "typestr": kind, "version": 3,
                                         "data": (tensor.data_ptr(), False), "strides": None, "stream": 1}


def check_interface(module):
    arrays = tensors(6)
    want = module.window(**arrays)["o"]
    out = {"o": torch.empty_like(want), "lse": torch.empty(BATCH, HEADS, LENGTH, device="cuda")}
    module.window(**{name: Interface(array) for name, array in arrays.items()},
                  out={name: Interface(array) for name, array in out.items()})
    assert torch.equal(out["o"], want)
    return "the CUDA array interface gives what DLPack gives"


def check_repeatable(module):
    arrays = tensors(7)
    results = [module.window(**arrays)["o"] for _ in range(10)]
    assert all(torch.equal(results[0], result) for result in results)
    return "10 calls are equal bit for bit"


def check_misuse(module):
    arrays = tensors(8)
    wrong = {
        "lies on cpu, expected cuda:0": {"q": arrays["q"].cpu()},
        "is f16, expected bf16": {"q": arrays["q"].half()},
        "has strides": {"q": arrays["q"].transpose(1, 2).contiguous().transpose(1, 2)},
        "has shape": {"q": arrays["q"][:1]},
        "begins 2 bytes past a multiple of 256 bytes":
            {"q": torch.empty(arrays["q"].numel() + 1, device="cuda", dtype=torch.bfloat16)[1:].view_as(arrays["q"])},
        "requires a gradient": {"q": arrays["q"].clone().requires_grad_()},
        "shares memory": {"out": {"o": arrays["k"]}},
    }
    for message, change in wrong.items():
        try:
            module.window(**{**arrays, **change})
        except nsa.InputError as error:
            assert message in str(error), f"{error}, expected {message}"
        else:
            raise AssertionError(f"no error: {message}")
    return f"{len(wrong)} errors name the argument and both values"


def check_host_arrays(module):
    arrays = tensors(9)
    want = module.window(**arrays)["o"].float().cpu().numpy()
    got = module.run("window", {name: array.float().cpu().numpy() for name, array in arrays.items()})["o"]
    assert numpy.array_equal(got, want)
    return "Module.run copies NumPy arrays there and back"


def check_other_stream(module):
    """What PyTorch's stream writes is waited for, whatever stream the call is given."""
    arrays = tensors(10)
    want = module.window(**arrays)["o"].clone()
    stream = torch.cuda.Stream()
    for call_stream in (None, torch.cuda.Stream()):
        with torch.cuda.stream(stream):
            late = {name: torch.full_like(array, float("nan")) for name, array in arrays.items()}
            torch.cuda._sleep(20_000_000)
            for name, array in arrays.items():
                late[name].copy_(array)
            got = module.window(**late, stream=call_stream)["o"]
        torch.cuda.synchronize()
        assert torch.equal(got, want)
    return "tensors of another stream are waited for"


def compare_model(checkpoint, target):
    ids = numpy.random.default_rng(0).integers(0, 256, (3, 33))
    host, device = nsa.Model(checkpoint), nsa.Model(checkpoint, target=target)
    losses = host.loss(ids), device.loss(ids)
    assert abs(losses[0] - losses[1]) < 1e-4, losses
    difference = abs(host.logits(ids) - device.logits(ids)).max()
    assert difference < 1e-3, difference
    return f"{device}: loss {losses[0]:.6f} on the CPU, {losses[1]:.6f} on the GPU; logits differ by {difference:.2g}"


def compare_generation(checkpoint, target):
    host, device = nsa.Model(checkpoint), nsa.Model(checkpoint, target=target)
    prompts = [[1], [int(id) for id in numpy.random.default_rng(1).integers(0, 256, 40)]]
    tokens = host.seq_len - 40
    shortfall = 0
    for prompt, drawn in zip(prompts, device.generate(prompts, tokens=tokens, temperature=0)):
        assert len(drawn) == tokens
        logits = host.logits(prompt + drawn)[len(prompt) - 1:-1]
        shortfall = max(shortfall, (logits.max(1) - logits[numpy.arange(tokens), drawn]).max())
    assert shortfall < 1e-3, shortfall
    return f"{tokens} ids after each of 2 prompts: logits on the CPU are at most {shortfall:.2g} below the largest"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--target", default="sm_90a")
    parser.add_argument("--checkpoint")
    options = parser.parse_args()
    if options.checkpoint:
        globals()["check_model"] = lambda module: compare_model(options.checkpoint, module.target)
        globals()["check_generation"] = lambda module: compare_generation(options.checkpoint, module.target)
    module = nsa.compile(SOURCE, name="window.mlir", target=options.target)
    failed = 0
    for name, check in list(globals().items()):
        if not name.startswith("check_"):
            continue
        try:
            print(f"ok   {name[6:]}: {check(module)}", flush=True)
        except Exception:
            failed += 1
            print(f"FAIL {name[6:]}", flush=True)
            traceback.print_exc()
    print(f"PyTorch {torch.__version__}, {torch.cuda.get_device_name()}, nsa {nsa.__version__}: {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
