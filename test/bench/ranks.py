#!/usr/bin/env python3
"""Measures data-parallel training on several GPUs of a machine.

  test/bench/ranks.py prepare FOLDER [--target sm_90a] [--only NAME...]
      compiles what is measured; needs the compiler, not a GPU
  test/bench/ranks.py run FOLDER [--gpus N...] [--only NAME...] [--out FOLDER]
      weak scaling: trains each on 1, 2, ... GPUs with the same tokens per GPU and
      step, and prints tokens per second, the efficiency against one GPU, how far
      ranks were apart in time, what the reductions take and how much of that is
      hidden (of commands one by one: what is profiled is no CUDA graph), and the
      memory of a GPU, with and without an optimizer's state that ranks share; then
      holds fp32 losses of several GPUs against those of one (smoke-same,
      smoke-recompute, smoke-shared, smoke-gradients, smoke-parameters, smoke-context), and kills and freezes ranks of the largest
      number of GPUs, and goes on after a kill (smoke-lost). Exit code 1 if losses
      differ by more than 1e-5, ranks of a large model are more than 5 % of a step
      apart (lesson 8), a rank lives on, ends with another code than 5 or blames
      another, a run that goes on differs from one without a kill, or something was
      not measured. Needs GPUs, not the compiler

Tokens per second are those between the ends of steps that are not logged, after
the first five: with all that happens between two steps, without statistics.

Everything takes longer than 10 minutes. In parts, of which each takes less:

  for name in m7c-2048x32 m7c-2048x4 m7c-2048x4-bf16; do
    test/bench/ranks.py run F --gpus 1 2 4 8 --only $name --out $name; done
  test/bench/ranks.py run F --gpus 1 2 4 8 --only llama-4096x1 --out llama
  test/bench/ranks.py run F --gpus 2 4 8 --only m7c-2048x4-shared --out m7c-shared
  test/bench/ranks.py run F --gpus 2 4 8 --only llama-4096x1-shared --out llama-shared
  test/bench/ranks.py run F --gpus 1 2 --only llama-32768x1 llama-32768x1-shared llama-32768x1-gradients llama-32768x1-parameters --out llama-shards
  test/bench/ranks.py run F --gpus 1 2 4 8 --only m7c-32768x1 m7c-32768x1-context --out m7c-context
  test/bench/ranks.py run F --gpus 1 2 4 8 --only smoke-same smoke-recompute smoke-shared smoke-context
  test/bench/ranks.py run F --gpus 8 --only smoke-lost

With --target cpu ranks reduce by Gloo, and nothing is profiled.
"""
import filecmp
import json
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

RECIPE = jobs.recipe(16, 32, 64) | {"model.rope_base": 500000}
# Configuration, tokens of a sequence, sequences of each rank, overrides.
SPEED = {
    "m7c-2048x32": ("m7c_125m", 2048, 32, {}),
    "m7c-2048x4": ("m7c_125m", 2048, 4, {}),
    "m7c-2048x4-bf16": ("m7c_125m", 2048, 4, {}),
    "llama-4096x1": ("llama_1b", 4096, 1, {"runtime.gradient_checkpointing": "cheap"}),
    "llama-32768x1": ("llama_1b", 32768, 1, {"runtime.gradient_checkpointing": "cheap"}),
    "m7c-32768x1": ("m7c_125m", 32768, 1, {}),
    "m7c-131072x1": ("m7c_125m", 131072, 1, {}),
    "recipe-32768x1": ("m7c_125m", 32768, 1, RECIPE),
    "recipe-131072x1": ("m7c_125m", 131072, 1, RECIPE),
    "smoke-speed": ("smoke", 64, 4, {}),
}
# The same where ranks keep parts of states, gradients or parameters: compiled for each number of ranks.
SHARDS = {"-shared": "optimizer", "-gradients": "gradients", "-parameters": "parameters"}
SHARED = {name + "-shared": SPEED[name] for name in ("m7c-2048x4", "llama-4096x1")}
SHARED |= {"llama-32768x1" + suffix: SPEED["llama-32768x1"] for suffix in SHARDS}
# All ranks share each sequence: as many tokens for all, compiled for each number too.
CONTEXT = {f"{model}-{length}x1-context": SPEED[f"{model}-{length}x1"] for model in ("m7c", "recipe") for length in (32768, 131072)}
SPEED |= SHARED | CONTEXT
SAME = {f"smoke-{kind}": ("smoke", 64, 1, {"runtime.precision": "fp32"}) for kind in ("same", "shared", "gradients", "parameters", "context")} | {
    "smoke-recompute": ("smoke", 64, 1, {"runtime.precision": "fp32",
                                         "runtime.gradient_checkpointing": "block"}),
}
JOBS = SPEED | SAME
# What is done with smoke-same besides.
LOST = "smoke-lost"
SHARING = (2, 4, 8)
PER_RANKS = (*SHARDS, "-context")
PER_RANKS_ENDING = re.compile("(" + "|".join(PER_RANKS) + ")$")
KILL_LIMIT = 30
# Seconds after --rank-seconds: 2 more where the store is silent, up to 2 until its ranks
# have left, 3 until the launcher kills the frozen one.
FROZEN_LIMIT = 8
# Percent of a step that ranks may be apart, where steps take long enough to say.
MOST_APART = 5
# Steps that set things up, and between logged ones.
WARM_UP, LOG_EVERY = 5, 10
EXIT_LOST_RANK = 5


