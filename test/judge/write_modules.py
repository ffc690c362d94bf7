"""Writes modules that are made up, for what compiles them: write_modules.py FOLDER.

FOLDER/one-NAME-N.mlir is an operation by itself, graph-N.mlir, gradient-N.mlir and training-N.mlir programs of many.
The first lines of each are comments with the options that nsa-compile is to be given. Always the same ones.
"""

import pathlib
import sys

import numpy as np

import generate
import generate_nsa
import rules

assert generate_nsa
ELEMENTS = ("bf16", "f32", "f16")


def programs():
    for name in sorted(rules.RULES):
        # What has kernels of its own for many shapes.
        wide = name.startswith("nsa.") and ("attention" in name or "compress" in name or name == "nsa.select")
        for number in range(4 if wide else 1):
            rng = np.random.default_rng([number, *name.encode()])
            element = ELEMENTS[(number + len(name)) % 3]
            yield f"one-{name}-{number}", generate.make_one(name, rng, element, wide and number % 2 == 1)
    for kind, make in (("graph", generate.make_graph), ("gradient", generate.make_gradient)):
        for number in range(30):
            rng = np.random.default_rng([number, *kind.encode()])
            yield f"{kind}-{number}", make(rng, ELEMENTS[number % 3], int(rng.integers(2, 12)))


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, made in programs():
        head = [f"// --gradients={','.join(f'a{made.arguments.index(v)}' for v in made.wanted)}\n"] if made.wanted else []
        (folder / f"{name}.mlir").write_text("".join(head) + made.text())
    for number in range(15):
        rng = np.random.default_rng([number, 1])
        made = generate.make_model(rng, int(rng.integers(1, 6)))
        (folder / f"training-{number}.mlir").write_text(generate.training_text(made))


main()
