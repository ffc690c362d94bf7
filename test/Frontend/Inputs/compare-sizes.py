"""compare-sizes.py DENSE SPARSE: numbers of parameters of two models, from what
parameters.py prints, and by how much the second differs."""
import math
import sys

dense, sparse = (
    sum(math.prod(map(int, line.split()[1].split("x"))) for line in open(path)) for path in sys.argv[1:]
)
print(dense, sparse)
percent = 100 * abs(sparse / dense - 1)
print("within 1 %" if percent <= 1 else f"{percent:.2f} % apart")