def prepare(args):
    default = [name for name in JOBS if args.only or name != "smoke-speed"]
    for name in jobs.chosen(default, args.only):
        config, length, batch, overrides = JOBS[name]
        values = {"runtime.precision": "bf16", "train.seq_len": length, "train.batch_size": batch,
                  "runtime.device": "cpu" if args.target == "cpu" else "cuda",
                  "train.micro_batch": batch, "train.warmup_steps": 2, "train.log_every": LOG_EVERY}
        # As many passes as the ranks need.
        values |= jobs.STEPS_ONLY | {"train.accumulate_grad_batches": 0}
        options = ["--reduce-precision=bf16"] if name.endswith("-bf16") else []
        for ranks in args.shared if name.endswith(PER_RANKS) else []:
            kind = SHARDS.get(PER_RANKS_ENDING.search(name)[0])
            own = {} if kind else {"train.context_parallel": ranks}
            options = [f"--shard={kind}", f"--shard-ranks={ranks}"] if kind else [f"--context-parallel={ranks}"]
            jobs.prepare(args, f"{name}-{ranks}", config, values | overrides | own, *options)
        if name.endswith(PER_RANKS):
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
    return f"{name}-{ranks}" if name.endswith(PER_RANKS) else name


def is_cpu(args, job):
    with open(os.path.join(args.folder, job + ".json")) as file:
        return json.load(file)["settings"]["runtime.device"] == "cpu"


def log_of(args, label):
    with open(os.path.join(args.out, label + ".log")) as file:
        return file.read()


def tokens_per_second(directory, label, tokens):
    """Of all that happens between the ends of two steps."""
    ends = {heartbeat["step"]: heartbeat["ts"] for heartbeat in jobs.heartbeats(directory) if "toks_per_s" in heartbeat}
    times = [ends[step] - ends[step - 1] for step in ends
             if step > WARM_UP + 1 and step % LOG_EVERY and step != max(ends)]
    if len(times) < 3:
        jobs.fail(f"{label}: {len(times)} steps were measured")
    return tokens * len(times) / sum(times)


def hidden(args, job, ranks, values):
    """What reductions take, in words. Profiling takes commands one by one."""
    label = f"{job}-on-{ranks}-profiled"
    directory = jobs.train(args, job, values | {"train.steps": 12}, *rank_options(args, ranks),
                           "--profile", "8", label=label)
    found = [line for line in log_of(args, label).splitlines() if "reductions over ranks" in line]
    if not found:
        jobs.fail(f"{label}: reductions were not measured")
    shutil.copy(os.path.join(directory, "profile.json"),
                os.path.join(args.out, label + ".profile.json"))
    return found[0].split("] ", 1)[-1].strip()


def measure(args, name, ranks, single):
    """Prints a line, and returns tokens per second; `single` are those of one GPU."""
    job, label = job_for(name, ranks), f"{job_for(name, ranks)}-on-{ranks}"
    _, length, batch, _ = SPEED[name]
    batch *= 1 if name in CONTEXT else ranks
    values = {"train.batch_size": batch, "train.steps": args.steps}
    directory = jobs.train(args, job, values, *rank_options(args, ranks), label=label)
    speed = tokens_per_second(directory, label, batch * length)
    log = log_of(args, label)
    spreads = [float(text) for text in re.findall(r"ranks differ by ([\d.]+) % of a step", log)]
    memory = re.search(r"([\d.]+) MiB allocated", log)
    if not memory:
        jobs.fail(f"{label}: the log does not say how much memory was allocated")
    text = f"{name:19} {ranks:5} {speed:12.0f} {memory.group(1):>10}"
    if ranks == 1:
        print(text, flush=True)
        return speed
    if not spreads:
        jobs.fail(f"{label}: the log does not say how far ranks were apart")
    apart = statistics.median(spreads)
    efficiency = f"{100 * speed / (ranks * single):.1f} %" if single else "-"
    text += f" {efficiency:>12} {apart:8.1f} %"
    if not args.no_profile and not is_cpu(args, job):
        text += "  " + hidden(args, job, ranks, values)
    print(text, flush=True)
    if name != "smoke-speed" and apart > MOST_APART:
        jobs.fail(f"ranks are {apart} % of a step apart, {MOST_APART} % at most")
    return speed


