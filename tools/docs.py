#!/usr/bin/env python3
"""Keeps the generated parts of docs/ as the tools are.

    tools/docs.py check     fails and says what is not as the tools print it
    tools/docs.py write     writes it

The output of a tool follows a comment with its command, `<!-- nsa-model --keys -->`,
as a block of code. The pictures are drawn by docs/plots/draw.py; here only their
sources are compared.

IR is shortened. `<!-- nsa-opt FILE --PASS... | REGEX... -->` shows the lines that one of the
expressions is found in, and `...` for others but arithmetic; `nsa-opt + --PASS...` runs the
passes of the block before and these. Names are those of locations. Types are left out where
other lines say them, bodies of tile.map are lists of operations.
"""

import argparse
import importlib.util
import os
import pathlib
import re
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"^<!-- (nsa-[a-z]+ [^>]*) -->\n(?:```(?:text|mlir)\n.*?^```\n)?", re.M | re.S)
LINK = re.compile(r"\]\(([^)#:\s]+)(?:#\S*)?\)")

COLUMNS = 140
# What is left out without a mark.
SILENT = re.compile(r" *(?:%\S+ = (?:arith\.|tile\.program_id)|tile_gpu\.(?:shared|global)_access)")
BREAK = re.compile(r"(?<=[,:]) | (?=attributes|iter_args|->)")
MAP_BODY = re.compile(r"^( *)(.* = tile\.map .*) \{\n *\^bb0.*\n((?:\1  .*\n)*)\1\}$", re.M)
OPERATION = re.compile(r"^ *(?:%\S+ = )?([a-z_]+\.[a-z0-9_]+)", re.M)
# What is left out of a line, in order.
OMITTED = [
    (re.compile(r"!tile\.tile(?=<)|!tile_gpu\.(?=memdesc|mbarriers)"), ""),
    (re.compile(r"#tile\.(?=mma|shared|rematerialized)|(?<=mma)<warps = \d+>|(?:tile_gpu\.mma = )?#tile_gpu\."), ""),
    (re.compile(r" : (?:memref<[^>]*>|memdesc<[^>]*>), \([^()]*\)"), ""),
    (re.compile(r"((?:llvm\.func|tile\.kernel) @\w+)\(.*\) attributes (?=.*(?:nvvm|tile_gpu)\.)"), r"\1(...) attributes "),
    (re.compile(r"(?<=\{)grid = .*?>, (?=.*tile_gpu\.)|num_outputs = \d+ : i32, (?=tile_gpu\.)"), ""),
    (re.compile(r"nsa\.tensor_maps = \[.*\]"), "nsa.tensor_maps = [...]"),
    (re.compile(r"^( *)(?:%\S+ = )?(nvvm\.[\w.]+) .*%.*"), r"\1\2 ..."),
    (re.compile(r"^( *)%\S+ = llvm\.inline_asm .*?(wgmma\.[\w.]+).*"), r"\1\2 ..."),
    (re.compile(r"(scf\.for .*? -> )\(.*\)  : i32 \{$"), r"\1{"),
    (re.compile(r"iter_args\((?:[^,]*, ){8}.*?\) -> "), "iter_args(...) -> "),
    (re.compile(r" -> \{$"), " {"),
    (re.compile(r"(tile\.map \([^:()]*) : [^()]*\)"), r"\1)"),
    (re.compile(r"(tile\.reduce .*?\}|local_view .*?) : .* ->"), r"\1 ->"),
    (re.compile(r" to memdesc<\S*>$"), ""),
    (re.compile(r"^( *(?:tile_gpu|scf|tile)\.(?!kernel)[^{]*?) : .*[^{]$"), r"\1"),
    (re.compile(r"(?<=\S)  +"), " "),
]


def shortened(text):
    """IR without what makes it long."""
    aliases = dict(re.findall(r"^([#!][\w.]+) = (.*)$", text, re.M))
    text = re.sub(r"^[#!][\w.]+ = .*\n", "", text, flags=re.M)
    for name, value in aliases.items():
        text = re.sub(rf"{name}\b", lambda _, value=value: value, text)
    text = MAP_BODY.sub(
        lambda match: f"{match[1]}{match[2]} {{ {', '.join(OPERATION.findall(match[3])[:-1])} }}", text)
    lines = []
    for line in text.splitlines():
        if line in ("module {", "}", ""):
            continue
        line = line.removeprefix("  ")
        for expression, replacement in OMITTED:
            line = expression.sub(replacement, line)
        lines.append(line)
    return lines


