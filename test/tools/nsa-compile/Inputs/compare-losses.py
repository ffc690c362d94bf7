"""Compares the training losses of two logs: compare-losses.py A B TOLERANCE."""

import re
import sys


def losses(path):
    with open(path) as log:
        return [float(x) for x in re.findall(r"^step \d+ \| loss ([0-9.]+)", log.read(), re.M)]


a, b = losses(sys.argv[1]), losses(sys.argv[2])
tolerance = float(sys.argv[3])
if len(a) != len(b) or any(abs(x - y) > tolerance for x, y in zip(a, b)):
    sys.exit(f"losses differ: {a} and {b}")
print(len(a), "losses agree")