def compare(args, name, batch):
    """fp32 losses of several ranks on the batch of one."""
    total = batch * max(args.gpus)
    losses = {}
    values = {"train.batch_size": total, "train.steps": 20}
    for ranks in args.gpus + [max(args.gpus)]:
        # One rank goes over the batch in passes, and shares nothing.
        job = job_for(name, ranks) if ranks > 1 else PER_RANKS_ENDING.sub("-same", name)
        label = f"{job}-on-{ranks}" + ("-again" if ranks in losses else "")
        directory = jobs.train(args, job, values, *rank_options(args, ranks), label=label)
        run = [row["loss"] for row in jobs.rows(directory)]
        if len(run) != values["train.steps"]:
            jobs.fail(f"{label}: {len(run)} steps were noted")
        if ranks in losses and losses[ranks] != run:
            jobs.fail(f"two runs on {ranks} GPUs have different losses")
        losses[ranks] = run
    worst = max(abs(float(a) - float(b)) / max(abs(float(b)), 1e-3)
                for run in losses.values() for a, b in zip(run, losses[args.gpus[0]]))
    print(f"{name}: losses on {args.gpus} GPUs within {worst:.1e} of each other, "
          f"the same twice on {max(args.gpus)}", flush=True)
    if worst > 1e-5:
        jobs.fail("losses differ by more than 1e-5")


def start_to_disturb(args, label, values, steps, *options):
    """Starts a run, and waits until each rank has made so many steps. Returns the
    process, the run's directory, and the process numbers of its ranks."""
    ranks = max(args.gpus)
    words, directory = jobs.command(args, "smoke-same", values, *rank_options(args, ranks),
                                    "--rank-seconds", str(args.rank_seconds), *options, label=label)
    shutil.rmtree(os.path.dirname(directory), ignore_errors=True)
    with open(os.path.join(args.out, label + ".log"), "w") as log:
        process = subprocess.Popen(words, stdout=log, stderr=subprocess.STDOUT)
    pids, deadline = {}, time.time() + 120
    while len(pids) < ranks:
        time.sleep(0.02)
        if process.poll() is not None or time.time() > deadline:
            process.kill()
            jobs.fail(f"{label}: ranks did not start: {log_of(args, label)[-2000:]}")
        for rank in set(range(ranks)) - set(pids):
            heartbeats = jobs.heartbeats(directory, rank)
            if heartbeats and heartbeats[-1]["step"] >= steps:
                pids[rank] = heartbeats[-1]["pid"]
    return process, directory, pids


def wait_for_end(args, label, process, pids, limit):
    """How long all ranks take to end."""
    sent = time.time()
    while any(os.path.exists(f"/proc/{pid}") for pid in pids.values()):
        if time.time() - sent > limit:
            process.kill()
            jobs.fail(f"{label}: a rank lives after {limit} s: {log_of(args, label)[-2000:]}")
        time.sleep(0.01)
    return time.time() - sent


def disturb(args, number, limit):
    """Sends a signal to a random rank, after some steps: all have to end in time with
    the code of a lost rank, and the others name it."""
    ranks = max(args.gpus)
    values = {"train.batch_size": SAME["smoke-same"][2] * ranks, "train.steps": 100000}
    for turn in range(1, args.rounds + 1):
        label = f"smoke-lost-signal-{int(number)}-{turn}"
        process, _, pids = start_to_disturb(args, label, values, 5)
        time.sleep(random.random())
        victim = random.randrange(ranks)
        os.kill(pids[victim], number)
        seconds = wait_for_end(args, label, process, pids, limit)
        code = process.wait(timeout=30)
        text = log_of(args, label)
        reason = [line for line in text.splitlines() if "error:" in line]
        print(f"smoke-lost: signal {int(number)} to rank {victim} of {ranks}, all ended after "
              f"{seconds:.1f} s, code {code}: {reason[0] if reason else text[-300:]}", flush=True)
        if code != EXIT_LOST_RANK:
            jobs.fail(f"{label}: code {code}, not {EXIT_LOST_RANK}")
        if not jobs.blames("\n".join(reason), victim, ranks):
            jobs.fail(f"{label}: not rank {victim} is to blame: {text[-3000:]}")


