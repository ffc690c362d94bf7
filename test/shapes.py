#!/usr/bin/env python3
"""Compiles one layer of every public shape of shapes.txt for GPUs, and says what is refused.

  test/shapes.py                     all shapes, training and decoding, with ptxas
  test/shapes.py --third N           each shape at each length and for each target, in three of the nine pairs: N, N + 1
                                     and N + 2 are all
  test/shapes.py --quick             those marked so, up to kernels and without ptxas: their schedules are those of
                                     lib/Compiler/ScheduleAnswers.inc, by the hashes that shapes-quick.txt holds
  test/shapes.py --random 50 --seed 7    random shapes besides, printed as lines of shapes.txt
  test/shapes.py --update            all shapes; writes what ptxas answered, and nothing of kernels that none has; with --quick
                                     shapes-quick.txt

A shape is refused where nsa-compile refuses it by default: a kernel spills, its wgmma are serialised, its products are not on
tensor cores, or it takes more shared memory than there is. --only takes names, targets and lengths.
"""
import argparse
import collections
import concurrent.futures
import hashlib
import os
import random
import re
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ANSWERS = os.path.join(ROOT, "lib/Compiler/ScheduleAnswers.inc")
RECORD = os.path.join(ROOT, "test/shapes-quick.txt")
TARGETS = ("sm_80", "sm_86", "sm_90a")
LENGTHS = (2048, 8192, 32768)
DEFAULTS = {"l": 32, "d": 16, "lsel": 64, "n": 16, "w": 512, "phi": "mean", "pos": 0, "attn": "nsa", "batch": 1, "packed": 0}

Shape = collections.namedtuple("Shape", "name heads groups keys values parameters is_quick")
Case = collections.namedtuple("Case", "shape length target mode")


def parse(line):
    name, sizes, *rest = line.split()
    numbers = [int(size) for size in sizes.split("/")]
    parameters = dict(DEFAULTS)
    for key, value in (word.split("=") for word in rest if "=" in word):
        parameters[key] = value if key in ("phi", "attn") else int(value)
    return Shape(name, *numbers[:3], numbers[-1], parameters, "quick" in rest)


def spell(shape):
    given = [f"{key}={value}" for key, value in shape.parameters.items() if value != DEFAULTS[key]]
    return " ".join([shape.name, f"{shape.heads}/{shape.groups}/{shape.keys}/{shape.values}", *given])


def read_shapes():
    with open(os.path.join(ROOT, "test/shapes.txt")) as file:
        return [parse(line) for line in file if line.strip() and not line.startswith("#")]


