"""Checks a profile.json: the slices of so many steps, and sums by kernel."""

import collections
import json
import sys

trace = json.load(open(sys.argv[1]))
steps = int(sys.argv[2])
slices = trace["traceEvents"]
other = trace["otherData"]
assert other["steps"] == steps and slices, other
end = 0
counts = collections.Counter()
for piece in slices:
    assert piece["ph"] == "X" and piece["dur"] >= 0, piece
    # Commands run one after the other.
    assert piece["ts"] >= end - 0.002, (piece, end)
    end = piece["ts"] + piece["dur"]
    assert "m.mlir:" in piece["name"] or piece["name"] == "unknown", piece
    args = piece["args"]
    assert args["bytes"] > 0 and args["flops"] >= 0 and args["of_limit"] >= 0, piece
    counts[args["command"]] += 1
assert any(piece["args"]["flops"] > 0 for piece in slices)
assert all(count % steps == 0 for count in counts.values()), counts
groups = other["groups"]
assert {group["command"] for group in groups} == set(counts)
for group in groups:
    assert group["count"] == counts[group["command"]] // steps, group
assert abs(sum(group["share"] for group in groups) - 1) < 1e-6
assert other["tokens_per_second"] > 0
