#!/usr/bin/python3
"""Writes f32[4x8] ones with one infinity to a .npy file."""

import struct
import sys

header = "{'descr': '<f4', 'fortran_order': False, 'shape': (4, 8), }"
header += " " * (-(10 + len(header) + 1) % 64) + "\n"
values = [1.0] * 32
values[5] = float("inf")
with open(sys.argv[1], "wb") as file:
    file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)))
    file.write(header.encode() + struct.pack("<32f", *values))
