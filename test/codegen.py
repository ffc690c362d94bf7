#!/usr/bin/env python3
"""Holds the code of all kernels and of the host programs against what was recorded.

  test/codegen.py check  [--only NAME...] [--ptxas]
  test/codegen.py update [--only NAME...]

Compiles the shipped configurations for each target and hashes what is emitted for each
kernel: PTX for GPUs, machine code for the CPU. Names, numbers of labels, comments and
debug information are left out of PTX, so that a kernel that is only called otherwise has
the same hash. test/codegen/NAME.txt is what codegen/record.py describes.

Reported apart: kernels whose code changed, those that only assume another alignment of
their arguments (a slice moved), renames, host programs (commands and their offsets),
launches (grids, threads). A check ends with 1 if anything differs. Under other versions
of LLVM than those that the file names, it says that it is skipped. Where PTX changed and
ptxas has the version of the file, it says what became of registers and spills; with
--ptxas the machine code of all kernels is compared. --only takes configurations, targets
and both (smoke-cpu).

A commit that means to keep the code leaves the files as they are; one that means to
change it updates them and says why.
"""
import argparse
import collections
import concurrent.futures
import os
import sys
import tempfile

from codegen.programs import CONFIGURATIONS, ROOT, TARGETS, Compiler, fail
from codegen.record import compare, parse


def path_of(name):
    return os.path.join(ROOT, "test", "codegen", name + ".txt")


def read(name):
    try:
        with open(path_of(name)) as file:
            return parse(file.read())
    except FileNotFoundError:
        return None


class Check:
    """Counts what differs."""

    def __init__(self, compiler, ptxas):
        self.compiler, self.ptxas = compiler, ptxas
        self.counts = collections.Counter()

    def run(self, config, target):
        name = f"{config}-{target}"
        recorded = read(name)
        if not recorded:
            fail(f"there is no {path_of(name)}; update it")
        mine = self.compiler.versions
        if recorded.versions["LLVM"] != mine["LLVM"]:
            self.counts["skipped"] += 1
            return [f"skipped: recorded with LLVM {recorded.versions['LLVM']}, this is {mine['LLVM']}"]
        artefact = self.compiler.compile_configuration(config, target)
        found = self.compiler.record(artefact, target)
        self.counts["programs"] += 1
        self.counts["kernels"] += len(found.kernels)
        differences, lines = compare(recorded, found), []
        if target != "cpu" and (differences or self.ptxas):
            if recorded.versions["ptxas"] == mine.get("ptxas"):
                differences = compare(recorded, self.compiler.assemble(artefact, target, found))
            elif self.ptxas:
                self.counts["not assembled"] += 1
                lines.append(f"machine code skipped: recorded with ptxas {recorded.versions['ptxas']}, "
                             f"this is {mine.get('ptxas', 'none')}")
        self.counts.update(difference.kind for difference in differences)
        return lines + [f"{kind}: {text}".rstrip(": ") for kind, text in differences]

    def summary(self):
        differing = {kind: count for kind, count in sorted(self.counts.items())
                     if kind not in ("programs", "kernels")}
        parts = [f"{count} {kind}" for kind, count in differing.items()]
        return (f"{self.counts['kernels']} kernels of {self.counts['programs']} programs: "
                f"{', '.join(parts) or 'all as recorded'}")

    def is_good(self):
        return not set(self.counts) - {"programs", "kernels", "skipped", "not assembled"}


def update(compiler, config, target):
    name = f"{config}-{target}"
    if target != "cpu" and not compiler.ptxas:
        fail("recording a GPU's programs needs ptxas")
    artefact = compiler.compile_configuration(config, target)
    found = compiler.record(artefact, target)
    recorded = read(name)
    if target != "cpu":
        known = recorded and recorded.versions == found.versions and {k.code: k.machine for k in recorded.kernels}
        if known and all(known.get(k.code) for k in found.kernels):
            found = found._replace(kernels=[k._replace(machine=known[k.code]) for k in found.kernels])
        else:
            found = compiler.assemble(artefact, target, found)
    text = found.write()
    if recorded and text == recorded.write():
        return ["as before"]
    with open(path_of(name), "w") as file:
        file.write(text)
    return ["recorded"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("check", "update"))
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME")
    parser.add_argument("--ptxas", action="store_true", help="compare what ptxas makes of every kernel")
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    parser.add_argument("--jobs", type=int, default=2, help="programs at a time")
    args = parser.parse_args()
    chosen = [(config, target) for config in CONFIGURATIONS for target in TARGETS
              if not args.only or {config, target, f"{config}-{target}"} & set(args.only)]
    if not chosen:
        fail(f"--only chooses nothing of {', '.join(CONFIGURATIONS)} and {', '.join(TARGETS)}")
    with tempfile.TemporaryDirectory() as folder, \
            concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        compiler = Compiler(args.build, folder)
        check = Check(compiler, args.ptxas)
        run = check.run if args.action == "check" else lambda *names: update(compiler, *names)
        for (config, target), lines in zip(chosen, pool.map(run, *zip(*chosen))):
            for line in lines:
                print(f"{config}-{target}: {line}", flush=True)
    if args.action == "check":
        print(check.summary())
        sys.exit(0 if check.is_good() else 1)


main()
