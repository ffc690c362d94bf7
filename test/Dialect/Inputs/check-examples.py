#!/usr/bin/python3
"""Parses and verifies the example of every operation and the examples of passes
in the generated documentation.

    check-examples.py DOCS NSA_OPT

An example is a fragment: values that it uses but does not define get the types
that nsa-opt says it expects of them, and symbols that it refers to are declared
below. Every operation must have one; an example of a pass that leaves something
out ("...") is not parsed.
"""

import bisect
import pathlib
import re
import subprocess
import sys

DIALECTS = {"NSADialect": 10, "NNDialect": 24, "NNModuleOps": 15, "TileDialect": 17, "TileGPUDialect": 11, "RTDialect": 13}

KERNEL = """
rt.kernel @double : (memref<128xf32>, memref<128xf32>) -> ()
    {grid = array<i32: 2, 1, 1>, num_outputs = 1 : i32, code_bytes = 96 : i64,
     stack_bytes = 0 : i64}
"""
EMBEDDING = "rt.tensor parameter @embed.weight : memref<256x32xf32> init #nn.init<normal, 0.02>"
TILE_KERNEL = """
tile.kernel private @double(%x: memref<{0}xf32>, %y: memref<{0}xf32>)
    attributes {{grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32}} {{
  tile.return
}}
"""
GRADIENTS = (
    "rt.tensor gradient @grad.w0 : memref<4x8xf32>\n"
    "rt.tensor gradient @grad.w1 : memref<4xf32>"
)
# What an example refers to besides values.
DECLARATIONS = {
    "rt.collective_done": "rt.tensor gradient @grad.w : memref<48xf32>",
    "rt.collective_start": GRADIENTS,
    "rt.buffer": "rt.segment arena @arena size 16384 alignment 64",
    "rt.entry": "rt.tensor state @state : memref<f32>",
    "rt.get": EMBEDDING,
    "rt.initialize": EMBEDDING,
    "rt.launch": KERNEL,
    "rt.write_shard": "rt.tensor parameter @w : memref<32x48xf32>",
    "rt.flat_view": GRADIENTS,
    "rt.slice_shard": "rt.tensor parameter @w : memref<32x48xf32>",
    "tile.launch": TILE_KERNEL.format(128),
    "nsa-bucket-all-reduce": GRADIENTS,
    "nsa-buffer": TILE_KERNEL.format(4),
}
# Operations that stand directly in a module, or only inside another.
TOP_LEVEL = {"rt.segment", "rt.tensor", "rt.kernel", "rt.binary", "rt.entry", "tile.kernel", "nn.module"}

TERMINATORS = {"nn.yield", "nn.next", "nsa.yield", "tile.return", "tile.yield", "tile_gpu.yield"}

HEADING = re.compile(r"^#+ `-?([\w.-]+)`", re.MULTILINE)
BLOCK = re.compile(r"```mlir\n(.*?)```", re.DOTALL)
PLACE = re.compile(r"^<stdin>:(\d+):(\d+): error: (.*)", re.MULTILINE)
EXPECTS = re.compile(r"use of value '%([\w$.-]+)' expects different type than prior uses: '(.*)' vs '")
SPLIT = "// -----\n"


