"""close.py RUN RUN LIMIT STEPS [held-out]: holds losses and gradient norms of
two runs against each other, and those of held-out tokens if asked to; each may
differ by LIMIT, relatively."""
import csv
import json
import sys

runs, limit, steps = sys.argv[1:3], float(sys.argv[3]), int(sys.argv[4])


def table(path, *columns):
    with open(path) as file:
        return [float(row[column]) for row in csv.DictReader(file) for column in columns]


def positions(path):
    """Losses by position, where there are targets."""
    with open(path) as file:
        records = [json.loads(line) for line in file]
    parts = [part for record in records for part in record.get("positions", [])]
    return [part["loss"] for part in parts if part["tokens"]]


numbers = [table(f"{run}/training.csv", "loss", "grad_norm") for run in runs]
assert [len(row) for row in numbers] == [2 * steps, 2 * steps], [len(row) for row in numbers]
if sys.argv[5:] == ["held-out"]:
    held_out = [table(f"{run}/val.csv", "loss") + positions(f"{run}/eval.jsonl") for run in runs]
    assert len(held_out[0]) == len(held_out[1]) > 2, held_out
    numbers = [a + b for a, b in zip(numbers, held_out)]
worst = max(abs(a - b) / abs(b) for a, b in zip(*numbers))
print(f"{steps} losses and norms within {worst:.1e}")
# A NaN is not within anything.
sys.exit(0 if worst <= limit else 1)
