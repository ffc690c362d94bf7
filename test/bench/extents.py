#!/usr/bin/env python3
"""Measures operators for any batch and length against operators for one shape.

  test/bench/extents.py prepare FOLDER [--target sm_90a] [--only NAME...]
      compiles each operator once with `?` and once for each shape, whose kernels of the
      selected branch take lists too; needs the compiler, not a GPU
  test/bench/extents.py run FOLDER [--only NAME...] [--out FOLDER] [--runs N] [--kernels]
      runs both on the same random inputs, prints the milliseconds of each, forward and
      backward, and which outputs have other bits; with --kernels also the milliseconds of
      each kernel; needs a GPU and NumPy, not the compiler

The folder holds everything that `run` needs. Operators are called after their branch,
heads, key heads and width; those with `backward` compute all gradients.
"""
import argparse
import filecmp
import os
import re
import shutil
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "test/gpu"))
from jobs import call, chosen, there  # noqa: E402

BLOCKS = "#nsa.compressed<block = 32, stride = 16>"
SELECTED = "#nsa.selected<block = 64, count = 16>"
HEADS = {"12x2x64": (12, 2, 64), "64x4x128": (64, 4, 128)}
SHAPES = {"12x2x64": ((1, 512), (8, 2048), (2, 8192), (1, 65536)),
          "64x4x128": ((1, 1024), (1, 4096), (1, 8192))}
BRANCHES = ("window", "causal", "nsa")


def operator(branch, heads, key_heads, width, backward):
    """The text of a function @f with `?` for batch and length."""
    def tensor(*shape, element="bf16"):
        return "tensor<" + "x".join(["?", *map(str, shape), element]) + ">"
    q, k = tensor("?", heads, width), tensor("?", key_heads, width)
    lse = tensor(heads, "?", element="f32")
    gates = tensor("?", heads, 3, element="f32")
    inputs = {"q": q, "k": k, "v": k}
    if branch != "nsa":
        visible = "#nsa.window<512>" if branch == "window" else "#nsa.causal"
        body = f"%o, %lse = nsa.attention %q, %k, %v visible({visible}) : {q}, {k}, {k}\n"
    else:
        inputs["gates"] = gates
        mean = "{block = 32 : i64, stride = 16 : i64}"
        pick = "select_block = 64 : i64, count = 16 : i64}"
        indices = tensor(key_heads, "?", 16, element="i32")
        body = f"""%kc = nsa.compress mean %k {mean} : ({k}) -> {k}
  %vc = nsa.compress mean %v {mean} : ({k}) -> {k}
  %oc, %lc = nsa.compressed_attention %q, %kc, %vc {mean} : ({q}, {k}, {k}) -> ({q}, {lse})
  %i = nsa.select %q, %kc, %lc {mean[:-1]}, {pick} : ({q}, {k}, {lse}) -> {indices}
  %os, %ls = nsa.selected_attention %q, %k, %v, %i {{select_block = 64 : i64}}
      : ({q}, {k}, {k}, {indices}) -> ({q}, {lse})
  %ow, %lw = nsa.window_attention %q, %k, %v {{window = 512 : i64}} : ({q}, {k}, {k}) -> ({q}, {lse})
  %o = nsa.combine %gates, %oc, %os, %ow : ({gates}, {q}, {q}, {q}) -> {q}
"""
    mark = ", nn.differentiate" if backward else ""
    arguments = ", ".join(f'%{name}: {type} {{nn.name = "{name}"{mark}}}' for name, type in inputs.items())
    result = f'{q} {{nn.name = "o"{", nn.objective" if backward else ""}}}'
    return f"func.func @f({arguments}) -> ({result}) {{\n  {body}  return %o : {q}\n}}\n"


def all_names():
    return [f"{branch}-{heads}{suffix}" for branch in BRANCHES for heads in HEADS
            for suffix in ("", "-backward")]


def split(name):
    branch, heads, *rest = name.split("-")
    return branch, heads, bool(rest)


def prepare(args):
    os.makedirs(args.folder, exist_ok=True)
    tools = os.path.join(args.build, "bin")
    shutil.copy(os.path.join(tools, "nsa-run"), args.folder)
    for name in chosen(all_names(), args.only):
        branch, heads, backward = split(name)
        source = os.path.join(args.folder, name + ".mlir")
        with open(source, "w") as file:
            file.write(operator(branch, *HEADS[heads], backward))
        compile_here = [os.path.join(tools, "nsa-compile"), source, f"--target={args.target}"]
        call(*compile_here, "-o", os.path.join(args.folder, name + ".nsax"))
        for batch, length in SHAPES[heads]:
            call(*compile_here, f"--micro-batch={batch}", f"--seq-len={length}", "--selected-form=lists",
                 "-o", os.path.join(args.folder, f"{name}-{batch}x{length}.nsax"))
        print(f"prepared {name}", flush=True)