class Example:
    """One fragment, wrapped so that it is a module."""

    def __init__(self, owner, text):
        self.owner = owner
        self.lines = text.rstrip().split("\n")
        self.types = {}

    def wrap(self):
        first = re.search(r"\b(?:nsa|nn|tile|rt|func)\.\w+", self.lines[0])
        operation = first.group(0) if first else ""
        text = "\n".join(self.lines)
        is_module = self.lines[0].startswith("module ")
        if not is_module and operation not in TOP_LEVEL and operation != "func.func":
            if operation.startswith("rt."):
                text = self.wrap_commands(text)
            else:
                text = self.wrap_values(text)
        self.module = f"{DECLARATIONS.get(self.owner, '')}\n{text}\n"
        return self.module

    def wrap_values(self, text):
        values = "".join(
            f"  %{name} = builtin.unrealized_conversion_cast to {type}\n"
            for name, type in self.types.items()
        )
        return f"func.func @example() {{\n{values}{text}\n  return\n}}"

    def wrap_commands(self, text):
        tensors = "".join(
            f"rt.tensor state @example.{name} : {type}\n"
            for name, type in self.types.items()
        )
        values = "".join(
            f"  %{name} = rt.get @example.{name} : {type}\n"
            for name, type in self.types.items()
        )
        entry = "rt.entry @example inputs [] outputs []"
        return f"{tensors}{entry} {{\n{values}{text}\n}}"

    def learn(self, line, column, message):
        """Takes a type from an error. Returns whether that was news."""
        expected = EXPECTS.search(message)
        if expected:
            name, type = expected.groups()
        elif message == "use of undeclared SSA value name":
            word = self.module.split("\n")[line - 1][column - 1 :]
            name, type = re.match(r"%([\w$.-]+)", word).group(1), "memref<1xf32>"
            if name in self.types:
                return False
        else:
            return False
        known = self.types.get(name)
        self.types[name] = type
        return known != type


def examples(page):
    """The headings of a page with the examples below each."""
    text = page.read_text()
    headings = list(HEADING.finditer(text))
    ends = [match.start() for match in headings[1:]] + [len(text)]
    for match, end in zip(headings, ends):
        blocks = BLOCK.findall(text[match.end() : end])
        yield match.group(1), [Example(match.group(1), block) for block in blocks]


def errors_of(fragments, nsa_opt):
    """Parses all fragments at once. Returns the errors of each that has some, as
    line, column and message."""
    starts, text = [], ""
    for fragment in fragments:
        starts.append(text.count("\n"))
        text += fragment.wrap() + SPLIT
    run = subprocess.run(
        [nsa_opt, "--split-input-file", "-o", "/dev/null", "-"],
        input=text, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    errors = {}
    for line, column, message in PLACE.findall(run.stderr):
        number = bisect.bisect_left(starts, int(line)) - 1
        place = (int(line) - starts[number], int(column), message)
        errors.setdefault(fragments[number], []).append(place)
    if run.returncode and not errors:
        sys.exit(run.stderr)
    return errors


def check(fragments, nsa_opt):
    """What is wrong with fragments once the types of their values are known."""
    while True:
        learnt, failures = False, []
        for fragment, errors in errors_of(fragments, nsa_opt).items():
            if any([fragment.learn(*error) for error in errors]):
                learnt = True
            else:
                failures.append(f"{fragment.owner}: {errors[0][2]}\n{fragment.module}")
        if not learnt:
            return failures


def main():
    docs, nsa_opt = pathlib.Path(sys.argv[1]), sys.argv[2]
    fragments, failures = [], []
    for dialect, least in DIALECTS.items():
        operations = {
            name: found
            for name, found in examples(docs / "dialects" / f"{dialect}.md")
            if "." in name
        }
        if len(operations) < least:
            failures.append(f"{dialect}: {len(operations)} operations, expected {least}")
        page = sum(operations.values(), [])
        fragments += page
        text = "\n".join("\n".join(example.lines) for example in page)
        # The end of a body is shown in the example of what it ends.
        failures += [
            f"{name}: no example"
            for name, found in operations.items()
            if not re.search(rf"\b{name}\b", text)
            or (not found and name not in TERMINATORS)
        ]
        print(f"{dialect}: {len(operations)} operations")
    passes = 0
    for page in sorted((docs / "passes").glob("*.md")):
        for name, found in examples(page):
            complete = [e for e in found if "..." not in "\n".join(e.lines)]
            fragments += complete
            passes += len(complete)
    print(f"passes: {passes} examples")
    failures += check(fragments, nsa_opt)
    for failure in failures:
        print(f"error: {failure}", file=sys.stderr)
    return 1 if failures or not passes else 0


if __name__ == "__main__":
    sys.exit(main())
