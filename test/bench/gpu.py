#!/usr/bin/env python3
"""Measures training on a GPU.

  test/bench/gpu.py prepare FOLDER [--target sm_90a] [--only NAME...]
      compiles what is measured; needs the compiler, not a GPU
  test/bench/gpu.py run FOLDER [--only NAME...] [--steps N] [--out FOLDER]
      trains each for some steps and prints tokens per second, the time of the
      attention operations and of the most expensive commands; needs a GPU, not
      the compiler

The folder holds everything that `run` needs, so that it can be copied to another
machine.
"""
import argparse
import glob
import json
import os
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

# Steps of whole models: tokens of a sequence, sequences of a step.
STEPS = {
    "m7c-2048x32": ("m7c_125m", 2048, 32, {}),
    "m7c-8192x8": ("m7c_125m", 8192, 8, {}),
    "m7c-32768x2": ("m7c_125m", 32768, 2, {}),
    "llama-32768x1": ("llama_1b", 32768, 1, {"runtime.gradient_checkpointing": "cheap"}),
}


def one_layer(heads, groups, width):
    """Overrides that leave one layer with attention of this shape."""
    return {"model.n_layers": 1, "model.n_heads": heads, "model.n_kv_groups": groups,
            "model.d_k": width, "model.d_v": width, "model.dim": 256, "model.mlp_dim": 256}


# The attention of one layer: everything from projected queries, keys and values to
# the combined output.
ATTENTION = {
    f"attention-64x4x128-{length}": ("m7c_125m", length, 1, one_layer(64, 4, 128))
    for length in (4096, 8192, 16384, 32768, 65536)
}
ATTENTION |= {
    f"attention-12x2x64-{batch}x{length}": ("m7c_125m", length, batch, one_layer(12, 2, 64))
    for batch, length in ((8, 2048), (2, 8192), (1, 32768))
}


def fail(message):
    sys.exit(f"gpu.py: error: {message}")


def call(*command):
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if result.returncode:
        fail(f"{' '.join(command)}\n{result.stdout}")
    return result.stdout


def settings(length, batch, overrides):
    values = {"runtime.precision": "bf16", "train.seq_len": length, "train.batch_size": batch,
              "train.micro_batch": batch, "train.accumulate_grad_batches": 1,
              "train.warmup_steps": 2, "train.eval_every": 0, "train.save_every": 0,
              "train.final_eval_batches": 1, "train.sample_bytes": 0} | overrides
    return [text for key, value in values.items() for text in ("--set", f"{key}={value}")]


def chosen(names, only):
    for name in only:
        if name not in names:
            fail(f"there is no '{name}', only {', '.join(names)}")
    return [name for name in names if not only or name in only]


def prepare(args):
    os.makedirs(args.folder, exist_ok=True)
    binaries = os.path.join(args.build, "bin")
    jobs = {}
    for name, (config, length, batch, overrides) in (STEPS | ATTENTION).items():
        recompute = overrides.get("runtime.gradient_checkpointing", "none")
        jobs[name] = (config, settings(length, batch, overrides), recompute)
    names = chosen(list(jobs), args.only)
    for name in names:
        config, changes, recompute = jobs[name]
        source = os.path.join(ROOT, "configs", config + ".yaml")
        model = os.path.join(args.folder, name + ".mlir")
        call(os.path.join(binaries, "nsa-model"), source, "-o", model, *changes)
        call(os.path.join(binaries, "nsa-compile"), model, "-o", model[:-5] + ".nsax",
             f"--target={args.target}", "--precision=bf16",
             f"--recompute={recompute}", "--allow-slow-path=spill,serialised")
        os.remove(model)
        with open(os.path.join(args.folder, name + ".json"), "w") as file:
            json.dump({"settings": changes, "config": config + ".yaml"}, file)
        shutil.copy(source, args.folder)
        print(f"prepared {name}")
    shutil.copy(os.path.join(binaries, "nsa-train"), args.folder)
    data = os.path.join(args.folder, "data")
    if not os.path.isdir(data):
        call(os.path.join(binaries, "nsa-data"), "synth", "--kind", "markov", "--order", "2",
             "--vocab", "64", "--tokens", "2000000", "-o", data)


