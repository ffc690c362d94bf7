#!/usr/bin/env python3
"""Makes input of `nsa-opt --split-input-file --verify-diagnostics` from a table of wrong lines.

Above each line stands its error, `error: ...`. A line in parentheses is the arguments of a function, with their
attributes; an operation that ends with the types of all operands stands in a function with such arguments, a
parameter in a module."""
import re
import sys


def expand(line, error):
    expected = f"// expected-error @below {{{{{error}}}}}\n"
    if line.startswith("("):
        return f"{expected}func.func @f{line} {{\n  return\n}}\n"
    if line.startswith("nn.parameter"):
        return f"nn.module @m {{\n{expected}  {line}\n}}\n"
    operation, _, kinds = line.rpartition(" : ")
    names, types = re.findall(r"%\w+", operation), re.sub(r"[()]| -> .*", "", kinds).split(", ")
    if not names:
        return f"{expected}{line}\n"
    arguments = {f"{name}: {kind}": None for name, kind in zip(names, types, strict=True)}
    return f"func.func @f({', '.join(arguments)}) {{\n{expected}  {line}\n  return\n}}\n"


def expand_table(text):
    cases = re.findall(r"^error: (.*)\n  (.*)\n", text, re.M)
    assert 0 < len(cases) == len(re.findall(r"^(?:error:|  )", text, re.M)) / 2, "each error has a line"
    return "// -----\n".join(expand(line, error) for error, line in cases)


if __name__ == "__main__":
    with open(sys.argv[1]) as table:
        print(expand_table(table.read()))
