#!/usr/bin/env python3
"""Compares schedules of kernels that follow lists of selected blocks.

  test/bench/lists.py prepare FOLDER [--only SHAPE...] [--target sm_90a] [--schedules S...]
      compiles the gradients of selected attention of each shape with each schedule of dk and dv,
      of which the first is what others are compared with; needs the compiler, not a GPU
  test/bench/lists.py run FOLDER [--only SHAPE...] [--lists FILE.npy...] [--rounds N]
      prints milliseconds of the kernels of dk and dv, medians of rounds in turns, and whether the
      gradients have the bits of the first schedule; on random lists and on those of trained layers,
      as nsa-generate --save-selection writes them; needs a GPU and NumPy

The folder holds everything that `run` needs.
"""
import os
import re
import shutil
import statistics
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../gpu"))
import jobs  # noqa: E402

# heads, key heads, width, sequences, tokens
SHAPES = {f"{h}x{k}x{d}-{b}x{s}": (h, k, d, b, s) for h, k, d, b, s in (
    (64, 4, 128, 1, 4096), (64, 4, 128, 1, 8192), (64, 4, 128, 1, 65536), (64, 8, 128, 2, 8192), (32, 4, 128, 2, 8192),
    (12, 2, 128, 2, 8192), (32, 8, 128, 2, 8192), (24, 8, 128, 2, 8192), (16, 8, 128, 2, 8192), (12, 2, 64, 2, 8192), (12, 2, 64, 1, 32768),
    (32, 2, 64, 2, 8192), (32, 8, 64, 2, 8192), (32, 4, 64, 2, 8192), (16, 8, 64, 2, 8192), (4, 2, 64, 1, 256))}
COUNT, BLOCK = 16, 64
MODULE = """!q = tensor<{b}x{s}x{h}x{d}xbf16>
!k = tensor<{b}x{s}x{k}x{d}xbf16>
!l = tensor<{b}x{h}x{s}xf32>
!i = tensor<{b}x{k}x{s}x{count}xi32>
module attributes {{nsa.schedules = {{selected_key_value_grad = [#nsa.schedule<{schedule}>]}}}} {{
func.func @main(%do: !q {{nn.name = "do"}}, %q: !q {{nn.name = "q"}}, %k: !k {{nn.name = "k"}}, %v: !k {{nn.name = "v"}}, %o: !q {{nn.name = "o"}},
    %l: !l {{nn.name = "l"}}, %i: !i {{nn.name = "i"}}) -> (!k {{nn.name = "dk"}}, !k {{nn.name = "dv"}}) {{
  %dq, %dk, %dv = nsa.attention_backward %do, %q, %k, %v, %o, %l visible(#nsa.selected<block = {block}>, %i : !i) : !q, !q, !k, !k, !q, !l
  return %dk, %dv : !k, !k
}}
}}
"""


def schedules_of(heads, keys, width):
    """Lists whose threads copy, and with a producer that gathers rows, for tiles of several sizes."""
    group = heads // keys
    rows, producer, rest = {128: ((48, 32), 2, ["producer = 1"]), 64: ((32,), 3, [])}[width]
    more = [f"producer = {producer}, gathered_queries = {n // group}" for n in rows if n % group == 0] + rest
    return [f"form = lists, {text}" for text in ("selected_keys = 64", "producer = 2", *more)]


def prepare(args):
    os.makedirs(args.folder, exist_ok=True)
    for shape in jobs.chosen(list(SHAPES), args.only):
        h, k, d, b, s = SHAPES[shape]
        for number, schedule in enumerate(args.schedules or schedules_of(h, k, d)):
            path = os.path.join(args.folder, f"{shape}.{number}")
            with open(path + ".mlir", "w") as file:
                file.write(MODULE.format(b=b, s=s, h=h, k=k, d=d, count=COUNT, block=BLOCK, schedule=schedule))
            jobs.call(os.path.join(args.build, "bin/nsa-compile"), path + ".mlir", "-o", path + ".nsax", f"--target={args.target}",
                      *([f"--ptxas={args.ptxas}"] if args.ptxas else []))
            print(f"prepared {shape} <{schedule}>", flush=True)
    shutil.copy(os.path.join(args.build, "bin/nsa-run"), args.folder)


