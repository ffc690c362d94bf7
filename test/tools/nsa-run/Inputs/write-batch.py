#!/usr/bin/python3
"""write-batch.py FOLDER BATCH LENGTH: tokens.npy and targets.npy of the next
token, some of them ignored, and the hyper.npy of a first AdamW step."""

import pathlib
import struct
import sys


def write(path, kind, shape, values):
    header = f"{{'descr': '<{kind}4', 'fortran_order': False, 'shape': {shape}, }}"
    header += " " * (-(10 + len(header) + 1) % 64) + "\n"
    data = struct.pack(f"<{len(values)}{'i' if kind == 'i' else 'f'}", *values)
    start = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header))
    path.write_bytes(start + header.encode() + data)


folder, batch, length = pathlib.Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
tokens = [(7 * i * i + i // 3) % 256 for i in range(batch * length + 1)]
targets = [-1 if i % 11 == 5 else token for i, token in enumerate(tokens[1:])]
write(folder / "tokens.npy", "i", (batch, length), tokens[:-1])
write(folder / "targets.npy", "i", (batch, length), targets)
# lr, beta1, beta2, eps, weight decay, largest norm, scale of gradients, step
write(folder / "hyper.npy", "f", (8,), [1e-3, 0.9, 0.95, 1e-8, 0.1, 1.0, 1.0, 1.0])
