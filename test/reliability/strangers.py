"""Connections of strangers to the store's port: the run ends as without them."""

import re
import socket
import struct
import time

from lab import ROOT, Wrong, await_that

SETTINGS = {"train.steps": 200, "train.save_every": 50}
MOST_CONNECTIONS = 300


def descendants(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            own = [int(word) for word in file.read().split()]
    except OSError:
        return []
    return own + [pid for child in own for pid in descendants(child)]


def port_of(launcher):
    """The port of the store, from the environment of a rank; nothing before it is there."""
    for pid in descendants(launcher):
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                found = re.search(rb"(?:^|\0)MASTER_PORT=(\d+)\0", file.read())
        except OSError:
            continue
        if found:
            return int(found[1])
    return None


def protocol():
    text = (ROOT / "runtime" / "Distributed" / "Wire.h").read_text()
    return int(re.search(r"constexpr uint64_t protocol = (0x[0-9a-f]+);", text)[1], 16)


def message(kind, *fields):
    """As in Wire.h: numbers, and texts behind their lengths."""
    body = bytes([kind])
    for field in fields:
        body += struct.pack("<Q", field) if isinstance(field, int) else struct.pack("<Q", len(field)) + field
    return struct.pack("<I", len(body)) + body


def contents(rng):
    """What strangers say: (name, bytes)."""
    hello = lambda rank, size, word: message(0, protocol(), rank, size, word)
    token = rng.randbytes(16).hex().encode()
    kind = rng.randrange(13)
    return [
        ("garbage", rng.randbytes(rng.randrange(1, 6000))),
        ("a huge length", struct.pack("<I", rng.choice([0xFFFFFFFF, 0x7FFFFFFF, 64 << 20])) + rng.randbytes(50)),
        ("zeros", bytes(rng.randrange(1, 10000))),
        ("nothing", b""),
        ("another token", hello(rng.randrange(2), 2, token)),
        ("no token", hello(rng.randrange(2), 2, b"")),
        ("another size", hello(0, rng.choice([0, 1, 3, 1 << 40]), token)),
        ("a rank that is none", hello(rng.choice([2, 99, (1 << 64) - 1]), 2, token)),
        ("another protocol", message(0, protocol() ^ 1, 0, 2, token)),
        ("no hello", message(rng.randrange(1, 13), rng.randbytes(20), 7, rng.randbytes(9))),
        ("a text beyond its message", message(0, protocol(), 0, 2, 1 << 62)),
        ("half a message", hello(0, 2, token)[:rng.randrange(1, 30)]),
        ("an HTTP request", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"),
    ][kind]


class Strangers:
    name, title = "strangers", "strangers at the store's port: the run ends as without them"
    counts = 8, 60

    def case(self, lab, rng, folder, number):
        reference = lab.reference(2, **SETTINGS)
        process = lab.start(folder, "--run-name=run", "--nproc=2", settings=SETTINGS)
        try:
            await_that(lambda: port_of(process.child.pid), "the store's port", process)
            sent = self.bother(rng, process, port_of(process.child.pid), many=number % 4 == 3)
            done = process.wait().expect(0)
        finally:
            process.stop()
        if not sent:
            raise Wrong("no stranger reached the store")
        lab.same(folder / "runs" / "run", reference, done)
        return f"{sent} connections"

    def bother(self, rng, process, port, many):
        """Connects until the run is over; the number of connections that were made."""
        held, made = [], 0
        while process.running():
            if made >= MOST_CONNECTIONS:
                time.sleep(0.01)
                continue
            try:
                stranger = socket.create_connection(("127.0.0.1", port), timeout=2)
            except OSError:
                time.sleep(0.005)
                continue
            made += 1
            try:
                stranger.sendall(contents(rng)[1])
            except OSError:
                pass
            if many or rng.random() < 0.3:
                held.append(stranger)
            else:
                stranger.close()
            if not many:
                time.sleep(rng.random() * 0.01)
        for stranger in held:
            stranger.close()
        return made
