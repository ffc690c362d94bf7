#!/usr/bin/python3
"""write-selection.py FOLDER: a module of selected attention with indices from
outside, its q and k, and good and bad indices: token 20 selects block 4 of 4."""

import pathlib
import struct
import sys

folder = pathlib.Path(sys.argv[1])


def write(name, kind, shape, values):
    header = f"{{'descr': '<{kind}4', 'fortran_order': False, 'shape': {shape}, }}"
    header += " " * (-(10 + len(header) + 1) % 64) + "\n"
    start = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header))
    data = struct.pack(f"<{len(values)}{kind}", *values)
    (folder / name).write_bytes(start + header.encode() + data)


tensor, lists = "tensor<1x64x1x16xf32>", "tensor<1x1x64x2xi32>"
(folder / "model.mlir").write_text(
    f'func.func @main(%q: {tensor} {{nn.name = "q"}},\n'
    f'    %k: {tensor} {{nn.name = "k"}},\n'
    f'    %i: {lists} {{nn.name = "indices"}})\n'
    f'    -> ({tensor} {{nn.name = "o"}}) {{\n'
    f"  %o, %lse = nsa.selected_attention %q, %k, %k, %i {{select_block = 16 : i64}}\n"
    f"      : ({tensor}, {tensor}, {tensor}, {lists}) -> ({tensor}, tensor<1x1x64xf32>)\n"
    f"  return %o : {tensor}\n}}\n"
)
for name in ("q", "k"):
    write(f"{name}.npy", "f", (1, 64, 1, 16), [(i * 7 % 11) / 11 for i in range(1024)])
good = [number for t in range(64) for number in (0, t // 16 if t >= 16 else -1)]
write("good.npy", "i", (1, 1, 64, 2), good)
write("bad.npy", "i", (1, 1, 64, 2), good[:41] + [4] + good[42:])
