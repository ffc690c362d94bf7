#!/usr/bin/env python3
"""For data-parallel.sh: compares its runs, then kills and freezes ranks.

ranks.py FOLDER ROUNDS COMMAND...: the command is that of the run `killed`; the
run `frozen` is the same. Ranks end ROUNDS times in each, at random steps.
"""
import csv, os, random, signal, subprocess, sys, time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../gpu"))
import jobs

folder, rounds, command = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
seed = int(os.environ.get("NSA_TEST_SEED", "1"))
random.seed(seed)
RANK_SECONDS = 2
KILL_LIMIT, FREEZE_LIMIT = 30, RANK_SECONDS + 10


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


def check_blame(run, log, victims):
    """Who got the signal is named every time, and nobody else."""
    for part, victim in zip(log.split("nsa-train: restart "), victims):
        assert jobs.blames(part, victim, 2), (run, victim, part[-3000:])


def disturb(run, number, limit, words):
    """Sends a signal to random ranks of a run, which goes on every time."""
    where = [run if word == "killed" else word for word in command]
    process = subprocess.Popen(
        where + ["--max-restarts", str(rounds), *words],
        stdout=open(f"{folder}/{run}.log", "w"), stderr=subprocess.STDOUT)
    longest, known, victims = 0.0, set(), []
    for _ in range(rounds):
        rank = random.randrange(2)
        wanted = random.randrange(1, 4)
        deadline = time.time() + 60
        # A process that has not been seen yet, some steps after its start.
        while True:
            assert time.time() < deadline, f"{run}: no rank to send a signal to"
            assert process.poll() is None, f"{run}: ended with {process.returncode} too early"
            own = [b for b in heartbeats(run, rank) if b["pid"] not in known]
            if sum(b["msg"] == "step" for b in own) >= wanted:
                break
            time.sleep(0.01)
        pids = {r: heartbeats(run, r)[-1]["pid"] for r in range(2)}
        known |= set(pids.values())
        os.kill(pids[rank], number)
        victims.append(rank)
        sent = time.time()
        while any(os.path.exists(f"/proc/{pid}") for pid in pids.values()):
            assert time.time() - sent < limit, f"{run}: a rank lives {limit} s after a signal to rank {rank}"
            time.sleep(0.01)
        longest = max(longest, time.time() - sent)
    code = process.wait(timeout=120)
    log = open(f"{folder}/{run}.log").read()
    assert code == 0, f"{run}: code {code}\n{log[-3000:]}"
    assert log.count("restart ") == rounds, log[-3000:]
    check_blame(run, log, victims)
    print(f"{run}: {rounds} times, all ranks ended after {longest:.1f} s at most")
    return log


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

log = disturb("killed", signal.SIGKILL, KILL_LIMIT, [])
assert "was killed by signal 9" in log and "was lost" in log, log[-3000:]
log = disturb("frozen", signal.SIGSTOP, FREEZE_LIMIT,
              ["--rank-seconds", str(RANK_SECONDS)])
assert "reduction" in log and " bytes" in log, log[-3000:]
assert "was killed by the launcher" in log, log[-3000:]