def excerpt(lines, expressions):
    """The lines that match, with the ends of their regions; of instructions in sequence, each kind once."""
    wanted = re.compile("|".join(expressions))
    shown, opened, kinds = [], [], set()
    for line in lines:
        closes, opens = line.lstrip().startswith("}"), line.endswith("{")
        is_wanted = (closes and opened.pop()) or bool(wanted.search(line))
        if opens:
            opened.append(is_wanted)
        kind = next(iter(re.findall(r"\b(?:nvvm|wgmma)\.[\w.]+", line)), None)
        if is_wanted and (not kind or kind not in kinds):
            shown.append(line)
            kinds = kinds | {kind} if kind else set()
        elif shown and shown[-1].lstrip() != "..." and not SILENT.match(line):
            shown.append(" " * (len(line) - len(line.lstrip())) + "...")
    around = zip(["}", *shown], shown, [*shown[1:], "}"])
    return [line for before, line, after in around
            if line.lstrip() != "..." or before.endswith("{") == after.lstrip().startswith("}")]


def broken(line):
    """A line, in several if it is too long."""
    if len(line) <= COLUMNS:
        return line
    indent = len(line) - len(line.lstrip()) + 4
    breaks = [match.start() for match in BREAK.finditer(line, indent, COLUMNS + 1)]
    return f"{line[:breaks[-1]]}\n{broken(' ' * indent + line[breaks[-1] + 1:])}" if breaks else line


class Tools:
    """Runs the commands of a page."""

    def __init__(self):
        self.before = []

    def text_of(self, words):
        """What a tool prints, without trailing blanks."""
        environment = dict(os.environ, COLUMNS="100")
        result = subprocess.run([str(ROOT / "build/bin" / words[0]), *words[1:]], env=environment, text=True,
                                capture_output=True, cwd=ROOT)
        if result.returncode:
            sys.exit(f"{shlex.join(words)}: {result.stderr}")
        return "\n".join(line.rstrip() for line in result.stdout.strip().splitlines())

    def ir_of(self, command):
        options, _, expressions = command.partition(" | ")
        words = shlex.split(options)[1:]
        self.before = words if words[0] != "+" else self.before + words[1:]
        text = self.text_of(["nsa-opt", *self.before, "--columns=0", "--mlir-use-nameloc-as-prefix"])
        lines = excerpt(shortened(text), expressions.split())
        if not lines:
            sys.exit(f"{command}: nothing matches")
        return "\n".join(map(broken, lines))

    def block(self, command):
        if command.startswith("nsa-opt "):
            return f"<!-- {command} -->\n```mlir\n{self.ir_of(command)}\n```\n"
        return f"<!-- {command} -->\n```text\n{self.text_of(command.split())}\n```\n"


def generated(text):
    tools = Tools()
    return BLOCK.sub(lambda match: tools.block(match[1]), text)


def find_problems(pages, write):
    for page in pages:
        name = page.relative_to(ROOT)
        text = page.read_text()
        new = generated(text)
        if write:
            page.write_text(new)
        elif new != text:
            yield f"{name}: not what the tools print; run tools/docs.py write"
        for target in LINK.findall(new):
            if not (page.parent / target).exists():
                yield f"{name}: links to {target}, which does not exist"


def find_stale_pictures():
    path = ROOT / "docs/plots/draw.py"
    spec = importlib.util.spec_from_file_location("draw", path)
    draw = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(draw)
    for name in draw.PICTURES:
        if draw.inputs_hash(name) not in (path.parent / f"{name}.svg").read_text():
            yield f"docs/plots/{name}.svg: not drawn from the present sources; run docs/plots/draw.py"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["check", "write"])
    arguments = parser.parse_args()
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    problems = [*find_problems(pages, arguments.what == "write"), *find_stale_pictures()]
    if len((ROOT / "README.md").read_text().splitlines()) > 120:
        problems.append("README.md: more than 120 lines")
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
