"""Damage to bytes: each function takes the bytes and a random generator."""


def flip(data, rng):
    """1 to 4 bits."""
    data = bytearray(data)
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(data)


def truncate(data, rng):
    return data[:rng.randrange(len(data))]


def cut_a_little(data, rng):
    return data[:-min(len(data), rng.randrange(1, 17))]


def append(data, rng):
    return data + rng.randbytes(rng.randrange(1, 5000))


def span(data, rng):
    """The offset of a range of at most a tenth."""
    size = rng.randrange(1, max(2, len(data) // 10))
    begin = rng.randrange(len(data) - size + 1)
    return begin, begin + size


def zero(data, rng):
    begin, end = span(data, rng)
    return data[:begin] + bytes(end - begin) + data[end:]


def overwrite(data, rng):
    begin, end = span(data, rng)
    return data[:begin] + rng.randbytes(end - begin) + data[end:]


def swap(data, rng):
    """Two ranges of one size are swapped."""
    begin, end = span(data, rng)
    other = rng.randrange(len(data) - (end - begin) + 1)
    data = bytearray(data)
    first, second = bytes(data[begin:end]), bytes(data[other:other + end - begin])
    data[begin:end] = second
    data[other:other + end - begin] = first
    return bytes(data)


def drop(data, rng):
    """A range is missing."""
    begin, end = span(data, rng)
    return data[:begin] + data[end:]


def repeat(data, rng):
    """A range is there twice."""
    begin, end = span(data, rng)
    return data[:end] + data[begin:end] + data[end:]


KINDS = [flip, flip, flip, truncate, cut_a_little, append, zero, overwrite, swap, drop, repeat]


def damaged(data, rng, kinds=KINDS):
    """Other bytes than `data`, and what was done to them."""
    while True:
        kind = rng.choice(kinds)
        other = kind(data, rng)
        if other != data:
            return other, kind.__name__.replace("_", " ")


def damage_file(path, rng, kinds=KINDS):
    other, what = damaged(path.read_bytes(), rng, kinds)
    path.write_bytes(other)
    return f"{path.name}: {what}"
