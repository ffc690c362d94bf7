#!/usr/bin/env python3
"""kill-rank.py RUN RANK STEP: kills the process of a rank of a run as soon as it
has made a step and the run has a checkpoint, which is written beside steps; exit
code 1 if it does not in a minute."""
import glob, os, signal, sys, time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../gpu"))
import jobs

run, rank, step = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
deadline = time.time() + 60
while True:
    heartbeats = jobs.heartbeats(run, rank)
    if heartbeats and heartbeats[-1]["step"] >= step and glob.glob(os.path.join(run, "checkpoints", "step-*")):
        break
    if time.time() > deadline:
        sys.exit(f"rank {rank} of {run} has not made step {step} and a checkpoint")
    time.sleep(0.005)
os.kill(heartbeats[-1]["pid"], signal.SIGKILL)
