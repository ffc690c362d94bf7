#!/usr/bin/env python3
"""Whether programs of a GPU select the same blocks of the same queries and compressed keys.

  test/gpu/consistency.py prepare FOLDER [--target sm_90a] [--length 4096] [--width 64] [--sequences 17]
      compiles; needs the compiler, not a GPU
  test/gpu/consistency.py run FOLDER
      prints of each program how many lists, and how many lse, differ from those of the first one; needs a GPU, NumPy and
      nothing else; exit code 1 if lists of whole sequences differ

Scores of most blocks are equal but for rounding (test/python/selections.py).
"""
import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "python"), HERE]
GEOMETRY = {"block": 32, "stride": 16, "select_block": 64, "count": 16}
#: Schedules of nsa.select beside the one that is chosen.
SCHEDULES = ["queries = 64, blocks = 16", "queries = 64, blocks = 8", "queries = 64, blocks = 1", "queries = 32, blocks = 8",
             "queries = 16, blocks = 4"]
DECODED = 64


def programs(lists, length, many):
    """{name: (text, length of the prefixes or None for single positions, how many sequences)}"""
    def whole(batch, own):
        return lists.text(batch, own, lists.rows(own)), own, batch

    made = {"whole": whole(many, length), "one sequence": whole(1, length)}
    for schedule in SCHEDULES:
        attribute = f"nsa.schedules = {{select = [#nsa.schedule<{schedule}>]}}"
        made[schedule] = (f"module attributes {{{attribute}}} {{\n{whole(many, length)[0]}\n}}\n", length, many)
    for own in (length // 2, length // 2 - 77, 1100):
        made[f"length {own}"] = whole(many, own)
    made["decoding"] = (lists.decode_text(DECODED, length), None, DECODED)
    return made


def prepare(args):
    sys.path.insert(0, os.environ.get("NSA_PYTHON_PATH", os.path.join(HERE, "../../build/python")))
    from selections import Lists

    import nsa
    lists = Lists(np.random.default_rng(0), args.length, "bf16", args.width, **GEOMETRY)
    os.makedirs(args.folder, exist_ok=True)
    files = {}
    for number, (name, (text, own, batch)) in enumerate(programs(lists, args.length, args.sequences).items()):
        nsa.compile(text, target=args.target).save(os.path.join(args.folder, f"{number}.nsax"))
        files[name] = {"file": f"{number}.nsax", "length": own, "batch": batch}
    with open(os.path.join(args.folder, "programs.json"), "w") as file:
        json.dump({"length": args.length, "width": args.width, "sequences": args.sequences, "programs": files}, file)
    for path in (os.path.join(HERE, "../../build/bin/nsa-run"), __file__, os.path.join(HERE, "../python/selections.py")):
        shutil.copy(path, args.folder)


def execute(args, program, inputs):
    with tempfile.TemporaryDirectory() as folder:
        command = [os.path.join(args.folder, "nsa-run"), os.path.join(args.folder, program["file"]), "--entry", "main",
                   "--output-dir", folder]
        for name, array in inputs.items():
            np.save(os.path.join(folder, f"in-{name}.npy"), np.ascontiguousarray(array))
            command += ["--input", f"{name}={folder}/in-{name}.npy"]
        subprocess.run(command, check=True, stdout=subprocess.PIPE)
        return np.load(f"{folder}/i.npy"), np.load(f"{folder}/lse.npy")


def run(args):
    sys.path.insert(0, args.folder)
    from selections import Lists
    with open(os.path.join(args.folder, "programs.json")) as file:
        prepared = json.load(file)
    length, failed, total = prepared["length"], False, 0
    sequences = [Lists(np.random.default_rng(seed), length, "bf16", prepared["width"], **GEOMETRY) for seed in range(prepared["sequences"])]
    positions = np.random.default_rng().choice(length, DECODED, replace=False)
    for name, program in prepared["programs"].items():
        own, batch = program["length"], program["batch"]
        if own is None:
            blocks, lse = execute(args, program, sequences[0].steps(positions, length))
            # Kernels of decoding list blocks as they find them; -1 comes last.
            blocks = np.sort(blocks.view(np.uint32), -1).view(np.int32)
            got, seen = (blocks.transpose(2, 1, 0, 3), lse.transpose(2, 1, 0)), positions
        else:
            parts = [lists.whole(own) for lists in sequences[:batch]]
            got = execute(args, program, {key: np.concatenate([part[key] for part in parts]) for key in "qk"})
            seen = slice(own)
        if name == "whole":
            wanted = got
        rows = slice(1 if own is None else batch)
        differ = (got[0] != wanted[0][rows, :, seen]).any(-1)
        print(f"{name:28} {differ.sum():8} of {differ.size} lists differ, "
              f"{(got[1] != wanted[1][rows, :, seen]).sum():8} of {got[1].size} lse")
        total += differ.size
        failed |= own is not None and differ.any()
    print(f"{total} lists")
    return int(failed)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["prepare", "run"])
    parser.add_argument("folder")
    parser.add_argument("--target", default="sm_90a")
    parser.add_argument("--length", type=int, default=4096)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--sequences", type=int, default=17)
    args = parser.parse_args()
    args.folder = os.path.abspath(args.folder)
    sys.exit({"prepare": prepare, "run": run}[args.action](args))


if __name__ == "__main__":
    main()