def random_lists(np, rng, shape):
    """The first block, those of the query and before it, and others at random."""
    h, k, d, b, s = shape
    lists = np.full((b, k, s, COUNT), -1, np.int32)
    for first in range(0, s, BLOCK):
        own, rows = first // BLOCK, min(BLOCK, s - first)
        score = rng.random((b, k, rows, own + 1), dtype=np.float32)
        score[..., [0, max(own - 1, 0), own]] = 2
        count = min(COUNT, own + 1)
        lists[:, :, first:first + rows, :count] = np.sort(np.argsort(-score, axis=-1)[..., :count], axis=-1)
    return lists


def recorded_lists(np, path, shape):
    """Of a layer after the other, where the heads, tokens and blocks are those of the shape."""
    h, k, d, b, s = shape
    saved = np.load(path)
    for layer in range(saved.shape[1]) if saved.shape[2:] == (k, s, COUNT) else ():
        yield f"{os.path.basename(path)}, layer {layer}", np.resize(saved[:, layer], (b, k, s, COUNT))


def time_of(args, path, out, repeat):
    names = ("do", "q", "k", "v", "o", "l", "i")
    text = jobs.call(os.path.join(args.folder, "nsa-run"), path, "--entry", "main", "--repeat", str(repeat), "--time", "--output-dir", out, *(["--blas", args.blas] if args.blas else []),
                     *(word for name in names for word in ("--input", f"{name}={args.out}/{name}.npy")))
    return sum(map(float, re.findall(r"([\d.]+) ms[^\n]*dkdv", text))) or jobs.fail(f"{path}: {text}")


def run(args):
    import numpy as np
    rng = np.random.default_rng(7)
    names = sorted(name for name in os.listdir(args.folder) if name.endswith(".nsax"))
    for shape in jobs.chosen([shape for shape in SHAPES if shape + ".0.nsax" in names], args.only):
        h, k, d, b, s = SHAPES[shape]
        own = [name for name in names if name.startswith(shape + ".")]
        # About two seconds, so that the first runs, at lower clocks, count little.
        repeat = max(15, 2000 * 12 * 64 * 16384 // (h * d * b * s))
        for name, heads in (("do", h), ("q", h), ("o", h), ("k", k), ("v", k)):
            np.save(f"{args.out}/{name}.npy", rng.standard_normal((b, s, heads, d), dtype=np.float32))
        np.save(f"{args.out}/l.npy", np.full((b, h, s), 12, np.float32))
        recorded = [pair for path in args.lists for pair in recorded_lists(np, path, SHAPES[shape])]
        for what, lists in [("random", random_lists(np, rng, SHAPES[shape])), *recorded]:
            np.save(f"{args.out}/i.npy", lists)
            times = {name: [] for name in own}
            for _ in range(args.rounds):
                for name in own:
                    times[name].append(time_of(args, f"{args.folder}/{name}", f"{args.out}/{name}", repeat))
            for name in own:
                same = all(np.array_equal(*(np.load(f"{args.out}/{other}/{x}.npy") for other in (own[0], name))) for x in ("dk", "dv"))
                with open(f"{args.folder}/{name[:-5]}.mlir") as file:
                    schedule = re.search(r"#nsa.schedule(<[^>]*>)", file.read())[1]
                print(f"{shape:18} {what:24} {statistics.median(times[name]):8.3f} ms ({min(times[name]):.3f} to {max(times[name]):.3f})"
                      f"  {'same bits' if same else 'OTHER BITS'}  {schedule}", flush=True)


def prepare_options(parser):
    parser.add_argument("--schedules", nargs="+")


def run_options(parser):
    parser.add_argument("--lists", nargs="+", default=[])
    parser.add_argument("--rounds", type=int, default=3)


jobs.main(__doc__, prepare, run, prepare_options, run_options)
