#!/usr/bin/env python3
"""Checks on a GPU what must never happen again; the numbers are those of the
table of lessons in test/README.md.

  test/gpu/lessons.py prepare FOLDER [--target sm_90a] [--config m7c_125m]
      compiles the models; needs the compiler, not a GPU
  test/gpu/lessons.py run FOLDER [--only NAME...] [--blas FOLDER] [--out FOLDER]
      prints how long the first step takes from the start of nsa-train, and a line
      for each lesson; exit code 1 if one fails; needs a GPU, and compute-sanitizer
      for lesson-03, not the compiler

With --target cpu and a small --config it all runs on the processor, on sequences of
an eighth of the length.
"""
import json
import math
import os
import re
import shutil
import statistics
import subprocess
import sys
import time

import jobs
import races

LENGTHS = (128, 512, 1024, 2048)
# From here on each block of keys has as many partial sums of gradients as it may have.
MEMORY_LENGTHS = (8192, 65536)
# Tokens per second that training has to reach at 2,048, however small the GPU.
LEAST_SPEED = 785


def shorten(is_cpu):
    global LENGTHS, MEMORY_LENGTHS
    if is_cpu:
        LENGTHS, MEMORY_LENGTHS = ([n // 8 for n in lengths] for lengths in (LENGTHS, MEMORY_LENGTHS))


def values(args, length, more=None):
    return {
        "runtime.precision": "bf16", "train.seq_len": length, "train.batch_size": 2,
        "train.micro_batch": 2, "runtime.device": "cpu" if args.target == "cpu" else "cuda",
        "train.warmup_steps": 2, "train.steps": 10, "train.log_every": 1,
    } | jobs.STEPS_ONLY | (more or {})


def prepare(args):
    shorten(args.target == "cpu")
    for length in LENGTHS:
        jobs.prepare(args, f"length-{length}", args.config, values(args, length))
    jobs.prepare(args, "recompute", args.config,
                 values(args, LENGTHS[-1], {"runtime.gradient_checkpointing": "cheap"}))
    jobs.prepare(args, "checked", "smoke", values(args, LENGTHS[1], {"model.n_layers": 1}))
    for length in MEMORY_LENGTHS:
        jobs.prepare(args, f"memory-{length}", "smoke", values(args, length))
    jobs.prepare_data(args, "synth", "--kind", "markov", "--order", "2", "--vocab", "64",
                      "--tokens", str(30 * MEMORY_LENGTHS[-1]))


def seconds_to_step_1(args):
    """From the start of nsa-train to the end of its first step, two times."""
    found = []
    for _ in range(2):
        started = time.time()
        heartbeats = jobs.heartbeats(jobs.train(args, f"length-{LENGTHS[-1]}", {"train.steps": 2}))
        found.append(next(b["ts"] for b in heartbeats if b["msg"] == "step") - started)
    return found


def losses(directory):
    return [row["loss"] for row in jobs.rows(directory)]


def log_of(args, name):
    with open(os.path.join(args.out, name + ".log")) as file:
        return file.read()


def lesson_01(args):
    """the first steps are finite at every length, command by command"""
    for length in LENGTHS:
        found = losses(jobs.train(args, f"length-{length}", {"train.steps": 2}, args.careful))
        assert len(found) == 2 and all(math.isfinite(float(loss)) for loss in found), (length, found)
    return f"{len(LENGTHS)} lengths"


def lesson_02(args):
    """no step hangs, each leaves a heartbeat, and longer sequences are no more commands"""
    counts = []
    for length in LENGTHS[1:]:
        directory = jobs.train(args, f"length-{length}", {})
        assert [b["step"] for b in jobs.heartbeats(directory) if b["msg"] == "step"] == list(range(1, 11))
        times = [1 / float(row["toks_per_s"]) for row in jobs.rows(directory)]
        assert args.is_cpu or max(times[2:]) <= 1.5 * statistics.median(times), times
        directory = jobs.train(args, f"length-{length}", {}, "--profile", "2")
        with open(os.path.join(directory, "profile.json")) as file:
            counts.append(len(json.load(file)["traceEvents"]) // 2)
    # Fewer where the selected branch takes masks in place of lists.
    assert counts == sorted(counts, reverse=True), counts
    return f"{counts} commands per step at {', '.join(map(str, LENGTHS[1:]))}"


def lesson_03(args):
    """nothing reads or writes where it must not, or what nobody has written, or what
    another thread is at"""
    if args.is_cpu:
        return "left out: memory of the processor"
    assert shutil.which("compute-sanitizer"), "there is no compute-sanitizer in PATH"
    words, directory = jobs.command(args, "checked", {"train.steps": 2}, "--no-graph")
    foreign = []
    for tool in ("memcheck", "initcheck", "synccheck", "racecheck"):
        shutil.rmtree(os.path.dirname(directory), ignore_errors=True)
        text = jobs.call("compute-sanitizer", "--tool", tool, *words)
        with open(os.path.join(args.out, tool + ".log"), "w") as file:
            file.write(text)
        assert len(losses(directory)) == 2, text[-2000:]
        if tool != "racecheck":
            assert "ERROR SUMMARY: 0 errors" in text, f"{tool}: {text[-2000:]}"
            continue
        foreign, own = races.split(text)
        assert not own, "races: " + races.describe(own)
    apart = f"; apart from {len(foreign)} races within cuBLAS: {races.describe(foreign)}"
    return "memcheck, initcheck, synccheck, racecheck: 0 errors" + (apart if foreign else "")


def lesson_07(args):
    """no path is slow, and training is fast, with and without recomputation"""
    speeds = []
    for name in (f"length-{LENGTHS[-1]}", "recompute"):
        found = [float(row["toks_per_s"]) for row in jobs.rows(jobs.train(args, name, {}))]
        speeds.append(statistics.median(found))
    assert args.is_cpu or min(speeds) >= LEAST_SPEED, speeds
    return f"{speeds[0]:.0f} tokens/s, with recomputation {speeds[1]:.0f}"


def lesson_10(args):
    """weights are fp32; what is not finite updates nothing and ends the run"""
    name = f"length-{LENGTHS[0]}"
    words, directory = jobs.command(args, name, {"train.lr": 100, "train.steps": 100,
                                                 "train.warmup_steps": 1})
    shutil.rmtree(os.path.dirname(directory), ignore_errors=True)
    result = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert result.returncode == 3, (result.returncode, result.stdout[-2000:])
    assert "the update was not applied" in result.stdout, result.stdout[-2000:]
    with open(os.path.join(directory, "dtypes_report.txt")) as file:
        weights = [line for line in file if re.search(r"^[^#].* parameter\b", line)]
    assert weights and all("f32 parameter" in line for line in weights), weights
    tensor = re.search(r"first tensor that is not finite: (.+)", result.stdout).group(1)
    return f"code 3 ({tensor}), {len(weights)} weights in f32"


def lesson_17(args):
    """memory is linear in the length"""
    planned = []
    for length in MEMORY_LENGTHS:
        jobs.train(args, f"memory-{length}", {"train.steps": 2})
        text = log_of(args, f"memory-{length}")
        planned.append(float(re.search(r"arena ([\d.]+)", text).group(1)))
        used = re.search(r"([\d.]+) MiB allocated, ([\d.]+) MiB of the GPU in use", text)
        assert args.is_cpu or float(used.group(2)) <= max(1.02 * float(used.group(1)),
                                                          float(used.group(1)) + 256), used.group(0)
    longer = MEMORY_LENGTHS[1] / MEMORY_LENGTHS[0]
    assert planned[1] <= 1.1 * longer * planned[0], planned
    return f"{planned} MiB of activations at {', '.join(map(str, MEMORY_LENGTHS))} tokens"


def lesson_21(args):
    """nothing is overwritten before its last reader: the order in which commands may
    overlap does not show in the losses"""
    name = f"length-{LENGTHS[1]}"
    graph, again = losses(jobs.train(args, name, {})), losses(jobs.train(args, name, {}))
    single = losses(jobs.train(args, name, {}, args.careful))
    assert graph == again == single, (graph, again, single)
    return "the same losses as a graph, again, and command by command"


LESSONS = {f"lesson-{name[7:]}": function for name, function in list(globals().items())
           if name.startswith("lesson_")}


def run(args):
    names = jobs.chosen(list(LESSONS), args.only)
    failures = 0
    with open(os.path.join(args.folder, "recompute.json")) as file:
        args.is_cpu = json.load(file)["settings"]["runtime.device"] == "cpu"
    shorten(args.is_cpu)
    # On a GPU each command is waited for, and what it wrote is checked.
    args.careful = "--check-finite" if args.is_cpu else "--no-graph"
    if not args.only:
        times = ", ".join(f"{seconds:.1f}" for seconds in seconds_to_step_1(args))
        print(f"start of nsa-train to the end of step 1: {times} s", flush=True)
    for name in names:
        try:
            result = "pass: " + LESSONS[name](args)
        except (AssertionError, SystemExit) as error:
            failures += 1
            result = f"FAIL: {error}"
        print(f"{name}: {' '.join(LESSONS[name].__doc__.split())}: {result}", flush=True)
    sys.exit(failures > 0)


def prepare_options(parser):
    parser.add_argument("--config", default="m7c_125m")


jobs.main(__doc__, prepare, run, prepare_options)
