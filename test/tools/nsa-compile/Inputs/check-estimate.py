"""Checks that the lines of `nsa-compile --estimate` add up, and that the total is
less than a number of MiB, if one is given."""

import sys

size = {}
for line in open(sys.argv[1]):
    words = line.split()
    if len(words) > 2 and words[2] == "MiB":
        size[words[0]] = float(words[1])
kinds = ("weights", "optimizer", "gradients", "constants", "state")
segments = ("persistent", "io", "arena", "workspace")
assert all(size[name] > 0 for name in kinds[:3] + segments[:3]), size
# Each line is rounded to 0.01 MiB.
assert abs(sum(size[kind] for kind in kinds) - size["persistent"]) < 0.05, size
assert abs(sum(size[segment] for segment in segments) - size["total"]) < 0.05, size
assert abs(size["optimizer"] - 2 * size["weights"]) < 0.05, size
assert abs(size["gradients"] - size["weights"]) < 0.05, size
if len(sys.argv) > 2:
    assert 0 < size["total"] < float(sys.argv[2]), size
