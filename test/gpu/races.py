"""What racecheck of compute-sanitizer reports, by whose kernels they are."""
import re

# Kernels of cuBLAS: reports with nothing else are about code that is not ours.
FOREIGN = re.compile(r"(void )?(nvjet|cutlass|cublas|sm\d+_xmma|gemv|splitK)")
REPORT = re.compile(r"^========= (?:Error|Warning|Info):? .*Race reported between")
ACCESS = re.compile(r"(?:Read|Write) access (?:at|by) (.+?)(?:\+0x[0-9a-f]+| in |$)")
SUMMARY = re.compile(r"RACECHECK SUMMARY: (\d+) hazards? displayed")


def reports(text):
    """The kernels of each report, in the order of the text; an assertion fails if the
    tool did not end or counts otherwise."""
    found = []
    for line in text.splitlines():
        if not line.startswith("========="):
            continue
        if REPORT.search(line):
            found.append([])
        names = ACCESS.findall(line)
        if names:
            assert found, f"an access without a report: {line}"
            found[-1] += names
    summary = SUMMARY.search(text)
    assert summary, "racecheck did not end:\n" + text[-2000:]
    assert int(summary.group(1)) == len(found), \
        f"{summary.group(1)} hazards, but {len(found)} reports are understood:\n" + text[-2000:]
    return found


def split(text):
    """The reports that are about kernels of cuBLAS alone, and the others."""
    foreign, own = [], []
    for kernels in reports(text):
        alone = kernels and all(FOREIGN.match(kernel) for kernel in kernels)
        (foreign if alone else own).append(kernels)
    return foreign, own


def describe(reports_of):
    """Each kernel once, with the number of reports that name it."""
    counts = {}
    for kernels in reports_of:
        for kernel in set(kernels) or {"an unnamed kernel"}:
            counts[kernel] = counts.get(kernel, 0) + 1
    return ", ".join(f"{kernel} ({count})" for kernel, count in sorted(counts.items()))
