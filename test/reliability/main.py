#!/usr/bin/env python3
"""Makes faults, lets the real tools meet them, and counts how they end.

Each row is a kind of fault: how many were made, how many ended as they should, how many
were silent (exit code 0 with another result than an undisturbed run's), how many tools
were ended by a signal that nobody sent. What a case does follows from the seed, the row
and its number alone."""

import argparse
import concurrent.futures
import os
import pathlib
import random
import shutil
import sys
import tempfile
import time
import traceback

import changes
import checkpoints
import datasets
import forks
import kills
import poison
import ranks
import signals
import strangers
import writes
from lab import ROOT, Crashed, Lab, Silent, Wrong

ROWS = [kills.Kills(), writes.Writes(), checkpoints.Checkpoints(), datasets.Shards(), datasets.Manifests(),
        changes.Changes(), poison.Poison(), ranks.Ranks(), strangers.Strangers(), forks.Forks(), signals.Signals()]
COLUMNS = ["row", "made", "as they should", "silent", "by signal", "otherwise wrong"]


class Counts:
    """What became of the cases of a row."""

    def __init__(self, row):
        self.row, self.made = row, 0
        self.good, self.silent, self.crashed, self.wrong = [], [], [], []

    def add(self, number, error, note):
        self.made += 1
        kinds = {Silent: self.silent, Crashed: self.crashed}
        (self.good if error is None else kinds.get(type(error), self.wrong)).append((number, note))

    def bad(self):
        return sorted(self.silent + self.crashed + self.wrong)

    def cells(self):
        return [self.row.title, *map(str, (self.made, len(self.good), len(self.silent), len(self.crashed),
                                           len(self.wrong)))]


def run_case(lab, row, seed, number, keep):
    """The number of the case, what was wrong or nothing, and what was done."""
    folder = lab.scratch / row.name / f"{number:04}"
    folder.mkdir(parents=True)
    rng = random.Random(f"{seed} {row.name} {number}")
    try:
        note, error = row.case(lab, rng, folder, number), None
    except Wrong as wrong:
        note, error = str(wrong), wrong
    except Exception as unexpected:  # What a row did not reckon with is a failure of its case.
        note = f"{type(unexpected).__name__}: {unexpected} {traceback.format_tb(unexpected.__traceback__)[-1]}"
        error = Wrong(note)
    if not keep:
        shutil.rmtree(folder, ignore_errors=True)
    return number, error, note


def run_row(lab, row, seed, numbers, pool, keep):
    counts, begin = Counts(row), time.monotonic()
    for end in pool.map(lambda number: run_case(lab, row, seed, number, keep), numbers):
        counts.add(*end)
    print(f"{row.name}: {counts.made} made, {len(counts.good)} as they should, {len(counts.silent)} silent, "
          f"{len(counts.crashed)} by signal, {len(counts.wrong)} otherwise wrong "
          f"({time.monotonic() - begin:.0f} s)", flush=True)
    for number, note in counts.bad():
        print(f"  {' / '.join(note.splitlines())}\n    test/reliability.sh --seed {seed} --only {row.name} --case {number}", flush=True)
    if keep:
        for number, note in counts.good:
            print(f"  {number}: {note}")
    return counts


def table(all_counts):
    lines = [COLUMNS, *(counts.cells() for counts in all_counts)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(COLUMNS))]
    form = lambda line: "| " + " | ".join(
        cell.ljust(width) if i == 0 else cell.rjust(width)
        for i, (cell, width) in enumerate(zip(line, widths))) + " |"
    rule = "|" + "|".join(f" {'-' * (w - 1)}{'-' if i == 0 else ':'} " for i, w in enumerate(widths)) + "|"
    return "\n".join([form(lines[0]), rule, *map(form, lines[1:])])


def parse(words):
    parser = argparse.ArgumentParser(prog="test/reliability.sh", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="all cases, for half an hour; otherwise a tenth")
    parser.add_argument("--seed", default=os.environ.get("NSA_TEST_SEED", "1795224286"))
    parser.add_argument("--only", metavar="ROW", action="append", choices=[row.name for row in ROWS],
                        help="this row only (repeatable): " + ", ".join(row.name for row in ROWS))
    parser.add_argument("--case", type=int, metavar="N", help="this case of the row only; its folder is kept")
    parser.add_argument("--jobs", type=int, default=2, help="cases at a time [2]")
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build" / "bin", help="folder of the tools")
    parser.add_argument("--self-test", action="store_true",
                        help="tools that hide the damage: every row must count them as silent")
    return parser.parse_args(words)


def main():
    args = parse(sys.argv[1:])
    scratch = pathlib.Path(tempfile.mkdtemp(prefix="reliability-")).resolve()
    keep = args.case is not None
    rows = [row for row in ROWS if not args.only or row.name in args.only]
    begin = time.monotonic()
    print(f"seed {args.seed}", flush=True)
    try:
        lab = Lab(args.bin.resolve(), scratch)
        if args.self_test:
            import selftest
            return selftest.run(lab, rows, args.seed)
        all_counts = []
        with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
            for row in rows:
                numbers = [args.case] if keep else range(row.counts[args.full])
                all_counts.append(run_row(lab, row, args.seed, numbers, pool, keep))
    finally:
        if keep:
            print(f"kept: {scratch}")
        else:
            shutil.rmtree(scratch, ignore_errors=True)
    failed = sum(len(counts.bad()) for counts in all_counts)
    passed = sum(len(counts.good) for counts in all_counts)
    print(f"\n{table(all_counts)}\n\nseed {args.seed}, {time.monotonic() - begin:.0f} s")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
