#!/usr/bin/env python3
"""Holds the code of all kernels and of the host programs against what was recorded.

  test/codegen.py check  [--only NAME... | --all] [--ptxas]
  test/codegen.py update [--only NAME... | --all]

Compiles configurations of bench/shapes for each target and hashes what is emitted for each
kernel: PTX for GPUs, machine code for the CPU. Names, numbers of labels, comments and
debug information are left out of PTX, so that a kernel that is only called otherwise has
the same hash. test/codegen/NAME.txt is what codegen/record.py describes. With --all, or
by name, also what takes longer: random modules (`random`, codegen/modules.py) and the
losses of 20 steps on the CPU (`losses`, codegen/losses.py).

Reported apart: kernels whose code changed, those that only assume another alignment of
their arguments (a slice moved), renames, host programs (commands and their offsets),
launches (grids, threads). A check ends with 1 if anything differs. Under other versions
of LLVM than those that the file names, it says that it is skipped. Where PTX changed and
ptxas has the version of the file, it says what became of registers and spills; with
--ptxas the machine code of all kernels is compared. --only takes configurations, sets,
targets and both (smoke-cpu). --keep FOLDER keeps what was compiled, to compare with that
of another tree.

A commit that means to keep the code leaves the files as they are; one that means to
change it updates them and says why.
"""
import argparse
import collections
import concurrent.futures
import os
import sys
import tempfile

from codegen import losses, modules, record
from codegen.programs import CONFIGURATIONS, ROOT, TARGETS, Compiler, fail

# Counts of a check that are no differences.
NEUTRAL = {"programs", "kernels", "skipped", "machine code skipped"}
LINES = 30


def path_of(name):
    return os.path.join(ROOT, "test", "codegen", name + ".txt")


def read(name):
    """The text that was recorded, or nothing. Modules without a file for sm_86 have the PTX of sm_80; the machine code of
    configurations is another one."""
    is_text = name.split("-")[0] in modules.SETS
    for path in (path_of(name), *([path_of(name.replace("-sm_86", "-sm_80"))] if is_text else [])):
        if os.path.exists(path):
            with open(path) as file:
                return file.read()
    return None


def write(name, text):
    if text == read(name):
        return ["as before"]
    with open(path_of(name), "w") as file:
        file.write(text)
    return ["recorded"]


