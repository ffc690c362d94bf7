#!/usr/bin/env python3
"""Mutants of the compiler and the runtime: what the tests must find.

  mutants.py tree FOLDER      copies the project to FOLDER with all of mutants.txt in it; in what is built there,
                              NSA_MUTANT=17 chooses number 17, and without it everything is as it is
  mutants.py run TREE COMMAND...
                              runs a command once without a mutant and once with each, and prints which it finds

A line of mutants.txt: number, file, text of the line, what replaces it, separated by tabs. A replacement `;` drops
the statement. A line that begins with `-` is struck: its last field says why.
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIST = pathlib.Path(__file__).with_name("mutants.txt")

GUARD = """#ifndef NSA_IS_MUTANT
#define NSA_IS_MUTANT
#include <cstdlib>
namespace { [[maybe_unused]] bool isMutant(int number) {
  static const int chosen = std::getenv("NSA_MUTANT") ? std::atoi(std::getenv("NSA_MUTANT")) : 0;
  return chosen == number;
} }
#endif
"""


# --- Statements --------------------------------------------------------------


def code_of(line):
    return re.sub(r"//.*", "", line).strip()


def depths(text):
    return sum(text.count(c) for c in "([{") - sum(text.count(c) for c in ")]}")


def has_outer_comma(text):
    return any(c == "," and depths(text[:at]) == 0 for at, c in enumerate(text))


def find_statement(lines, number):
    """The first and last line of the innermost statement or head of a block that line `number` belongs to, or None."""
    first = number
    while first > 0:
        before = code_of(lines[first - 1])
        if not before or before.endswith((";", "{", "}", ":", "else")):
            break
        first -= 1
    depth = 0
    for last in range(first, min(first + 12, len(lines))):
        code = code_of(lines[last])
        depth += depths(code)
        if depth == 0 and code.endswith(";"):
            return (first, last) if last >= number else None
        if depth == 1 and code.endswith(") {") and code_of(lines[first]).startswith(("if (", "for (", "while (")):
            return (first, last) if last >= number else None
        if depth == 0 and code.endswith(")") and code_of(lines[first]).startswith(("if (", "for (", "while (")):
            if last >= number:
                return first, last
            first = last + 1
        if depth < 0:
            return None
    return None


DECLARATION = re.compile(r"^((?:const )?[\w:<>, *&]+[ *&]\w+) =\s(.*);$", re.DOTALL)


def guard(number, original, mutant):
    """Both statements, of which the environment chooses one."""
    chosen = f"isMutant({number})"
    head = re.match(r"^(if|while) \((.*)\)( \{)?$", original, re.DOTALL)
    if head:
        other = re.match(r"^(if|while) \((.*)\)( \{)?$", mutant, re.DOTALL)
        return f"{head[1]} ({chosen} ? bool({other[2]}) : bool({head[2]})){head[3] or ''}"
    if original.startswith("for ("):
        pieces, others = original.split("; "), mutant.split("; ")
        if len(pieces) != 3 or len(others) != 3 or pieces[0] != others[0]:
            raise ValueError(original)
        step = f"; {pieces[2]}"
        if pieces[2] != others[2]:
            raise ValueError(original)
        return f"{pieces[0]}; {chosen} ? ({others[1]}) : ({pieces[1]}){step}"
    if mutant.strip() == ";":
        return f"{{ if (!{chosen}) {{ {original} }} }}"
    declared = DECLARATION.match(original)
    if declared and not declared[1].startswith(("return", "delete")):
        if "auto [" in original or has_outer_comma(declared[2]):
            raise ValueError(original)
        return f"{declared[1]} = {chosen} ? ({DECLARATION.match(mutant)[2]}) : ({declared[2]});"
    if re.match(r"^[\w:<>]+[ *&]+\w+[({;]", original) and not original.startswith("return"):
        raise ValueError(original)  # a declaration with a constructor
    return f"{{ if ({chosen}) {{ {mutant} }} else {{ {original} }} }}"


def guard_lines(lines, index, number, replacement, original=None):
    """The text of the statement at line `index` with its mutant, and the lines that it takes the place of; `original`
    is what is there if that has a mutant already."""
    span = find_statement(lines, index)
    if span is None:
        raise ValueError(lines[index])
    codes = [code_of(line) for line in lines[span[0]:span[1] + 1]]
    changed = list(codes)
    changed[index - span[0]] = replacement
    if replacement == ";" and span[0] != span[1]:
        raise ValueError(lines[index])
    return guard(number, original or "\n".join(codes), "\n".join(changed)), span


# --- The list and the tree ---------------------------------------------------


def read_list():
    """Number to (file, text, replacement)."""
    mutants = {}
    for line in LIST.read_text().splitlines():
        if line and not line.startswith(("#", "-")):
            number, file, text, replacement = line.split("\t")
            mutants[int(number)] = (file, text, replacement)
    return mutants


def make_tree(folder):
    folder = pathlib.Path(folder).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    archive = subprocess.Popen(["git", "-C", ROOT, "archive", "HEAD"], stdout=subprocess.PIPE)
    subprocess.run(["tar", "-x", "-C", folder, "--skip-old-files"], stdin=archive.stdout, check=True)
    files = {}
    for number, (file, text, replacement) in read_list().items():
        files.setdefault(file, []).append((number, text, replacement))
    for file, mutants in files.items():
        lines = (ROOT / file).read_text().splitlines()
        texts = [line.strip() for line in lines]
        spans = {}
        for number, text, replacement in mutants:
            if texts.count(text) != 1:
                sys.exit(f"mutant {number}: {file} has {texts.count(text)} lines '{text}'")
            span = find_statement(lines, texts.index(text))
            if span is None:
                sys.exit(f"mutant {number}: no statement")
            if any(span != other and span[0] <= other[1] and other[0] <= span[1] for other in spans):
                sys.exit(f"mutant {number}: overlaps the statement of another one")
            spans[span] = guard_lines(lines, texts.index(text), number, replacement, spans.get(span))[0]
        for (first, last), guarded in sorted(spans.items(), reverse=True):
            lines[first:last + 1] = [guarded]
        text = GUARD + "#line 1\n" + "\n".join(lines) + "\n"
        target = folder / file
        if target.read_text() != text:
            target.write_text(text)


# --- Running -----------------------------------------------------------------


def run(tree, command, numbers, seconds):
    """Runs `command` in the tree's folder: exit code 0 means that a mutant was not found."""
    def once(number):
        environment = dict(os.environ, NSA_MUTANT=str(number), NSA_CACHE="0")
        environment.pop("NSA_KERNEL_CACHE", None)
        start = time.time()
        try:
            code = subprocess.run(command, cwd=tree, env=environment, timeout=seconds, stdout=subprocess.DEVNULL,
                                  stderr=subprocess.DEVNULL).returncode
        except subprocess.TimeoutExpired:
            code = "late"
        print(f"{number}\t{'missed' if code == 0 else 'found'}\t{code}\t{time.time() - start:.0f} s", flush=True)
        return code != 0

    if once(0):
        sys.exit("the command fails without a mutant")
    found = sum([once(number) for number in numbers or read_list()])
    print(f"{found} found")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("tree").add_argument("folder")
    running = commands.add_parser("run")
    running.add_argument("--only", type=int, nargs="+", default=[])
    running.add_argument("--seconds", type=float, default=900)
    running.add_argument("tree")
    running.add_argument("command_line", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()
    if arguments.command == "tree":
        make_tree(arguments.folder)
    else:
        run(arguments.tree, arguments.command_line, arguments.only, arguments.seconds)


if __name__ == "__main__":
    main()
