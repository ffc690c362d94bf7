"""Connections of strangers to the store's port: the run ends as without them, listens on the loopback interface alone, and
nobody who looks at its processes or output learns its token."""

import glob
import hmac
import os
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


def read(path):
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def variable_of(launcher, name):
    """From the environment of a rank; nothing before one is there."""
    for pid in descendants(launcher):
        found = re.search(rb"(?:^|\0)" + name + rb"=([^\0]+)\0", read(f"/proc/{pid}/environ"))
        if found:
            return found[1].decode()
    return None


def listening_elsewhere(pid):
    """Addresses of listening sockets of a process that other machines can reach."""
    inodes = set()
    for fd in glob.glob(f"/proc/{pid}/fd/*"):
        try:
            inodes.add(os.readlink(fd))
        except OSError:
            pass
    lines = (read(f"/proc/{pid}/net/tcp") + read(f"/proc/{pid}/net/tcp6")).decode().splitlines()
    sockets = [words for words in map(str.split, lines) if len(words) > 9 and words[3] == "0A"]
    return [words[1] for words in sockets if f"socket:[{words[9]}]" in inodes
            and not words[1].split(":")[0].endswith(("7F", "01000000"))]


def protocol():
    text = (ROOT / "runtime" / "Distributed" / "Wire.h").read_text()
    return int(re.search(r"constexpr uint64_t protocol = (0x[0-9a-f]+);", text)[1], 16)


CHALLENGE, HELLO = range(2)
NONCE_BYTES = 32
HEAD = struct.Struct("<6Q")


def message(kind, rank=0, number=0, name=b"", text=b""):
    """As in Wire.h."""
    return HEAD.pack(protocol() | kind, rank, number, 0, len(name), len(text)) + name + text


def receive(stranger, size):
    data = b""
    while len(data) < size:
        more = stranger.recv(size - len(data))
        if not more:
            raise OSError("the store has closed the connection")
        data += more
    return data


def challenge(stranger):
    """The nonce with which the store begins."""
    head = HEAD.unpack(receive(stranger, HEAD.size))
    if head != (protocol() | CHALLENGE, 0, 1, 0, 0, NONCE_BYTES):
        raise Wrong(f"the store begins with {head}, expected a challenge as in Wire.h")
    return receive(stranger, NONCE_BYTES)


def contents(rng, theirs):
    """What strangers say to the nonce of the store: (name, bytes)."""
    own = rng.randbytes(NONCE_BYTES)
    prove = lambda token, of=b"rank": hmac.digest(token, b"nsa " + of + b": " + theirs + own, "sha256")
    token = rng.randbytes(16).hex().encode()
    rank, size = rng.choice([0, 1, 2, 99, (1 << 64) - 1]), rng.choice([0, 1, 2, 3, 1 << 40])
    hello = lambda proof: message(HELLO, rank, size, b"", own + proof)
    head = lambda name, text: HEAD.pack(protocol() | HELLO, rank, size, 0, name, text)
    kind = rng.randrange(14)
    return [
        ("garbage", rng.randbytes(rng.randrange(1, 6000))),
        ("a huge length", head(rng.choice([(1 << 64) - 1, 1 << 63, 64 << 20]), 64) + rng.randbytes(50)),
        ("zeros", bytes(rng.randrange(1, 10000))),
        ("nothing", b""),
        ("a registration with another token", hello(prove(token))),
        ("a registration with no token", hello(prove(b""))),
        ("a proof of the store", hello(prove(b"", b"store"))),
        ("the store's nonce in return", message(HELLO, rank, size, b"", theirs + theirs)),
        ("two registrations", hello(prove(token)) + hello(prove(token))),
        ("a registration without a proof", message(HELLO, rank, size)),
        ("another message", message(rng.randrange(2, 13), 7, 7, rng.randbytes(20), rng.randbytes(9))),
        ("a text beyond its message", head(0, 4096) + bytes(64)),
        ("half a registration", hello(prove(token))[: rng.randrange(1, 110)]),
        ("an HTTP request", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"),
    ][kind]


class Strangers:
    name, title = "strangers", "strangers at the store's port: the run ends as without them"
    counts = 8, 60

    def case(self, lab, rng, folder, number):
        reference = lab.reference(2, **SETTINGS)
        process = lab.start(folder, "--run-name=run", "--nproc=2", settings=SETTINGS)
        try:
            launcher = process.child.pid
            await_that(lambda: variable_of(launcher, b"MASTER_PORT"), "the store's port", process)
            token, port = (variable_of(launcher, name) for name in (b"NSA_RENDEZVOUS_TOKEN", b"MASTER_PORT"))
            sent = self.bother(rng, process, int(port), many=number % 4 == 3)
            done = process.wait().expect(0)
            if len(token) != 64 or token in done.out + done.err + self.commands:
                raise Wrong("the token is short, printed or on a command line")
        finally:
            process.stop()
        if not sent:
            raise Wrong("no stranger reached the store")
        lab.same(folder / "runs" / "run", reference, done)
        return f"{sent} connections"

    def bother(self, rng, process, port, many):
        """Connects until the run is over; the number of connections that were made."""
        held, made, self.commands = [], 0, ""
        while process.running():
            for pid in descendants(process.child.pid):
                self.commands += read(f"/proc/{pid}/cmdline").decode()
                if listening_elsewhere(pid):
                    raise Wrong(f"a rank listens at {listening_elsewhere(pid)}")
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
                stranger.sendall(contents(rng, challenge(stranger))[1])
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
