#!/usr/bin/python3
"""Holds the tables of test/README.md against the sources.

Every test that they name exists, and every lesson and every mistake has one.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent
LESSONS = set(range(1, 23))
MISTAKES = set(range(1, 19))

GTEST = re.compile(r"^TEST(?:_[FP])?\(\s*(\w+)\s*,\s*(\w+)\s*\)", re.MULTILINE)


def tables():
    """Yields the heading, number, test and file of every row."""
    heading = ""
    for line in (ROOT / "README.md").read_text().splitlines():
        if line.startswith("## "):
            heading = line[3:]
        row = re.match(r"\| (\d+)[^|]*\| (\S+) \| (\S+) \|$", line)
        if row and heading in ("Lessons", "Mistakes"):
            yield heading, int(row[1]), row[2], row[3]


def exists(test, file):
    path = ROOT / file
    if not path.is_file():
        return False
    text = path.read_text()
    if test.startswith("mutant-"):
        return f"\n{test.removeprefix('mutant-')}\t" in text
    if path.suffix == ".py":
        return f"\ndef {test}(" in text
    if "." not in test:
        return path.stem == test
    return tuple(test.split(".")) in GTEST.findall(text)


def main():
    rows = list(tables())
    errors = [
        f"{file} has no test {test}"
        for _, _, test, file in rows
        if not exists(test, file)
    ]
    for heading, numbers in (("Lessons", LESSONS), ("Mistakes", MISTAKES)):
        missing = numbers - {number for name, number, *_ in rows if name == heading}
        errors += [f"{heading}: {number} has no test" for number in sorted(missing)]
    for error in errors:
        print(f"error: {error}", file=sys.stderr)
    if not errors:
        print(f"{len(rows)} tests of lessons and mistakes are there")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
