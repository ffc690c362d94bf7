#!/usr/bin/env python3
"""Trains on a GPU and checks how: at several lengths, with and without
recomputation, in bf16 and in fp16, and bf16 against fp32; and the smallest model in
fp32 against the processor.

  test/gpu/training.py prepare FOLDER [--target sm_90a] [--config m7c_125m]
      compiles the models, packs text and trains on the processor what is held
      against it; needs the compiler and OpenBLAS, not a GPU
  test/gpu/training.py run FOLDER [--only NAME...] [--blas FOLDER] [--out FOLDER]
      trains each and prints a line about it; exit code 1 if one of them has a
      loss that is not finite, falls by less than 1 nat from its first 50 steps
      to its last 50, has a step among the third to the tenth of more than 1.5
      times the median, or ends more than 2 % from the run that it is held
      against, or if a loss is more than 1e-3 from the processor's; needs a GPU,
      not the compiler

With --target cpu and a small --config it all runs on the processor.
"""
import argparse
import json
import math
import os
import statistics
import sys
import tempfile

import jobs

WINDOW = 50

# Precision, length, what is computed again, steps, tokens of a step as a share of
# those of the others, and the run that the loss is held against. These two have the
# learning rate of the configuration: with three times that and so few tokens, programs
# in bf16 that only round in other places end up to 5 % apart.
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

# Steps of smoke whose losses are the processor's.
PAIR, PAIR_STEPS, PAIR_TOLERANCE = "fp32-processor", 100, 1e-3


def prepare_pair(args):
    """The job for the target, and the losses of the same job on the processor."""
    values = {"runtime.precision": "fp32", "runtime.device": "cpu",
              "train.micro_batch": 4, "train.steps": PAIR_STEPS,
              "train.log_every": 50} | jobs.STEPS_ONLY
    with tempfile.TemporaryDirectory() as out:
        here = argparse.Namespace(**vars(args) | {"target": "cpu", "out": out, "blas": None})
        jobs.prepare(here, PAIR, "smoke", values)
        losses = [float(row["loss"]) for row in jobs.rows(jobs.train(here, PAIR, {}))]
    assert len(losses) == PAIR_STEPS, losses
    with open(os.path.join(args.folder, PAIR + ".losses"), "w") as file:
        json.dump(losses, file)
    if args.target != "cpu":
        jobs.prepare(args, PAIR, "smoke", values | {"runtime.device": "cuda"})


def judge_pair(args):
    """How far the losses are from the processor's, and what is wrong with that."""
    with open(os.path.join(args.folder, PAIR + ".losses")) as file:
        expected = json.load(file)
    losses = [float(row["loss"]) for row in jobs.rows(jobs.train(args, PAIR, {}))]
    wrong = [] if len(losses) == len(expected) else [f"{len(losses)} steps of {len(expected)}"]
    gaps = [abs(x - y) for x, y in zip(losses, expected)]
    # Written so that NaN is wrong.
    if not all(gap <= PAIR_TOLERANCE for gap in gaps):
        wrong.append(f"a loss is more than {PAIR_TOLERANCE} from the processor's")
    return f"{PAIR}: {len(gaps)} losses, at most {max(gaps):.1e} from the processor's", wrong


def prepare(args):
    names = jobs.chosen([*RUNS, PAIR], args.only)
    jobs.prepare_data(args, "pack", *args.text, "--max-bytes", "20000000")
    if PAIR in names:
        prepare_pair(args)
        names.remove(PAIR)
    for name in names:
        precision, length, recompute, steps, share, _ = RUNS[name]
        batch = max(args.tokens // (length * share), 1)
        values = {
            "runtime.precision": precision, "runtime.gradient_checkpointing": recompute,
            "runtime.device": "cpu" if args.target == "cpu" else "cuda",
            "train.seq_len": length, "train.batch_size": batch, "train.micro_batch": batch,
            "train.steps": steps, "train.warmup_steps": 10, "train.log_every": 50,
        }
        if share == 1:
            values["train.lr"] = args.lr
        jobs.prepare(args, name, args.config, values | jobs.STEPS_ONLY)


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
    names = jobs.there(args, [*RUNS, PAIR])
    failures, ends = 0, {}
    print(f"{'run':18} {'first 50':>8} {'last 50':>8} {'longest':>8} {'tok/s':>9}")
    for name in names:
        if name == PAIR:
            line, wrong = judge_pair(args)
        else:
            line, wrong = judge(name, jobs.rows(jobs.train(args, name, {})), ends)
        failures += bool(wrong)
        print(line, "; ".join(["FAIL"] + wrong if wrong else ["pass"]), flush=True)
    print(f"{len(names)} runs, {failures} failures")
    sys.exit(failures > 0)


def prepare_options(parser):
    parser.add_argument("--config", default="m7c_125m")
    parser.add_argument("--tokens", type=int, default=16384, help="of a step")
    parser.add_argument("--lr", type=float, default=6e-4, help="of runs that are not compared")
    parser.add_argument("--text", nargs="+", default=["/usr/include"], metavar="PATH")


jobs.main(__doc__, prepare, run, prepare_options)
