#!/usr/bin/env python3
"""Trains on a GPU and checks how: at several lengths, with and without
recomputation, in bf16 and in fp16, and bf16 against fp32.

  test/gpu/training.py prepare FOLDER [--target sm_90a] [--config m7c_125m]
      compiles the models and packs text; needs the compiler, not a GPU
  test/gpu/training.py run FOLDER [--only NAME...] [--blas FOLDER] [--out FOLDER]
      trains each and prints a line about it; exit code 1 if one of them has a
      loss that is not finite, falls by less than 1 nat from its first 50 steps
      to its last 50, has a step among the third to the tenth of more than 1.5
      times the median, or ends more than 2 % from the run that it is held
      against; needs a GPU, not the compiler

With --target cpu and a small --config it all runs on the processor.
"""
import argparse
import csv
import json
import math
import os
import shutil
import statistics
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
WINDOW = 50

# Precision, length, what is computed again, steps, tokens of a step as a share of
# those of the others, and the run that the loss is held against.
RUNS = {
    f"bf16-{length}-{recompute}": ("bf16", length, recompute, 200, 1, None)
    for length in (128, 512, 1024, 2048)
    for recompute in ("none", "cheap")
}
RUNS |= {f"fp16-{length}": ("fp16", length, "none", 200, 1, None) for length in (512, 2048)}
RUNS |= {
    "bf16-2048-long": ("bf16", 2048, "none", 1000, 1, None),
    "fp32-2048-short": ("fp32", 2048, "none", 1000, 4, None),
    "bf16-2048-short": ("bf16", 2048, "none", 1000, 4, "fp32-2048-short"),
}


def fail(message):
    sys.exit(f"training.py: error: {message}")


def call(*command):
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if result.returncode:
        fail(f"{' '.join(command)}\n{result.stdout}")
    return result.stdout


def chosen(only):
    for name in only:
        if name not in RUNS:
            fail(f"there is no '{name}', only {', '.join(RUNS)}")
    return [name for name in RUNS if not only or name in only]


def settings(args, name):
    precision, length, recompute, steps, share, _ = RUNS[name]
    batch = max(args.tokens // (length * share), 1)
    values = {
        "runtime.precision": precision, "runtime.gradient_checkpointing": recompute,
        "runtime.device": "cpu" if args.target == "cpu" else "cuda",
        "train.seq_len": length, "train.batch_size": batch, "train.micro_batch": batch,
        "train.accumulate_grad_batches": 1, "train.steps": steps,
        "train.warmup_steps": 10, "train.lr": args.lr, "train.eval_every": 0, "train.save_every": 0,
        "train.final_eval_batches": 1, "train.sample_bytes": 0, "train.log_every": 50,
    }
    return [text for key, value in values.items() for text in ("--set", f"{key}={value}")]


def prepare(args):
    os.makedirs(args.folder, exist_ok=True)
    binaries = os.path.join(args.build, "bin")
    source = os.path.join(ROOT, "configs", args.config + ".yaml")
    for name in chosen(args.only):
        precision, _, recompute = RUNS[name][:3]
        model = os.path.join(args.folder, name + ".mlir")
        changes = settings(args, name)
        call(os.path.join(binaries, "nsa-model"), source, "-o", model, *changes)
        call(os.path.join(binaries, "nsa-compile"), model, "-o", model[:-5] + ".nsax",
             f"--target={args.target}", f"--precision={precision}", f"--recompute={recompute}",
             "--allow-slow-path=spill,serialised")
        os.remove(model)
        with open(os.path.join(args.folder, name + ".json"), "w") as file:
            json.dump({"settings": changes}, file)
        print(f"prepared {name}", flush=True)
    shutil.copy(source, os.path.join(args.folder, "config.yaml"))
    shutil.copy(os.path.join(binaries, "nsa-train"), args.folder)
    data = os.path.join(args.folder, "data")
    if not os.path.isdir(data):
        call(os.path.join(binaries, "nsa-data"), "pack", *args.text, "--max-bytes", "20000000",
             "-o", data)


def train(args, name):
    """The rows of training.csv, as dictionaries."""
    with open(os.path.join(args.folder, name + ".json")) as file:
        changes = json.load(file)["settings"]
    runs = os.path.join(args.out, name)
    shutil.rmtree(runs, ignore_errors=True)
    text = call(os.path.join(args.folder, "nsa-train"), os.path.join(args.folder, name + ".nsax"),
                "--config", os.path.join(args.folder, "config.yaml"),
                "--data", os.path.join(args.folder, "data"), "--no-progress", *changes,
                "--out-dir", runs, "--run-name", "run",
                *(["--blas", args.blas] if args.blas else []))
    with open(os.path.join(args.out, name + ".log"), "w") as file:
        file.write(text)
    with open(os.path.join(runs, "run", "training.csv")) as file:
        return list(csv.DictReader(file))


def judge(name, rows, ends):
    """The figures of a run, and what is wrong with them."""
    losses = [float(row["loss"]) for row in rows]
    times = [1 / float(row["toks_per_s"]) for row in rows]
    first, last = statistics.mean(losses[:WINDOW]), statistics.mean(losses[-WINDOW:])
    longest = max(times[2:10]) / statistics.median(times)
    speed = statistics.median(float(row["toks_per_s"]) for row in rows)
    wrong = []
    if len(rows) != RUNS[name][3]:
        wrong.append(f"{len(rows)} steps of {RUNS[name][3]}")
    if not all(map(math.isfinite, losses)):
        wrong.append("a loss that is not finite")
    if not last <= first - 1:
        wrong.append("falls by less than 1 nat")
    if longest > 1.5:
        wrong.append("a slow step among 3..10")
    other = RUNS[name][5]
    if other in ends and not abs(last - ends[other]) <= 0.02 * ends[other]:
        wrong.append(f"{100 * abs(last / ends[other] - 1):.1f} % from {other}")
    ends[name] = last
    return f"{name:18} {first:8.4f} {last:8.4f} {longest:8.2f} {speed:9.0f}", wrong


def run(args):
    os.makedirs(args.out, exist_ok=True)
    there = [name for name in chosen(args.only)
             if os.path.exists(os.path.join(args.folder, name + ".nsax"))]
    if not there:
        fail(f"'{args.folder}' holds nothing to train; see 'prepare'")
    failures, ends = 0, {}
    print(f"{'run':18} {'first 50':>8} {'last 50':>8} {'longest':>8} {'tok/s':>9}")
    for name in there:
        line, wrong = judge(name, train(args, name), ends)
        failures += bool(wrong)
        print(line, "; ".join(["FAIL"] + wrong if wrong else ["pass"]), flush=True)
    print(f"{len(there)} runs, {failures} failures")
    sys.exit(failures > 0)


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
            command.add_argument("--config", default="m7c_125m")
            command.add_argument("--tokens", type=int, default=16384, help="of a step")
            command.add_argument("--lr", type=float, default=6e-4)
            command.add_argument("--text", nargs="+", default=["/usr/include"], metavar="PATH")
            command.add_argument("--build", default=os.path.join(ROOT, "build"))
        else:
            command.add_argument("--blas", help="folder of cuBLASLt")
            command.add_argument("--out", default="gpu-runs")
    args = parser.parse_args()
    args.folder = os.path.abspath(args.folder)
    args.function(args)


main()
