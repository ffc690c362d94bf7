"""What the dialects declare of their operations, read from TableGen."""

import dataclasses
import functools
import json
import os
import pathlib
import pickle
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
SOURCES = ["dialects/NN/NNOps.td", "dialects/NN/NNActivations.td", "dialects/NN/NNOptimizers.td", "dialects/NN/NNSampling.td",
           "dialects/NSA/NSADecodeOps.td"]


@dataclasses.dataclass(frozen=True)
class Operand:
    """An operand or a result; `element` is f32, i32, or float for any of f32, bf16 and f16."""
    name: str
    element: str
    rank: int | None
    optional: bool
    variadic: bool


@dataclasses.dataclass(frozen=True)
class Attribute:
    """`default` is False of a flag, None where there is none."""
    name: str
    default: int | bool | None


@dataclasses.dataclass(frozen=True)
class Declaration:
    name: str
    operands: tuple
    attributes: tuple
    results: tuple
    #: Whether the number of values of each operand has to be said.
    segments: bool
    differentiable: bool


def _operand(record, name):
    summary = record["summary"]
    rank = re.search(r"(\d)D tensor", summary)
    element = "i32" if "float" not in summary else "float" if "bfloat16" in summary else "f32"
    kinds = record["!superclasses"]
    return Operand(name, element, int(rank[1]) if rank else None, "Optional" in kinds, "Variadic" in kinds)


def _attribute(record, name):
    default = record.get("defaultValue")
    is_unit = "UnitAttr" in (record["!name"], record.get("baseAttr", {}) and record["baseAttr"]["def"])
    return Attribute(name, False if is_unit else int(default) if default and default.isdigit() else None)


@functools.cache
def read():
    """Name to Declaration, of every operation with tensors as operands or results. NSA_JUDGE_DECLARATIONS is a file that
    `declarations.py FILE` wrote, for machines without LLVM."""
    if "NSA_JUDGE_DECLARATIONS" in os.environ:
        return pickle.loads(pathlib.Path(os.environ["NSA_JUDGE_DECLARATIONS"]).read_bytes())
    folder = subprocess.run(["llvm-config-22", "--bindir"], check=True, capture_output=True, text=True).stdout.strip()
    include = subprocess.run(["llvm-config-22", "--includedir"], check=True, capture_output=True, text=True).stdout.strip()
    found = {}
    for source in SOURCES:
        text = subprocess.run([f"{folder}/llvm-tblgen", "--dump-json", f"-I{ROOT}", f"-I{include}", ROOT / source],
                              check=True, capture_output=True, text=True).stdout
        records = json.loads(text)
        for key in records["!instanceof"]["Op"]:
            op = records[key]
            traits = [t["def"] for t in op["traits"]]
            interfaces = [records[t].get("cppInterfaceName", records[t].get("trait", "")) for t in traits]
            arguments = [(records[value["def"]], name) for value, name in op["arguments"]["args"]]
            name = f"{records[op['opDialect']['def']]['name']}.{op['opName']}"
            found[name] = Declaration(
                name, tuple(_operand(*a) for a in arguments if "TypeConstraint" in a[0]["!superclasses"]),
                tuple(_attribute(*a) for a in arguments if "Attr" in a[0]["!superclasses"]),
                tuple(_operand(records[value["def"]], result) for value, result in op["results"]["args"]),
                "AttrSizedOperandSegments" in traits, "DifferentiableOpInterface" in interfaces)
    return found


if __name__ == "__main__":
    import declarations  # what is pickled is of the module, not of __main__

    pathlib.Path(sys.argv[1]).write_bytes(pickle.dumps(declarations.read()))
