#!/usr/bin/env python3
"""Measures decoding on a GPU.

  test/bench/decode.py prepare FOLDER [--target sm_90a]
      compiles what is run; needs the compiler, not a GPU
  test/bench/decode.py run FOLDER [--blas LIBRARY] [--profile] [--torch PYTHON]
      prints the time of a token by context, and with --torch that of dense attention of the
      same shape with a cache in PyTorch, which this Python has; needs a GPU

Weights are the initial ones. The folder holds everything that `run` needs.
"""
import argparse
import os
import re
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

# Programs that are measured: sequences of a batch, tokens of a prefill, contexts.
TIMES = {"batch1": (1, 32768, (2048, 8192, 32768, 65536)), "batch64": (64, 512, (2048, 8192))}


def call(*command, **options):
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)
    if result.returncode:
        sys.exit(f"{' '.join(command)}\n{result.stdout}")
    return result.stdout


def compile_model(args, name, values, *options):
    binaries = os.path.join(args.build, "bin")
    model = os.path.join(args.folder, "model.mlir")
    settings = [text for key, value in values.items() for text in ("--set", f"{key}={value}")]
    call(os.path.join(binaries, "nsa-model"), os.path.join(ROOT, "test/bench/shapes/llama_1b.yaml"), "-o", model, *settings)
    print(name, call(os.path.join(binaries, "nsa-compile"), model, "-o", os.path.join(args.folder, name + ".nsax"),
                     f"--target={args.target}", "--allow-slow-path=all", *options).strip(), flush=True)
    os.remove(model)


def prepare(args):
    os.makedirs(args.folder, exist_ok=True)
    for name, (batch, length, contexts) in TIMES.items():
        values = {"train.seq_len": length, "train.batch_size": batch, "train.micro_batch": batch}
        compile_model(args, name, values, "--precision=bf16", f"--context={contexts[-1] + 256}")
    shutil.copy(os.path.join(args.build, "test/gpu/decode-on-gpu"), args.folder)


TORCH = """
import sys, torch, torch.nn.functional as F
batch, contexts = int(sys.argv[1]), [int(c) for c in sys.argv[2:]]
dim, layers, heads, groups, width, hidden, vocab = 2048, 24, 32, 2, 64, 5632, 50304
new = lambda *shape: torch.randn(*shape, device="cuda", dtype=torch.bfloat16) * 0.02
weights = [dict(qkv=new((heads + 2 * groups) * width, dim), o=new(dim, heads * width), up=new(2 * hidden, dim),
                down=new(dim, hidden), a=new(dim) + 1, m=new(dim) + 1) for _ in range(layers)]
table, head, norm = new(vocab, dim), new(vocab, dim), new(dim) + 1
def rotate(x, cos, sin):
    low, high = x.chunk(2, -1)
    return torch.cat((low * cos - high * sin, high * cos + low * sin), -1)
def step(token, place, caches, cos, sin):
    x = table[token]
    for w, (k, v) in zip(weights, caches):
        h = F.linear(F.rms_norm(x, (dim,), w["a"]), w["qkv"])
        q, key, value = h.split((heads * width, groups * width, groups * width), -1)
        q = rotate(q.view(batch, heads, 1, width), cos, sin)
        k.index_copy_(2, place, rotate(key.view(batch, groups, 1, width), cos, sin))
        v.index_copy_(2, place, value.view(batch, groups, 1, width))
        o = F.scaled_dot_product_attention(q, k, v, enable_gqa=True)
        x = x + F.linear(o.reshape(batch, heads * width), w["o"])
        gate, up = F.linear(F.rms_norm(x, (dim,), w["m"]), w["up"]).chunk(2, -1)
        x = x + F.linear(F.silu(gate) * up, w["down"])
    return F.linear(F.rms_norm(x, (dim,), norm), head).argmax(-1)
compiled = torch.compile(step) if "--compile" in sys.argv else step
with torch.inference_mode():
    for context in contexts:
        caches = [(new(batch, groups, context, width), new(batch, groups, context, width)) for _ in range(layers)]
        token = torch.zeros(batch, dtype=torch.long, device="cuda")
        place = torch.tensor([context - 1], device="cuda")
        cos, sin = new(width // 2), new(width // 2)
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for _ in range(3):
                compiled(token, place, caches, cos, sin)
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            token.copy_(compiled(token, place, caches, cos, sin))
        times = []
        for _ in range(40):
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record(); graph.replay(); end.record(); end.synchronize()
            times.append(begin.elapsed_time(end))
        time = sorted(times)[20]
        print(f"batch {batch} context {context}: {time:.4f} ms a token, {1000 * batch / time:.1f} tokens/s", flush=True)
        del graph, caches
"""


def run(args):
    program = os.path.join(args.folder, "decode-on-gpu")
    environment = dict(os.environ, **({"NSA_BLAS": args.blas} if args.blas else {}))
    file = lambda name: os.path.join(args.folder, name + ".nsax")
    rows = {}
    for name, (batch, length, contexts) in TIMES.items():
        numbers = [str(context) for context in contexts]
        text = call(program, "time", file(name), str(args.steps), *numbers, env=environment)
        print(text, flush=True)
        note(rows, 0, text)
        if args.torch:
            note(rows, 1, call(args.torch, "-c", TORCH, str(batch), *numbers))
        if args.profile:
            print(call(program, "profile", file(name), numbers[-2], env=environment), flush=True)
    print("| batch | context | nsa, ms a token | dense in PyTorch, ms |\n|---|---|---|---|")
    for (batch, context), times in rows.items():
        print(f"| {batch} | {context:,} | {times.get(0, '')} | {times.get(1, '')} |")


def note(rows, column, text):
    for batch, context, time in re.findall(r"batch (\d+) context (\d+): (\S+) ms", text):
        rows.setdefault((int(batch), int(context)), {})[column] = time


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    first = commands.add_parser("prepare")
    first.set_defaults(function=prepare)
    first.add_argument("folder")
    first.add_argument("--target", default="sm_90a")
    first.add_argument("--build", default=os.path.join(ROOT, "build"))
    second = commands.add_parser("run")
    second.set_defaults(function=run)
    second.add_argument("folder")
    second.add_argument("--blas", default="")
    second.add_argument("--steps", type=int, default=100)
    second.add_argument("--torch", default="")
    second.add_argument("--profile", action="store_true")
    args = parser.parse_args()
    args.function(args)


main()