def go_on(args):
    """Kills a rank of a run that goes on from the last checkpoint: it ends with the bits of
    one that nobody disturbed."""
    ranks, steps = max(args.gpus), args.restart_steps
    values = {"train.batch_size": SAME["smoke-same"][2] * ranks, "train.steps": steps,
              "train.save_every": steps // 4}
    calm = jobs.train(args, "smoke-same", values, *rank_options(args, ranks),
                      label="smoke-lost-calm")
    label = "smoke-lost-killed"
    process, directory, pids = start_to_disturb(args, label, values, steps // 4 + 2)
    victim = random.randrange(ranks)
    os.kill(pids[victim], signal.SIGKILL)
    if (code := process.wait(timeout=300)) != EXIT_LOST_RANK:
        jobs.fail(f"{label}: code {code}: {log_of(args, label)[-3000:]}")
    text = jobs.call(*jobs.command(args, "smoke-same", values, *rank_options(args, ranks), "--resume", "auto", label=label)[0])
    resumed = re.search(r"resuming from \S+ at step (\d+)", text)
    if not resumed:
        jobs.fail(f"{label}: did not go on from a checkpoint: {text[-3000:]}")
    def table(run):
        return [[row[key] for key in ("step", "loss", "lr", "grad_norm")] for row in jobs.rows(run)]
    if len(table(calm)) != steps or table(directory) != table(calm):
        jobs.fail(f"{label}: a step differs from that of a run without a kill")
    last = f"checkpoints/step-{steps:08}"
    for part in ("model.safetensors", "optimizer.safetensors"):
        if not filecmp.cmp(os.path.join(calm, last, part), os.path.join(directory, last, part),
                           shallow=False):
            jobs.fail(f"{label}: {part} differs from that of a run without a kill")
    print(f"smoke-lost: rank {victim} of {ranks} killed, gone on from step {resumed.group(1)} of "
          f"{steps}: the bits of a run without", flush=True)


def prepared(args):
    """The chosen jobs; of all, those that are prepared."""
    def is_there(name):
        needed = {job_for(name, ranks) for ranks in args.gpus if ranks > 1} or {name}
        if name == LOST:
            needed = {"smoke-same"}
        # One rank shares nothing.
        if 1 in args.gpus and name in SAME and name.endswith(PER_RANKS):
            needed.add("smoke-same")
        return all(os.path.exists(os.path.join(args.folder, job + ".nsax")) for job in needed)
    names = jobs.chosen([*JOBS, LOST], args.only)
    missing = [name for name in names if not is_there(name)]
    if len(missing) == len(names) or (args.only and missing):
        jobs.fail(f"'{args.folder}' does not hold {', '.join(missing)} for {args.gpus} GPUs; "
                  "see 'prepare'")
    return [name for name in names if name not in missing]


def run(args):
    random.seed(time.time_ns())
    names = prepared(args)
    if [name for name in names if name in SPEED]:
        print(f"{'weak scaling':19} {'GPUs':>5} {'tok/s':>12} {'MiB':>10} {'efficiency':>12} "
              f"{'apart':>10}")
    singles = {}
    for name in names:
        for ranks in args.gpus if name in SPEED else []:
            plain = PER_RANKS_ENDING.sub("", name)
            if ranks == 1 and name.endswith(PER_RANKS):
                continue
            speed = measure(args, name, ranks, singles.get(plain))
            if ranks == 1:
                singles[plain] = speed
    for name in names:
        if name in SAME:
            compare(args, name, SAME[name][2])
    if LOST in names:
        if max(args.gpus) == 1:
            jobs.fail("smoke-lost needs two GPUs")
        disturb(args, signal.SIGKILL, KILL_LIMIT)
        disturb(args, signal.SIGSTOP, args.rank_seconds + FROZEN_LIMIT)
        go_on(args)


def prepare_options(parser):
    parser.add_argument("--shared", nargs="+", type=int, default=SHARING,
                        help="numbers of GPUs that share an optimizer's state or sequences")


def run_options(parser):
    parser.add_argument("--gpus", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=3, help="ranks killed, and frozen")
    parser.add_argument("--rank-seconds", type=float, default=5, help="after which a frozen rank is lost")
    parser.add_argument("--restart-steps", type=int, default=2000,
                        help="steps of the run that goes on after a kill")
    parser.add_argument("--nccl", help="folder of NCCL")
    parser.add_argument("--no-profile", action="store_true")


jobs.main(__doc__, prepare, run, prepare_options, run_options)