def measure(args, name, steps):
    """Trains, and returns the trace of its profile."""
    with open(os.path.join(args.folder, name + ".json")) as file:
        job = json.load(file)
    runs = os.path.join(args.out, name)
    shutil.rmtree(runs, ignore_errors=True)
    warmup = 4
    text = call(os.path.join(args.folder, "nsa-train"), os.path.join(args.folder, name + ".nsax"),
                "--config", os.path.join(args.folder, job["config"]),
                "--data", os.path.join(args.folder, "data"), "--no-progress", *job["settings"],
                "--set", "runtime.device=cuda", "--set", f"train.steps={steps + warmup}",
                "--out-dir", runs, "--run-name", "run", "--profile", str(steps),
                *(["--blas", args.blas] if args.blas else []))
    with open(os.path.join(args.out, name + ".log"), "w") as file:
        file.write(text)
    with open(os.path.join(runs, "run", "profile.json")) as file:
        return json.load(file)


def groups(trace):
    return trace["otherData"]["groups"]


def is_attention(group):
    return ".attention." in group["location"] and not group["command"].startswith("gemm")


def is_backward(group):
    return "(backward)" in group["location"]


def report_steps(args, names):
    print(f"\n{'step':16} {'tok/s':>9} {'ms':>9}   most expensive commands (ms)")
    for name in names:
        trace = measure(args, name, args.steps)
        other = trace["otherData"]
        print(f"{name:16} {other['tokens_per_second']:9.0f} {other['step_ms']:9.2f}", flush=True)
        for group in groups(trace)[:args.top]:
            print(f"    {group['ms']:9.3f} {group['count']:4}x {group['bytes'] / group['ms'] / 1e6:7.0f} GB/s"
                  f" {group['flops'] / group['ms'] / 1e9:7.1f} TFLOP/s  {group['command'][:100]}")


def report_attention(args, names):
    print(f"\n{'attention of one layer':30} {'forward ms':>11} {'fwd+bwd ms':>11}")
    for name in names:
        list_ = [g for g in groups(measure(args, name, args.steps)) if is_attention(g)]
        forward = sum(g["ms"] for g in list_ if not is_backward(g))
        print(f"{name:30} {forward:11.3f} {sum(g['ms'] for g in list_):11.3f}", flush=True)
        for group in list_[:args.top]:
            print(f"    {group['ms']:9.3f} {group['count']:4}x {group['flops'] / group['ms'] / 1e9:7.1f} TFLOP/s"
                  f"  {group['command'][:100]}")


def run(args):
    os.makedirs(args.out, exist_ok=True)
    there = {os.path.basename(path)[:-5] for path in glob.glob(os.path.join(args.folder, "*.nsax"))}
    names = chosen([n for n in STEPS | ATTENTION if n in there], args.only)
    if not names:
        fail(f"'{args.folder}' holds nothing to measure; see 'prepare'")
    steps = [name for name in names if name in STEPS]
    attention = [name for name in names if name in ATTENTION]
    if steps:
        report_steps(args, steps)
    if attention:
        report_attention(args, attention)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, function in (("prepare", prepare), ("run", run)):
        command = commands.add_parser(name)
        command.add_argument("folder")
        command.add_argument("--only", nargs="+", default=[], metavar="NAME")
        command.set_defaults(function=function)
        if name == "prepare":
            command.add_argument("--target", default="sm_90a")
            command.add_argument("--build", default=os.path.join(ROOT, "build"))
        else:
            command.add_argument("--steps", type=int, default=5)
            command.add_argument("--top", type=int, default=12)
            command.add_argument("--blas", help="folder of cuBLASLt")
            command.add_argument("--out", default="gpu-runs")
    args = parser.parse_args()
    args.folder = os.path.abspath(args.folder)
    args.function(args)


main()