def measure(args, artefact, inputs, *options):
    """Milliseconds of each command of a run, on average: copies of tensors do not count."""
    text = call(os.path.join(args.folder, "nsa-run"), os.path.join(args.folder, artefact), "--entry", "f",
                *[f"--input={name}={path}" for name, path in inputs.items()],
                "--repeat", "20", "--time", *options)
    times = {}
    for time, command in re.findall(r"^ *([\d.]+) ms .* GFLOP/s +(.*?)  ", text, re.M):
        # Names say sizes, which the two have not in common.
        kernel = re.sub(r"_b(\d+s\d+|NsN)h\w*|_n(\d+|N)(?=_)", "", command)
        times[kernel] = times.get(kernel, 0) + float(time)
    return times


def write_inputs(args, heads, batch, length):
    """Files with random numbers for all operators of these heads."""
    import numpy
    random = numpy.random.default_rng(1)
    count, key_heads, width = HEADS[heads]
    sizes = {"q": (count, width), "k": (key_heads, width), "v": (key_heads, width),
             "gates": (count, 3), "grad.o": (count, width)}
    paths = {tensor: os.path.join(args.out, tensor + ".npy") for tensor in sizes}
    for tensor, size in sizes.items():
        numpy.save(paths[tensor], random.standard_normal((batch, length, *size), dtype="f4"))
    return paths


def choose_inputs(paths, name):
    branch, _, backward = split(name)
    return {tensor: path for tensor, path in paths.items()
            if (tensor != "gates" or branch == "nsa") and (tensor != "grad.o" or backward)}


def compare(args, name, shape, inputs):
    """Milliseconds of the kernels of both, the best of all runs, and outputs with other bits."""
    artefacts = {"one": f"{name}-{shape}.nsax", "any": f"{name}.nsax"}
    times = {"one": [], "any": []}
    folders = {kind: os.path.join(args.out, kind) for kind in artefacts}
    for run_number in range(args.runs):
        for kind, artefact in artefacts.items():
            options = () if run_number else ("--output-dir", folders[kind])
            if not run_number:
                shutil.rmtree(folders[kind], ignore_errors=True)
                os.makedirs(folders[kind])
            times[kind].append(measure(args, artefact, inputs, *options))
    other = [file for file in sorted(os.listdir(folders["any"]))
             if not filecmp.cmp(os.path.join(folders["any"], file),
                                os.path.join(folders["one"], file), shallow=False)]
    return min(times["one"], key=total), min(times["any"], key=total), other


def total(times, half=None):
    """Of all kernels, or of the forward or backward half of them."""
    return sum(time for kernel, time in times.items() if half in (None, half_of(kernel)))


def half_of(kernel):
    return "backward" if "backward" in kernel or "fused_add" in kernel else "forward"


def print_kernels(one, other):
    for kernel in sorted({*one, *other}, key=lambda kernel: -other.get(kernel, 0)):
        print(f"    {one.get(kernel, 0):9.3f} {other.get(kernel, 0):9.3f}  {kernel}")


def run(args):
    print(f"{'operator':26} {'shape':>8} {'half':>8} {'one ms':>9} {'any ms':>9} {'ratio':>6}  other bits in")
    names = there(args, all_names())
    for heads, shapes in SHAPES.items():
        own = [name for name in names if split(name)[1] == heads]
        for batch, length in shapes if own else ():
            paths = write_inputs(args, heads, batch, length)
            for name in own:
                shape = f"{batch}x{length}"
                one, other, differing = compare(args, name, shape, choose_inputs(paths, name))
                for half in ("forward", "backward") if split(name)[2] else ("forward",):
                    times = total(one, half), total(other, half)
                    print(f"{name:26} {shape:>8} {half:>8} {times[0]:9.3f} {times[1]:9.3f} "
                          f"{times[1] / times[0]:6.3f}  {' '.join(differing) or '-'}", flush=True)
                if args.kernels:
                    print_kernels(one, other)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("prepare", "run"))
    parser.add_argument("folder")
    parser.add_argument("--target", default="sm_90a")
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    parser.add_argument("--out", default="/tmp/extents")
    parser.add_argument("--runs", type=int, default=2, help="of which the fastest counts")
    parser.add_argument("--kernels", action="store_true")
    args = parser.parse_args()
    os.makedirs(args.out, exist_ok=True)
    {"prepare": prepare, "run": run}[args.action](args)


if __name__ == "__main__":
    main()
