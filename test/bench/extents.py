#!/usr/bin/env python3
"""Measures operators for any batch and length against operators for one shape.

  test/bench/extents.py prepare FOLDER [--target sm_90a] [--only NAME...]
      compiles each operator once with `?` and once for each shape; needs the compiler,
      not a GPU
  test/bench/extents.py run FOLDER [--only NAME...] [--out FOLDER]
      runs both on the same random inputs, prints the milliseconds of each and which
      outputs have other bits; needs a GPU and NumPy, not the compiler

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
SHAPES = {"12x2x64": ((1, 512), (8, 2048), (2, 8192), (1, 32768)),
          "64x4x128": ((1, 1024), (1, 4096), (1, 16384))}
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
            call(*compile_here, f"--micro-batch={batch}", f"--seq-len={length}", "-o",
                 os.path.join(args.folder, f"{name}-{batch}x{length}.nsax"))
        print(f"prepared {name}", flush=True)


def measure(args, artefact, inputs, *options):
    """Milliseconds of the commands of a run, on average: copies of tensors do not count."""
    text = call(os.path.join(args.folder, "nsa-run"), os.path.join(args.folder, artefact), "--entry", "f",
                *[f"--input={name}={path}" for name, path in inputs.items()],
                "--repeat", "20", "--time", *options)
    return sum(float(time) for time in re.findall(r"^ *([\d.]+) ms ", text, re.M))


def write_inputs(args, name, batch, length):
    """Files with random numbers."""
    import numpy
    random = numpy.random.default_rng(1)
    branch, heads, backward = split(name)
    count, key_heads, width = HEADS[heads]
    sizes = {"q": (count, width), "k": (key_heads, width), "v": (key_heads, width)}
    if branch == "nsa":
        sizes["gates"] = (count, 3)
    if backward:
        sizes["grad.o"] = (count, width)
    inputs = {tensor: os.path.join(args.out, tensor + ".npy") for tensor in sizes}
    for tensor, size in sizes.items():
        numpy.save(inputs[tensor], random.standard_normal((batch, length, *size), dtype="f4"))
    return inputs


def compare(args, name, shape, inputs):
    """Milliseconds of both, each the better of two, and outputs with other bits."""
    artefacts = {"one": f"{name}-{shape}.nsax", "any": f"{name}.nsax"}
    times = {"one": [], "any": []}
    folders = {kind: os.path.join(args.out, kind) for kind in artefacts}
    for again in (False, True):
        for kind, artefact in artefacts.items():
            options = () if again else ("--output-dir", folders[kind])
            if not again:
                shutil.rmtree(folders[kind], ignore_errors=True)
                os.makedirs(folders[kind])
            times[kind].append(measure(args, artefact, inputs, *options))
    other = [file for file in sorted(os.listdir(folders["any"]))
             if not filecmp.cmp(os.path.join(folders["any"], file),
                                os.path.join(folders["one"], file), shallow=False)]
    return min(times["one"]), min(times["any"]), other


def run(args):
    print(f"{'operator':26} {'shape':>8} {'one ms':>9} {'any ms':>9} {'ratio':>6}  other bits in")
    for name in there(args, all_names()):
        for batch, length in SHAPES[split(name)[1]]:
            shape = f"{batch}x{length}"
            one, any_shape, other = compare(args, name, shape, write_inputs(args, name, batch, length))
            print(f"{name:26} {shape:>8} {one:9.3f} {any_shape:9.3f} {any_shape / one:6.3f}  "
                  f"{' '.join(other) or '-'}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("prepare", "run"))
    parser.add_argument("folder")
    parser.add_argument("--target", default="sm_90a")
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    parser.add_argument("--out", default="/tmp/extents")
    args = parser.parse_args()
    os.makedirs(args.out, exist_ok=True)
    {"prepare": prepare, "run": run}[args.action](args)


if __name__ == "__main__":
    main()