def draw(rng, number):
    """A shape of the space that the compiler is for, and a length."""
    group = rng.randint(1, 32)
    groups = rng.randint(1, max(128 // group, 1))
    stride = rng.choice([4, 8, 16, 32])
    block = rng.choice([n for n in (8, 16, 32, 64) if n % stride == 0])
    select = rng.choice([n for n in range(16, 129, 4) if n % stride == 0 and n >= block])
    length = rng.choice([1, 63, 511, 1000, 2048, 3001, 4096, 8192, 16384, 50000, 131072])
    wide = rng.choice([32, 64, 128, 256] + list(range(32, 257, 8)))
    parameters = dict(DEFAULTS, l=block, d=stride, lsel=select, n=rng.randint(1, 64),
                      w=min(length, rng.choice([1, 17, 64, 128, 512, 1024, 4096, 131072])),
                      attn=rng.choice(["nsa", "nsa", "nsa", "dense", "window"]), packed=int(rng.random() < 0.2),
                      phi=rng.choice(["mean", "mean", "linear", "mlp"]))
    parameters["pos"] = int(parameters["phi"] != "mean" and rng.random() < 0.5)
    values = wide if rng.random() < 0.7 else 8 * rng.randint(4, 32)
    return Shape(f"random-{number}", group * groups, groups, wide, values, parameters, False), length


def configuration(case):
    shape, p = case.shape, case.shape.parameters
    layers = {"nsa": "nsa", "dense": "dense", "window": f"window:{p['w']}"}[p["attn"]]
    return f"""model: {{dim: 64, n_layers: 1, n_heads: {shape.heads}, n_kv_groups: {shape.groups}, d_k: {shape.keys}, d_v: {shape.values},
  mlp_dim: 64, layers: "{layers}"}}
nsa: {{l: {p['l']}, d: {p['d']}, l_sel: {p['lsel']}, n_sel: {p['n']}, n_local: {min(2, p['n'])}, n_initial: 1, w: {p['w']}, phi: {p['phi']}, phi_pos: {'true' if p['pos'] else 'false'}}}
runtime: {{precision: bf16}}
data: {{isolate_documents: {'true' if p['packed'] else 'false'}}}
train: {{seq_len: {case.length}, batch_size: {p['batch']}, micro_batch: {p['batch']}}}
"""


class Sweep:
    def __init__(self, args, folder):
        self.args, self.folder = args, folder

    def tool(self, name, *options):
        result = subprocess.run([os.path.join(self.args.build, "bin", name), *options], stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True,
                                env={**os.environ, "NSA_KERNEL_CACHE": self.args.cache})
        return result.returncode, result.stdout

    def run(self, number, case):
        """The seconds, the schedules of the kernels, and what was refused."""
        path = os.path.join(self.folder, f"case{number}")
        with open(path + ".yaml", "w") as file:
            file.write(configuration(case))
        began = time.time()
        code, text = self.tool("nsa-model", path + ".yaml", "-o", path + ".mlir")
        if code:
            return 0, [], text.splitlines()[:3]
        options = [path + ".mlir", f"--target={case.target}", "--threads=1"]
        if case.mode == "decode":
            options += [f"--context={case.length}"]
        text = ""
        if not self.args.quick:
            code, text = self.tool("nsa-compile", *options, "-o", path + ".nsax")
        refused = [line for line in text.splitlines() if "error" in line or "ptxas fatal" in line][:6] if code else []
        schedules = []
        if not code:
            # With ptxas, what it answered is in the cache by now.
            options += ["--ptxas=none"] if self.args.quick else []
            code, kernels = self.tool("nsa-compile", *options, "--compile-to=kernel", "--columns=0")
            schedules = sorted(re.findall(r'nsa.schedule = \{kernel = "(\w+)", number = (\d+) : i64, sizes = #nsa.schedule(<[^>]*>|)', kernels))
        for suffix in (".yaml", ".mlir", ".nsax"):
            if os.path.exists(path + suffix):
                os.remove(path + suffix)
        return time.time() - began, schedules, refused or (["failed"] if code else [])


def name_of(case):
    return f"{case.shape.name} {case.length} {case.target} {case.mode}"


def shorten(line):
    """The kind of the lint and the kernel, without the location."""
    lint = re.search(r"performance lint '([\w-]+)' in kernel @(\S+?);", line)
    return f"{lint[1]} {lint[2]}" if lint else line[-200:]


def write_answers(found):
    """`found`: (kernel, architecture) -> number of refused schedules."""
    chips, kernels = {}, {}
    for (kernel, chip), number in sorted(found.items()):
        if number or kernel == "0" * 16:
            chips.setdefault((kernel, number), []).append(chip)
    for (kernel, number), names in chips.items():
        kernels.setdefault((" ".join(names), number), []).append(f"0x{kernel}")
    with open(ANSWERS, "w") as file:
        for (names, number), group in sorted(kernels.items()):
            rows = [", ".join(group[first:first + 4]) for first in range(0, len(group), 4)]
            file.write(f'{{"{names}", {number}, {{\n    ' + ",\n    ".join(rows) + "}},\n")
    return sum(map(len, kernels.values()))


def read_answers():
    with open(ANSWERS) as file:
        return {(kernel, chip): int(number) for chips, number, kernels in
                re.findall(r'\{"([\w ]+)", (\d+), \{([^}]*)\}\}', file.read())
                for kernel in re.findall(r"0x(\w+)", kernels) for chip in chips.split()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--update", action="store_true")
    parser.add_argument("--third", type=int, metavar="N")
    parser.add_argument("--random", type=int, default=0, metavar="N")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="+", default=[])
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    parser.add_argument("--cache", default=os.path.join(ROOT, "build", "kernel-cache"), help="NSA_KERNEL_CACHE of the compilations [%(default)s]")
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args()
    only = set(args.only)
    cases = []
    if args.random:
        rng = random.Random(args.seed)
        for number in range(args.random):
            shape, length = draw(rng, number)
            print(spell(shape), f"length={length}")
            target, mode = rng.choice(TARGETS), rng.choice(["train", "train", "decode"])
            # A context holds a block.
            cases.append(Case(shape, length, target, mode if length >= shape.parameters["l"] else "train"))
    else:
        shapes = read_shapes()
        for length in LENGTHS:
            cases += [Case(shape, length, target, mode) for shape in shapes for target in TARGETS
                      for mode in ("train", "decode") if not args.quick or (shape.is_quick and length == 2048 and mode == "train")]
        if args.third is not None:
            cases = [case for case in cases if (shapes.index(case.shape) + LENGTHS.index(case.length)
                                                + TARGETS.index(case.target) + args.third) % 3 == 0]
    for kind in ({c.shape.name for c in cases}, set(TARGETS), {str(c.length) for c in cases}, {"train", "decode"}):
        if only & kind:
            cases = [case for case in cases if {case.shape.name, case.target, str(case.length), case.mode} & kind & only]
    is_whole = not (only or args.random or args.third is not None)
    # Without any answer the table begins with that of no kernel.
    refused, answers, found, record = collections.Counter(), read_answers(), {("0" * 16, "none"): 0}, []
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        sweep = Sweep(args, folder)
        for case, (seconds, schedules, errors) in zip(cases, pool.map(sweep.run, range(len(cases)), cases)):
            for line in errors:
                print(f"{name_of(case)}: {shorten(line)}", flush=True)
            if errors:
                refused[case.target, case.length] += 1
            if not args.quick:
                later = "; ".join(f"{number}: {text}" for _, number, text in schedules if number != "0")
                print(f"{name_of(case)}: {'REFUSED' if errors else 'ok'}, {seconds:.1f} s, {later}", flush=True)
            if args.update and not args.quick:
                found |= {(kernel, case.target): int(number) for kernel, number, _ in schedules}
                write_answers(answers | found)
            digest = hashlib.sha256(repr(schedules).encode()).hexdigest()[:16]
            record.append(f"{name_of(case)} {digest}\n")
    print(f"{len(cases)} compilations, {sum(refused.values())} refused" +
          "".join(f", {count} of {target} at {length:,}" for (target, length), count in sorted(refused.items())))
    if args.update and not args.quick:
        print(f"{write_answers(found if is_whole else answers | found)} answers")
    if args.quick and not args.update:
        with open(RECORD) as file:
            if (recorded := file.readlines()) != record:
                sys.exit("the schedules of " + ", ".join(sorted({line.rsplit(' ', 1)[0] for line in set(recorded) ^ set(record)})) +
                         f" are not those of {RECORD}: run test/shapes.py --update, and with --quick")
    elif args.quick:
        with open(RECORD, "w") as file:
            file.writelines(record)
    sys.exit(1 if refused else 0)


main()
