#!/usr/bin/env python3
"""Keeps the generated parts of docs/ as the tools are.

    tools/docs.py check     fails and says what is not as the tools print it
    tools/docs.py write     writes it

What a tool prints stands behind a comment with its command, `<!-- nsa-model --keys -->`,
as a block of code. The pictures are drawn by docs/plots/draw.py; here only their
sources are compared.
"""

import argparse
import importlib.util
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"^<!-- (nsa-[a-z]+ [^>]*) -->\n(?:```text\n.*?^```\n)?", re.M | re.S)
LINK = re.compile(r"\]\(([^)#:]+)\)")


def printed(command):
    """What a tool prints, without trailing blanks."""
    words = command.split()
    environment = dict(os.environ, COLUMNS="100")
    result = subprocess.run([str(ROOT / "build/bin" / words[0]), *words[1:]], env=environment, text=True,
                            capture_output=True, check=True)
    return "\n".join(line.rstrip() for line in result.stdout.strip().splitlines())


def generated(text):
    return BLOCK.sub(lambda match: f"<!-- {match[1]} -->\n```text\n{printed(match[1])}\n```\n", text)


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
