#!/usr/bin/env python3
"""Everything that is tested on one GPU.

  test/gpu/all.py prepare FOLDER [--target sm_90a] [--only NAME...]
      compiles it; needs the compiler, not a GPU
  test/gpu/all.py run FOLDER [--blas FOLDER] [--out FOLDER] [--only NAME...]
      runs it and prints a table last; exit code 1 if something fails; needs a GPU,
      not the compiler

The names are kernels (nsa-prebuild, PrebuiltKernelsTest), lessons (lessons.py),
training (training.py) and generate (generate.py). What they print is in OUT/NAME.log as well.
"""
import os
import shutil
import subprocess
import sys
import time

import jobs

HERE = os.path.dirname(os.path.abspath(__file__))
NAMES = ("kernels", "lessons", "training", "generate")
# Programs side by side: the reference waits for the GPU, and the GPU for it.
SHARDS = 4


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


def prepare_kernels(args, folder):
    built = os.path.join(args.build, "test", "gpu")
    shutil.rmtree(folder, ignore_errors=True)
    jobs.call(os.path.join(built, "nsa-prebuild"), folder, args.target, str(args.shapes),
              str(args.seed), *([str(args.modules)] + ([str(args.work)] if args.work else [])))
    shutil.copy(os.path.join(built, "PrebuiltKernelsTest"), folder)


def run_kernels(args, folder):
    """All shards at once; their output one after the other."""
    environment = os.environ | {"NSA_PREBUILT": folder, "GTEST_TOTAL_SHARDS": str(SHARDS)}
    if args.blas:
        environment["NSA_BLAS"] = args.blas
    logs = [os.path.join(args.out, f"kernels-{shard}.log") for shard in range(SHARDS)]
    processes = []
    for shard, path in enumerate(logs):
        with open(path, "w") as file:
            processes.append(subprocess.Popen(
                [os.path.join(folder, "PrebuiltKernelsTest"), "--gtest_brief=1"], stdout=file,
                stderr=subprocess.STDOUT, env=environment | {"GTEST_SHARD_INDEX": str(shard)}))
    codes = [process.wait() for process in processes]
    passed = 0
    with open(os.path.join(args.out, "kernels.log"), "w") as together:
        for path in logs:
            with open(path, errors="replace") as file:
                text = file.read()
            os.remove(path)
            together.write(text)
            print(text, end="", flush=True)
            passed += "[  PASSED  ]" in text
    # A program that ends early says nothing of tests that passed.
    return not any(codes) and passed == SHARDS


def prepare(args):
    for name in jobs.chosen(NAMES, args.only):
        started = time.monotonic()
        folder = os.path.join(args.folder, name)
        if name == "kernels":
            prepare_kernels(args, folder)
        else:
            config = ["--config", args.config] if args.config and name != "generate" else []
            jobs.call(*script(name, "prepare", folder, "--target", args.target,
                              "--build", args.build, *config))
        print(f"{name}: prepared in {time.monotonic() - started:.0f} s", flush=True)


def run(args):
    names = jobs.chosen(NAMES, args.only)
    for name in names:
        if not os.path.isdir(os.path.join(args.folder, name)):
            jobs.fail(f"'{args.folder}' holds no '{name}'; see 'prepare'")
    table = []
    for name in names:
        folder, started = os.path.join(args.folder, name), time.monotonic()
        if name == "kernels":
            passed = run_kernels(args, folder)
        else:
            blas = ["--blas", args.blas] if args.blas else []
            passed = run_script(args, name, script(name, "run", folder, "--out",
                                                   os.path.join(args.out, name), *blas))
        table.append((name, "pass" if passed else "FAIL", time.monotonic() - started))
    print(f"\n{'name':10} {'result':6} {'seconds':>7}")
    for name, result, seconds in table:
        print(f"{name:10} {result:6} {seconds:7.0f}")
    sys.exit(any(result != "pass" for _, result, _ in table))


def prepare_options(parser):
    parser.add_argument("--config", help="of lessons and training, instead of theirs")
    parser.add_argument("--shapes", type=int, default=8, help="random shapes of kernels")
    parser.add_argument("--modules", type=int, default=24, help="random modules")
    parser.add_argument("--seed", type=int, default=1, help="of shapes and modules")
    parser.add_argument("--work", type=float, help="of kernels, see nsa-prebuild")


jobs.main(__doc__, prepare, run, prepare_options)
