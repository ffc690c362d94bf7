"""Writes an f32 array of ones: write-ones.py FILE EXTENT..."""

import array
import math
import struct
import sys

shape = tuple(int(extent) for extent in sys.argv[2:])
header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}"
header += " " * (-(len(header) + 11) % 64) + "\n"
with open(sys.argv[1], "wb") as file:
    file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode())
    file.write(array.array("f", [1.0] * math.prod(shape)).tobytes())
