"""close.py RUN RUN LIMIT STEPS: holds losses and gradient norms of two runs
against each other; each may differ by LIMIT, relatively."""
import csv
import sys

runs, limit, steps = sys.argv[1:3], float(sys.argv[3]), int(sys.argv[4])
tables = []
for run in runs:
    with open(f"{run}/training.csv") as file:
        tables.append(list(csv.DictReader(file)))
assert [len(table) for table in tables] == [steps, steps], [len(table) for table in tables]
worst = max(
    abs(float(a[column]) - float(b[column])) / abs(float(b[column]))
    for a, b in zip(*tables) for column in ("loss", "grad_norm"))
print(f"{steps} losses and norms within {worst:.1e}")
# A NaN is not within anything.
sys.exit(0 if worst <= limit else 1)
