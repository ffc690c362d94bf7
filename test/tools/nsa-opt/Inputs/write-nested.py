#!/usr/bin/python3
"""write-nested.py FOLDER: modules that MLIR's parser does not survive, and one
that only looks like them."""

import pathlib
import sys

folder = pathlib.Path(sys.argv[1])
depth = 20000
terms = 200000


def write(name, text):
    (folder / f"{name}.mlir").write_text(text)


def attribute(text):
    return f"// A comment.\nmodule attributes {{a = {text}}} {{}}\n"


write("paren", attribute("(" * depth + ")" * depth))
write("bracket", attribute("[" * depth + "]" * depth))
write("brace", attribute("{b = " * depth + "1" + "}" * depth))
write("angle", attribute("tuple<" * depth + ">" * depth))
write("region", "// A comment.\n" + "module {" * depth + "}" * depth)
aliases = ["#a0 = [1]"] + [f"#a{i} = [#a{i - 1}]" for i in range(1, depth)]
write("alias", "\n".join(aliases) + f"\nmodule attributes {{a.b = #a{depth - 1}}} {{}}\n")
write("signs", attribute("affine_map<(d0) -> (" + "-" * terms + "d0)>"))
write("sum", attribute("affine_map<(d0) -> (" + "d0 + " * terms + "d0)>"))
write("index", "module attributes {a.b = array<index: 1>} {}\n")
write(
    "good",
    "!x = tuple<i32>\n// " + "(" * 300 + "\nmodule attributes {a.s = \"" + "[\\\"<{" * 300 + "\","
    " a.n = dense<[" + "-1.0, " * 5000 + "1.0e-5]> : tensor<5001xf32>, a.l = ["
    + ", ".join(["[affine_map<(d0) -> (d0)>, tuple<i32>]"] * 300)
    + "]} {\n  func.func private @good(" + ", ".join(["!x"] * 300) + ")\n}\n",
)