class Checker:
    """Checks or updates one subject: a configuration, a set of modules or losses, for a target."""

    def __init__(self, compiler, ptxas, paths):
        self.compiler, self.ptxas, self.paths = compiler, ptxas, paths
        self.counts = collections.Counter()

    def check(self, subject, target):
        name = name_of(subject, target)
        text = read(name)
        if text is None:
            fail(f"there is no {path_of(name)}; update it")
        versions = losses.versions(self.compiler) if subject == "losses" else {"LLVM": self.compiler.versions["LLVM"]}
        for tool, version in versions.items():
            if f"{tool} {version}" not in text.split("\n", 1)[0].lstrip("# ").split(", "):
                self.counts["skipped"] += 1
                return [f"skipped: recorded with {text.splitlines()[0].lstrip('# ')}, this is {tool} {version}"]
        if subject == "losses":
            differences = [("losses", line) for line in
                           losses.compare(text.splitlines()[1:], self.find_losses(versions).splitlines()[1:])]
            lines = []
        elif subject in modules.SETS:
            found = modules.record_set(self.compiler, target, self.paths)
            self.counts["programs"] += len(found.modules)
            differences, lines = modules.compare(modules.parse(text), found), []
        else:
            differences, lines = self.check_configuration(subject, target, record.parse(text))
        self.counts.update(kind for kind, _ in differences)
        lines += [f"{kind}: {text}".rstrip(": ") for kind, text in differences]
        return lines if len(lines) <= LINES else lines[:LINES] + [f"and {len(lines) - LINES} more"]

    def check_configuration(self, config, target, recorded):
        """The differences, and lines of another kind."""
        artefact = self.compiler.compile_configuration(config, target)
        found = self.compiler.record(artefact, target)
        self.counts["programs"] += 1
        self.counts["kernels"] += len(found.kernels)
        differences, lines = record.compare(recorded, found), []
        if target != "cpu" and (differences or self.ptxas):
            theirs, mine = recorded.versions["ptxas"], self.compiler.versions.get("ptxas", "none")
            if theirs == mine:
                differences = record.compare(recorded, self.compiler.assemble(artefact, target, found))
            elif self.ptxas:
                self.counts["machine code skipped"] += 1
                lines.append(f"machine code skipped: recorded with ptxas {theirs}, this is {mine}")
        return differences, lines

    def find_losses(self, versions):
        head = "# " + ", ".join(f"{tool} {version}" for tool, version in versions.items())
        found = [line for config in losses.CONFIGURATIONS for line in losses.train(self.compiler, config)]
        self.counts["programs"] += len(losses.CONFIGURATIONS)
        return "\n".join([head, *found]) + "\n"

    def update(self, subject, target):
        name = name_of(subject, target)
        if subject == "losses":
            return write(name, self.find_losses(losses.versions(self.compiler)))
        if subject in modules.SETS:
            return write(name, modules.record_set(self.compiler, target, self.paths).write())
        if target != "cpu" and not self.compiler.ptxas:
            fail("recording a GPU's programs needs ptxas")
        artefact = self.compiler.compile_configuration(subject, target)
        found = self.compiler.record(artefact, target)
        if target != "cpu":
            text = read(name)
            recorded = record.parse(text) if text else None
            known = {k.code: k.machine for k in recorded.kernels} if (
                recorded and recorded.versions == found.versions) else {}
            # The same PTX is the same machine code.
            if all(known.get(k.code) for k in found.kernels):
                found = found._replace(kernels=[k._replace(machine=known[k.code]) for k in found.kernels])
            else:
                found = self.compiler.assemble(artefact, target, found)
        return write(name, found.write())

    def summary(self):
        differing = [f"{count} {kind}" for kind, count in sorted(self.counts.items())
                     if kind not in ("programs", "kernels")]
        kernels = f"{self.counts['kernels']} kernels and " if self.counts["kernels"] else ""
        return f"{kernels}{self.counts['programs']} programs: {', '.join(differing) or 'all as recorded'}"

    def is_good(self):
        return not set(self.counts) - NEUTRAL


def name_of(subject, target):
    return subject if subject == "losses" else f"{subject}-{target}"


def choose(args):
    """Pairs of subjects and targets."""
    rest = [*modules.SETS, "losses"]
    every = [(subject, target) for subject in [*CONFIGURATIONS, *rest]
             for target in (("cpu",) if subject == "losses" else TARGETS)]
    if args.all:
        return every
    if not args.only:
        return [pair for pair in every if pair[0] in CONFIGURATIONS]
    only = set(args.only)
    chosen = [(subject, target) for subject, target in every if {subject, name_of(subject, target)} & only or
              (target in only and subject in CONFIGURATIONS)]
    unknown = only - {name for pair in every for name in [*pair, name_of(*pair)]}
    if unknown:
        fail(f"--only: no {' or '.join(sorted(unknown))} among {', '.join([*CONFIGURATIONS, *rest, *TARGETS])}")
    return chosen


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("check", "update"))
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME")
    parser.add_argument("--all", action="store_true", help="random modules and losses as well")
    parser.add_argument("--ptxas", action="store_true", help="compare what ptxas makes of every kernel")
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    parser.add_argument("--jobs", type=int, default=2, help="programs at a time")
    parser.add_argument("--keep", metavar="FOLDER", help="compile into this folder and leave it")
    args = parser.parse_args()
    chosen = choose(args)
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        if args.keep:
            os.makedirs(args.keep, exist_ok=True)
        compiler = Compiler(args.build, args.keep or folder)
        has_sets = any(subject in modules.SETS for subject, _ in chosen)
        checker = Checker(compiler, args.ptxas, modules.write_modules(compiler, fail) if has_sets else [])
        run = checker.check if args.action == "check" else checker.update
        for (subject, target), lines in zip(chosen, pool.map(run, *zip(*chosen))):
            for line in lines:
                print(f"{name_of(subject, target)}: {line}", flush=True)
    if args.action == "check":
        print(checker.summary())
        sys.exit(0 if checker.is_good() else 1)


main()
