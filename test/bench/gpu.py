#!/usr/bin/env python3
"""Measures training on a GPU.

  test/bench/gpu.py prepare FOLDER [--target sm_90a] [--ptxas none] [--only NAME...]
      compiles what is measured, models of larger vocabularies and heads of public
      models (test/shapes.txt) if they are named; needs the compiler, not a GPU; without ptxas, kernels of an older target run on a
      later one, by the driver
  test/bench/gpu.py run FOLDER [--only NAME...] [--steps N] [--rounds N] [--data DATA] [--after N] [--torch PYTHON [--sf FOLDER]]
      trains each for some steps and prints tokens per second, the memory in use
      above a bare context and what was planned, the time of the attention
      operations and of the most expensive commands; with --rounds, all are trained
      so often, in turns, and medians are printed with how far the rounds are apart,
      in percent of them; with --torch, what peers.py measures at these shapes; with --after, what is measured has
      been trained for N steps, so that its queries select as trained ones do;
      needs a GPU, not the compiler

The folder holds everything that `run` needs, so that it can be copied to another
machine.
"""
import json
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../gpu"))
import jobs  # noqa: E402

# Steps of whole models: tokens of a sequence, sequences of a step.
STEPS = {
    "m7c-2048x32": ("m7c_125m", 2048, 32, {}),
    "m7c-8192x8": ("m7c_125m", 8192, 8, {}),
    "m7c-32768x2": ("m7c_125m", 32768, 2, {}),
    "llama-32768x1": ("llama_1b", 32768, 1, {"runtime.gradient_checkpointing": "cheap"}),
    # In 55 GiB.
    "llama-32768x1-block": ("llama_1b", 32768, 1, {"runtime.gradient_checkpointing": "block", "runtime.recompute_budget": 38500}),
    "m7c-2048x32-muon": ("m7c_125m", 2048, 32, {"train.optimizer": "muon"}),
}
# Dense layers, and the recipe, which selects a share of the sequence.
STEPS |= {f"m7c-dense-{length}x{65536 // length}": ("m7c_125m", length, 65536 // length, {"model.attention": "dense"})
          for length in (2048, 8192, 32768, 65536)}
STEPS |= {
    f"m7c-{share}-{length}x{65536 // length}": (
        "m7c_125m", length, 65536 // length, jobs.recipe(*sizes))
    for share, length, *sizes in (
        ("quarter", 2048, 16, 32, 16), ("half", 2048, 16, 32, 32), ("quarter", 8192, 16, 32, 64),
        ("quarter", 32768, 32, 64, 128), ("quarter", 65536, 32, 128, 128))
}
# The same on tokens of a larger vocabulary, which `run --data` has to have; isolated, the
# documents of a sequence do not see each other.
TOKENS = {
    f"m7c-{words}-{length}x{65536 // length}{'-isolated' * isolated}": (
        "m7c_125m", length, 65536 // length,
        {"model.vocab_size": words, "data.tokenizer": "shards" if words > 256 else "byte"}
        | ({"data.isolate_documents": "true"} if isolated else {}))
    for words in (256, 50304, 131072) for length in (2048, 8192, 32768) for isolated in (False, True)
}


def one_layer(heads, groups, width):
    """Overrides that leave one layer with attention of this shape."""
    return {"model.n_layers": 1, "model.n_heads": heads, "model.n_kv_groups": groups,
            "model.d_k": width, "model.d_v": width, "model.dim": 256, "model.mlp_dim": 256,
            "model.rope_base": 0}


# The attention of one layer: everything from projected queries, keys and values to the
# combined output. There is no rotary embedding: what others measure gets rotated inputs.
ATTENTION = {
    f"attention-64x4x128-{length}": ("m7c_125m", length, 1, one_layer(64, 4, 128))
    for length in (4096, 8192, 16384, 32768, 65536)
}
ATTENTION |= {
    f"attention-12x2x64-{batch}x{length}": ("m7c_125m", length, batch, one_layer(12, 2, 64))
    for batch, length in ((8, 2048), (2, 8192), (1, 32768))
}
# The window branch as causal attention; its own line below the sum is what counts.
ATTENTION |= {
    f"causal-64x4x128-{length}": ("m7c_125m", length, 1, one_layer(64, 4, 128) | {"nsa.w": length})
    for length in (4096, 32768)
}
# Layers of one kind.
ATTENTION |= {
    f"{kind}-{heads}x{groups}x{width}-{batch}x{length}":
        ("m7c_125m", length, batch, one_layer(heads, groups, width) | {"model.layers": layer})
    for kind, layer in (("window", "window:512"), ("dense", "dense"))
    for heads, groups, width, batch, length in ((12, 2, 64, 2, 8192), (64, 4, 128, 1, 8192))
}


def public_shapes():
    """One layer for heads of public models, by names of test/shapes.txt, at three lengths."""
    names = """llama-3.2-1b llama-3.2-3b llama-3-8b llama-3-70b llama-2-7b tinyllama-1.1b qwen2.5-0.5b qwen2.5-1.5b
        qwen2.5-3b qwen2.5-7b qwen2.5-14b qwen3-0.6b qwen3-30b-a3b qwen3-235b gemma-2b gemma-2-2b gemma-3-1b smollm2-135m
        smollm2-1.7b smollm3-3b olmo-2-1b phi-3-mini glm-4-9b m7c-125m""".split()
    with open(os.path.join(jobs.ROOT, "test/shapes.txt")) as file:
        sizes = dict(line.split()[:2] for line in file if not line.startswith("#"))
    return {f"{name}-{length}": ("m7c_125m", length, max(1, 16384 // length), one_layer(*map(int, sizes[name].split("/"))))
            for name in names for length in (2048, 8192, 32768)}


SHAPES = public_shapes()
# Of which there is one layer each.
LAYERS = ATTENTION | SHAPES
JOBS = STEPS | TOKENS | LAYERS


def prepare(args):
    for name in jobs.chosen(list(JOBS), args.only or list(STEPS | ATTENTION)):
        config, length, batch, overrides = JOBS[name]
        values = {"runtime.precision": "bf16", "train.seq_len": length,
                  "train.batch_size": batch, "train.micro_batch": batch, "train.warmup_steps": 2}
        jobs.prepare(args, name, config, values | jobs.STEPS_ONLY | overrides)
    jobs.prepare_data(args, "synth", "--kind", "markov", "--order", "2", "--vocab", "64",
                      "--tokens", "2000000")


def measure(args, name, steps):
    """Trains, and returns the trace of its profile and its metrics."""
    warmup = 4
    trained = []
    if args.after:
        values = {"runtime.device": "cuda", "train.steps": args.after, "train.lr": 1e-3, "train.warmup_steps": min(args.after, 20)}
        trained = ["--init-from", jobs.train(args, name, values, label=name + "-trained")]
    directory = jobs.train(args, name, {"runtime.device": "cuda", "train.steps": steps + warmup},
                           "--profile", str(steps), *trained)
    def read(name):
        with open(os.path.join(directory, name)) as file:
            return json.load(file)
    return read("profile.json"), read("metrics.json")


def groups(trace):
    return trace["otherData"]["groups"]


def is_attention(group):
    return re.search(r"\.attention\b", group["location"]) and not group["command"].startswith("gemm")


def is_part(group):
    """Whether it is part of the operation that others measure."""
    return "attention" in group["command"] or any(
        name in group["command"] for name in ("@select", "@compress", "@combine", "@gate"))


def is_backward(group):
    return "(backward)" in group["location"]


def measure_rounds(args, names, key):
    """For each name its round of the median `key`, and how far the rounds are apart, in percent of that."""
    rounds = [[measure(args, name, args.steps) for name in names] for _ in range(args.rounds - 1)]
    for i, name in enumerate(names):
        measured = sorted([measure(args, name, args.steps), *(others[i] for others in rounds)], key=key)
        keys = list(map(key, measured))
        yield name, measured[(len(keys) - 1) // 2], 100 * (keys[-1] - keys[0]) / keys[(len(keys) - 1) // 2]


def report_steps(args, names):
    print(f"\n{'step':16} {'tok/s':>9} {'ms':>9} {'apart':>7} {'MiB':>8} {'planned':>8}   most expensive commands (ms)")
    for name, (trace, metrics), apart in measure_rounds(args, names, lambda measured: measured[0]["otherData"]["step_ms"]):
        other = trace["otherData"]
        memory = [metrics[key] / 2 ** 20 for key in ("gpu_memory", "gpu_memory_planned")]
        print(f"{name:16} {other['tokens_per_second']:9.0f} {other['step_ms']:9.2f} {apart:5.1f} %"
              f" {memory[0]:8.0f} {memory[1]:8.0f}", flush=True)
        for group in groups(trace)[:args.top]:
            print(f"    {group['ms']:9.3f} {group['count']:4}x {group['bytes'] / group['ms'] / 1e6:7.0f} GB/s"
                  f" {group['flops'] / group['ms'] / 1e9:7.1f} TFLOP/s  {group['command'][:100]}")


def parts(measured):
    """The groups that are the operation that others measure."""
    return [group for group in groups(measured[0]) if is_attention(group) and is_part(group)]


def report_attention(args, names):
    print(f"\n{'attention of one layer':30} {'forward ms':>11} {'fwd+bwd ms':>11} {'apart':>7} {'TFLOP/s':>8}")
    for name, measured, apart in measure_rounds(args, names, lambda measured: sum(g["ms"] for g in parts(measured))):
        forward = sum(g["ms"] for g in parts(measured) if not is_backward(g))
        both = sum(g["ms"] for g in parts(measured))
        print(f"{name:30} {forward:11.3f} {both:11.3f} {apart:5.1f} %"
              f" {sum(g['flops'] for g in parts(measured)) / both / 1e9:8.0f}", flush=True)
        for group in list(filter(is_attention, groups(measured[0])))[:args.top]:
            print(f"    {group['ms']:9.3f} {group['count']:4}x {group['flops'] / group['ms'] / 1e9:7.1f} TFLOP/s"
                  f"  {group['command'][:100]}")


def report_peers(args, names):
    """What others have at the shapes of the jobs, in a process of its own."""
    shapes, steps = {}, {}
    for name in names:
        config, length, batch, overrides = JOBS[name]
        if name in LAYERS:
            sizes = [overrides[f"model.{key}"] for key in ("n_heads", "n_kv_groups", "d_k")]
            shapes[",".join(map(str, (batch, length, *sizes)))] = None
        elif config == "m7c_125m" and length <= 32768:
            steps[f"{batch}x{length}"] = None
    subprocess.run([args.torch, os.path.join(os.path.dirname(__file__), "peers.py"), "--attention", *shapes, "--steps", *steps,
                    *(["--sf", args.sf] if args.sf else [])], check=True)


def run(args):
    names = jobs.there(args, list(JOBS))
    steps = [name for name in names if name not in LAYERS]
    attention = [name for name in names if name in LAYERS]
    if steps:
        report_steps(args, steps)
    if attention:
        report_attention(args, attention)
    if args.torch:
        report_peers(args, names)


def run_options(parser):
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--top", type=int, default=12)
    parser.add_argument("--torch", metavar="PYTHON", help="a Python with PyTorch, to compare with")
    parser.add_argument("--sf", metavar="FOLDER", help="a checkout that peers.py compares with")
    parser.add_argument("--data", help="data set to train on [FOLDER/data]")
    parser.add_argument("--after", type=int, default=0, help="steps of training before [0]")


jobs.main(__doc__, prepare, run, run_options=run_options)
