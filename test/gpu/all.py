#!/usr/bin/env python3
"""Everything that is tested on one GPU.

  test/gpu/all.py prepare FOLDER [--target sm_90a] [--only NAME...]
      compiles it; needs the compiler, not a GPU
  test/gpu/all.py run FOLDER [--blas FOLDER] [--out FOLDER] [--only NAME...]
      runs it and prints a table last; exit code 1 if something fails; needs a GPU,
      not the compiler

The names are lessons (lessons.py), training (training.py) and generate (generate.py). What
they print is in OUT/NAME.log as well. Single operations: NSA_JUDGE_TARGET=sm_90a pytest test/judge.
"""
import os
import subprocess
import sys
import time

import jobs

HERE = os.path.dirname(os.path.abspath(__file__))
NAMES = ("lessons", "training", "generate")


def run_script(args, name, words):
    """Shows what a command prints and keeps it; whether it succeeds."""
    with open(os.path.join(args.out, name + ".log"), "w") as file:
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                   text=True, errors="replace")
        for line in process.stdout:
            file.write(line)
            print(line, end="", flush=True)
        return process.wait() == 0


def script(name, *words):
    return [sys.executable, os.path.join(HERE, name + ".py"), *words]


def prepare(args):
    for name in jobs.chosen(NAMES, args.only):
        started = time.monotonic()
        folder = os.path.join(args.folder, name)
        config = ["--config", args.config] if args.config and name != "generate" else []
        jobs.call(*script(name, "prepare", folder, "--target", args.target, "--build", args.build, *config))
        print(f"{name}: prepared in {time.monotonic() - started:.0f} s", flush=True)


def run(args):
    names = jobs.chosen(NAMES, args.only)
    for name in names:
        if not os.path.isdir(os.path.join(args.folder, name)):
            jobs.fail(f"'{args.folder}' holds no '{name}'; see 'prepare'")
    table = []
    for name in names:
        folder, started = os.path.join(args.folder, name), time.monotonic()
        blas = ["--blas", args.blas] if args.blas else []
        passed = run_script(args, name, script(name, "run", folder, "--out", os.path.join(args.out, name), *blas))
        table.append((name, "pass" if passed else "FAIL", time.monotonic() - started))
    print(f"\n{'name':10} {'result':6} {'seconds':>7}")
    for name, result, seconds in table:
        print(f"{name:10} {result:6} {seconds:7.0f}")
    sys.exit(any(result != "pass" for _, result, _ in table))


def prepare_options(parser):
    parser.add_argument("--config", help="of lessons and training, instead of theirs")


jobs.main(__doc__, prepare, run, prepare_options)
