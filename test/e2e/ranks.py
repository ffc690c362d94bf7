#!/usr/bin/env python3
"""For data-parallel.sh: compares its runs in FOLDER."""
import csv, os, sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../gpu"))
import jobs

folder = sys.argv[1]


def rows(run, name="training.csv"):
    with open(f"{folder}/{run}/{name}") as file:
        return list(csv.DictReader(file))


def compare(run, reference, limit=1e-5):
    """Losses of ranks are those of one rank but for the order of sums."""
    worst = 0.0
    for name in ("training.csv", "val.csv"):
        ours, theirs = rows(run, name), rows(reference, name)
        assert len(ours) == len(theirs) > 0, (run, name)
        for our, their in zip(ours, theirs):
            a, b = float(our["loss"]), float(their["loss"])
            worst = max(worst, abs(a - b) / abs(b))
    print(f"{run}: losses within {worst:.1e} of those of {reference}")
    assert worst < limit, f"{run}: losses differ by {worst}"


def heartbeats(run, rank):
    return jobs.heartbeats(f"{folder}/{run}", rank)


compare("two", "one")
compare("four", "one")
compare("two-block", "one-block")
compare("isolated-2", "isolated-1")
compare("isolated-4", "isolated-1")
# Gradients are rounded to 8 bits.
compare("eight", "one")
compare("half", "one", 1e-3)
for rank in range(4):
    steps = [b for b in heartbeats("four", rank) if b["msg"] == "step"]
    assert [b["step"] for b in steps] == list(range(1, 21)), rank
    for field in ("ts", "iso", "pid", "loss", "toks_per_s", "grad_norm", "own_seconds", "memory"):
        assert all(field in b for b in steps), (rank, field)
    assert all(b["rank"] == rank for b in steps)
