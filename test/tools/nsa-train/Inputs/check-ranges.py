"""check-ranges.py CHECKPOINT RANKS: the shares of the ranks name every element
of both moments of every parameter once."""

import json
import sys

folder, ranks = sys.argv[1], int(sys.argv[2])


def read_header(name):
    with open(f"{folder}/{name}", "rb") as file:
        return json.loads(file.read(int.from_bytes(file.read(8), "little")))


def count(shape):
    total = 1
    for extent in shape:
        total *= extent
    return total


parameters = read_header("model.safetensors")
seen = {}
for rank in range(ranks):
    header = read_header(f"optimizer_rank{rank}.safetensors")
    used = {}
    for tensor, offset, parameter, first, elements in json.loads(
        header["__metadata__"]["moment_ranges"]
    ):
        assert used.get(tensor, 0) <= offset, (rank, tensor, offset)
        used[tensor] = offset + elements
        assert used[tensor] <= count(header[tensor]["shape"]), (rank, tensor)
        seen.setdefault((tensor[:2], parameter), []).append((first, elements))
for name, tensor in parameters.items():
    if name == "__metadata__":
        continue
    for moment in ("m.", "v."):
        at = 0
        for first, elements in sorted(seen.pop((moment, name))):
            assert first == at, (moment, name, first, at)
            at += elements
        assert at == count(tensor["shape"]), (moment, name)
assert not seen, seen
print("every element once")
