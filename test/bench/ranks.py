#!/usr/bin/env python3
"""Measures data-parallel training on several GPUs of a machine.

  test/bench/ranks.py prepare FOLDER [--target sm_90a] [--only NAME...]
      compiles what is measured; needs the compiler, not a GPU
  test/bench/ranks.py run FOLDER [--gpus N...] [--only NAME...] [--out FOLDER]
      weak scaling: trains each on 1, 2, ... GPUs with the same tokens per GPU and
      step, and prints tokens per second, the efficiency against one GPU, how far
      ranks were apart in time, what the reductions take and how much of that is
      hidden, and the memory of a GPU, with and without an optimizer's state that
      ranks share; then holds fp32 losses of several GPUs against those of one, and
      kills and freezes ranks. Exit code 1 if losses differ by more than 1e-5, ranks
      of a large model are more than 5 % of a step apart (lesson 8), or a rank lives
      on. Needs GPUs, not the compiler

With --target cpu ranks reduce by Gloo, and nothing is profiled.
"""
import os
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../gpu"))
import jobs  # noqa: E402

# Configuration, tokens of a sequence, sequences of each rank, overrides.
SPEED = {
    "m7c-2048x32": ("m7c_125m", 2048, 32, {}),
    "m7c-2048x4": ("m7c_125m", 2048, 4, {}),
    "m7c-2048x4-bf16": ("m7c_125m", 2048, 4, {}),
    "llama-4096x1": ("llama_1b", 4096, 1, {"runtime.gradient_checkpointing": "cheap"}),
    "smoke-speed": ("smoke", 64, 4, {}),
}
# The same where ranks share the optimizer's state: compiled for each number of ranks.
SHARED = {name + "-shared": SPEED[name] for name in ("m7c-2048x4", "llama-4096x1")}
SPEED |= SHARED
SAME = {
    "smoke-same": ("smoke", 64, 1, {"runtime.precision": "fp32"}),
    "smoke-shared": ("smoke", 64, 1, {"runtime.precision": "fp32"}),
    "smoke-recompute": ("smoke", 64, 1, {"runtime.precision": "fp32",
                                         "runtime.gradient_checkpointing": "block"}),
}
SHARING = (2, 4)
RANK_SECONDS, KILL_LIMIT = 5, 30
# Percent of a step that ranks may be apart, where steps take long enough to say.
MOST_APART = 5


def prepare(args):
    default = [name for name in SPEED | SAME if args.only or name != "smoke-speed"]
    for name in jobs.chosen(default, args.only):
        config, length, batch, overrides = (SPEED | SAME)[name]
        values = {"runtime.precision": "bf16", "train.seq_len": length, "train.batch_size": batch,
                  "runtime.device": "cpu" if args.target == "cpu" else "cuda",
                  "train.micro_batch": batch, "train.warmup_steps": 2, "train.log_every": 10}
        # As many passes as the ranks need.
        values |= jobs.STEPS_ONLY | {"train.accumulate_grad_batches": 0}
        options = ["--reduce-precision=bf16"] if name.endswith("-bf16") else []
        if name.endswith("-shared"):
            for ranks in SHARING:
                jobs.prepare(args, f"{name}-{ranks}", config, values | overrides,
                             f"--shard-optimizer={ranks}")
            continue
        jobs.prepare(args, name, config, values | overrides, *options)
    if args.target == "cpu":
        shutil.copy(os.path.join(args.build, "lib", "nsa-gloo.so"), args.folder)
    jobs.prepare_data(args, "synth", "--kind", "markov", "--order", "2", "--vocab", "64",
                      "--tokens", "4000000")


def rank_options(args, ranks):
    gloo = os.path.join(args.folder, "nsa-gloo.so")
    words = ["--nproc", str(ranks)]
    # One rank connects nothing, and refuses these.
    if ranks > 1 and args.nccl:
        words += ["--nccl", args.nccl]
    if ranks > 1 and os.path.exists(gloo):
        words += ["--gloo", gloo]
    return words


def job_for(name, ranks):
    return f"{name}-{ranks}" if name.endswith("-shared") else name


def measure(args, name, ranks, batch, single):
    """Prints a line, and returns tokens per second."""
    kind, name = name, job_for(name, ranks)
    values = {"train.batch_size": batch * ranks, "train.steps": args.steps}
    directory = jobs.train(args, name, values, *rank_options(args, ranks))
    speeds = [float(row["toks_per_s"]) for row in jobs.rows(directory)]
    speed = statistics.median(speeds[5:])
    with open(os.path.join(args.out, name + ".log")) as file:
        log = file.read()
    spreads = [float(text) for text in re.findall(r"ranks differ by ([\d.]+) % of a step", log)]
    memory = re.search(r"([\d.]+) MiB allocated", log)
    text = f"{kind:19} {ranks:5} {speed:12.0f} {memory.group(1) if memory else '-':>10}"
    if ranks > 1:
        efficiency = f"{100 * speed / (ranks * single):.1f} %" if single else "-"
        apart = statistics.median(spreads or [0])
        text += f" {efficiency:>12} {apart:8.1f} %"
        # The first steps set things up, and profiling takes commands one by one.
        if not args.no_profile:
            directory = jobs.train(args, name, values | {"train.steps": 12},
                                   *rank_options(args, ranks), "--profile", "8")
            with open(os.path.join(args.out, name + ".log")) as file:
                found = [line for line in file if "reductions over ranks" in line]
            text += "  " + (found[0].split("] ", 1)[-1].strip() if found else "not measured")
            shutil.copy(os.path.join(directory, "profile.json"),
                        os.path.join(args.out, f"{name}-{ranks}.profile.json"))
    print(text, flush=True)
    if ranks > 1 and kind != "smoke-speed" and apart > MOST_APART:
        jobs.fail(f"ranks are {apart} % of a step apart, {MOST_APART} % at most")
    return speed


