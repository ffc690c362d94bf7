"""Checks that a run learned, and the statistics in its heartbeats.

The run has 64 tokens, selection blocks of 16 and 4 selected blocks, so that
every query selects all the blocks up to its own.
"""

import csv
import json
import os
import sys

run = sys.argv[1]
with open(os.path.join(run, "training.csv")) as file:
    losses = [float(row["loss"]) for row in csv.DictReader(file)]
assert len(losses) == 60, len(losses)
# The first loss is log 256 = 5.55, the tokens are 8 of the 256.
assert losses[0] > 5.0 and sum(losses[-5:]) / 5 < 3.0, losses

with open(os.path.join(run, "heartbeat_rank0.jsonl")) as file:
    heartbeats = [json.loads(line) for line in file]
logged = [heartbeat for heartbeat in heartbeats if "gate_entropy" in heartbeat]
assert [heartbeat["step"] for heartbeat in logged] == [1, 10, 20, 30, 40, 50, 60], logged
for heartbeat in logged:
    gates = [heartbeat[f"gate_{branch}"] for branch in ("compressed", "selected", "window")]
    assert all(0 < gate < 1 for gate in gates), heartbeat
    assert 0.5 < sum(gates) < 2.0, heartbeat
    assert 0.5 < heartbeat["gate_entropy_min"] <= heartbeat["gate_entropy"] < 1.0987, heartbeat
    assert abs(heartbeat["sel_k_mean"] - 2.5) < 1e-5, heartbeat
    assert abs(heartbeat["sel_k_distance"] - 1.0) < 1e-5, heartbeat
    assert abs(heartbeat["sel_k_distinct"] - 2.5) < 1e-5, heartbeat
assert len(os.listdir(os.path.join(run, "tb"))) == 1
