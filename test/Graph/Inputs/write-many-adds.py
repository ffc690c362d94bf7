#!/usr/bin/python3
"""write-many-adds.py N: a function with a chain of N sums, each of the one before
and an elementwise operation before it."""

import sys

count = int(sys.argv[1])
tensor = "tensor<8x4xf32>"
print(f"func.func @f(%x: {tensor}, %y0: {tensor}) -> {tensor} {{")
for i in range(count):
    print(f"  %s{i} = nn.silu %x : ({tensor}) -> {tensor}")
    print(f"  %y{i + 1} = nn.add %y{i}, %s{i} : ({tensor}, {tensor}) -> {tensor}")
print(f"  return %y{count} : {tensor}\n}}")