def compare(args, name, batch):
    """fp32 losses of several ranks on the batch of one."""
    total = batch * max(args.gpus)
    losses = {}
    values = {"train.batch_size": total, "train.steps": 20}
    for ranks in args.gpus + [max(args.gpus)]:
        # One rank goes over the batch in passes, and shares nothing.
        job = job_for(name, ranks) if ranks > 1 else name.replace("-shared", "-same")
        run = [row["loss"]
               for row in jobs.rows(jobs.train(args, job, values, *rank_options(args, ranks)))]
        if ranks in losses and losses[ranks] != run:
            jobs.fail(f"two runs on {ranks} GPUs have different losses")
        losses[ranks] = run
    worst = max(abs(float(a) - float(b)) / max(abs(float(b)), 1e-3)
                for run in losses.values() for a, b in zip(run, losses[args.gpus[0]]))
    print(f"{name}: losses on {args.gpus} GPUs within {worst:.1e} of each other, "
          f"the same twice on {max(args.gpus)}", flush=True)
    if worst > 1e-5:
        jobs.fail("losses differ by more than 1e-5")


def disturb(args, name, number, limit, batch):
    """Sends a signal to a random rank, after some steps: all have to end in time, and
    the launcher goes on from the last checkpoint."""
    ranks = max(args.gpus)
    values = {"train.batch_size": batch * ranks, "train.steps": 100000, "train.save_every": 0}
    words, directory = jobs.command(args, name, values, *rank_options(args, ranks),
                                    "--rank-seconds", str(RANK_SECONDS))
    longest = 0.0
    for _ in range(args.rounds):
        shutil.rmtree(os.path.dirname(directory), ignore_errors=True)
        with open(os.path.join(args.out, name + ".log"), "w") as log:
            process = subprocess.Popen(words, stdout=log, stderr=subprocess.STDOUT)
        pids, deadline = {}, time.time() + 120
        while len(pids) < ranks and time.time() < deadline:
            time.sleep(0.05)
            for rank in set(range(ranks)) - set(pids):
                beats = jobs.beats(directory, rank)
                if len(beats) > 5:
                    pids[rank] = beats[-1]["pid"]
        if len(pids) < ranks:
            process.kill()
            jobs.fail("ranks did not start: " + open(log.name).read()[-2000:])
        time.sleep(random.random())
        os.kill(pids[random.randrange(ranks)], number)
        sent = time.time()
        while process.poll() is None and time.time() - sent < limit + 5:
            time.sleep(0.01)
        longest = max(longest, time.time() - sent)
        text = open(log.name).read()
        if process.poll() is None or any(os.path.exists(f"/proc/{pid}") for pid in pids.values()):
            process.kill()
            jobs.fail(f"a rank lives {limit} s after signal {number}: {text[-2000:]}")
        reason = [line for line in text.splitlines() if "error:" in line]
    print(f"{name}: {args.rounds} times signal {int(number)} to a rank, all ended after "
          f"{longest:.1f} s at most, code {process.returncode}: {reason[0] if reason else text[-300:]}",
          flush=True)
    if longest > limit:
        jobs.fail(f"more than {limit} s")


def run(args):
    random.seed(time.time_ns())
    names = [name for name in jobs.chosen(list(SPEED | SAME), args.only)
             if any(os.path.exists(os.path.join(args.folder, job_for(name, ranks) + ".nsax"))
                    for ranks in SHARING)]
    if not names:
        jobs.fail(f"'{args.folder}' holds nothing to run; see 'prepare'")
    print(f"{'weak scaling':19} {'GPUs':>5} {'tok/s':>12} {'MiB':>10} {'efficiency':>12} {'apart':>10}")
    for name in names:
        if name in SPEED:
            single = 0
            for ranks in args.gpus:
                if ranks == 1 and name in SHARED:
                    continue
                speed = measure(args, name, ranks, SPEED[name][2], single)
                single = single or speed / ranks
    for name in names:
        if name in SAME:
            compare(args, name, SAME[name][2])
    if "smoke-same" in names:
        for number, limit in ((signal.SIGKILL, KILL_LIMIT), (signal.SIGSTOP, RANK_SECONDS + 10)):
            disturb(args, "smoke-same", number, limit, SAME["smoke-same"][2])


def run_options(parser):
    parser.add_argument("--gpus", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=3, help="ranks killed, and frozen")
    parser.add_argument("--nccl", help="folder of NCCL")
    parser.add_argument("--no-profile", action="store_true")


jobs.main(__doc__, prepare, run, run_options=run_options)
