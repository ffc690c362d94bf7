"""Runs two ranks of a command while strangers connect to their store.

strangers.py flood COMMAND...: with --nproc 2. From the first moment to the last,
connections send nothing, parts of messages, wrong ones and too much: 1,000 at
most, 100 at a time. Whatever listens does so on the loopback interface, and the
token is in no command line and in nothing that is printed.

strangers.py token COMMAND...: rank 1 with another token ends with code 1 and one
sentence, and the run goes on with a rank 1 that has the right one.
"""

import glob
import os
import random
import socket
import subprocess
import sys
import time

LONGEST = 120  # seconds
MESSAGES = [
    b"",
    b"\x51\0",
    b"\x51\0\0\0\x01",
    bytes(37),
    bytes(100000),
    b"\xff" * 100000,
    b"GET / HTTP/1.1\r\n\r\n",
    # A registration of 37 bytes, of a rank that counts three.
    b"\x21\0\0\0\0" + b"40RTSASN" + bytes([1]) + bytes(7) + bytes([3]) + bytes(15),
]


def fail(text):
    sys.exit("error: " + text)


def read(path):
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def variables(pid):
    pairs = (text.partition(b"=") for text in read(f"/proc/{pid}/environ").split(b"\0"))
    return {name.decode(): value.decode() for name, _, value in pairs if name}


def children(pid):
    return [int(n) for n in read(f"/proc/{pid}/task/{pid}/children").split()]


def listening_elsewhere(pid):
    """Addresses of listening sockets of a process that others can reach."""
    inodes = set()
    for fd in glob.glob(f"/proc/{pid}/fd/*"):
        try:
            inodes.add(os.readlink(fd))
        except OSError:
            pass
    found = []
    for line in (read(f"/proc/{pid}/net/tcp") + read(f"/proc/{pid}/net/tcp6")).splitlines():
        words = line.decode().split()
        if len(words) > 9 and words[3] == "0A" and f"socket:[{words[9]}]" in inodes:
            address = words[1].split(":")[0]
            if not (address.endswith("7F") or address.endswith("01000000")):
                found.append(words[1])
    return found


def bother(port, open_sockets):
    """One more stranger; whether it could connect."""
    stranger = socket.socket()
    stranger.setblocking(True)
    stranger.settimeout(1)
    try:
        stranger.connect(("127.0.0.1", port))
        stranger.setblocking(False)
        stranger.send(random.choice(MESSAGES))
    except OSError:
        stranger.close()
        return False
    open_sockets.append(stranger)
    while len(open_sockets) > 100:
        open_sockets.pop(0).close()
    return True


def flood(command):
    run = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    end = time.time() + LONGEST
    tokens, lines, count, open_sockets = set(), b"", 0, []
    port = None
    while run.poll() is None and time.time() < end:
        for rank in children(run.pid):
            own = variables(rank)
            if "MASTER_PORT" in own and "RANK" in own:
                port = int(own["MASTER_PORT"])
                tokens.add(own["NSA_RENDEZVOUS_TOKEN"])
                lines += read(f"/proc/{rank}/cmdline")
            if listening_elsewhere(rank):
                fail(f"rank {own.get('RANK')} listens at {listening_elsewhere(rank)}")
        for _ in range(20):
            if port and count < 1000:
                count += bother(port, open_sockets)
        time.sleep(0.01)
    if run.poll() is None:
        run.kill()
    printed = run.communicate()[0]
    if run.returncode != 0:
        fail(f"the run ended with code {run.returncode}: {printed.decode()}")
    if count < 100:
        fail(f"only {count} strangers connected")
    if len(tokens) != 1 or len(next(iter(tokens))) != 64:
        fail(f"the ranks have {len(tokens)} tokens")
    if next(iter(tokens)).encode() in printed + lines:
        fail("the token is printed or on a command line")
    print("the run went on")


def token(command):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    def start(rank, secret):
        own = dict(
            os.environ,
            RANK=str(rank),
            LOCAL_RANK=str(rank),
            WORLD_SIZE="2",
            LOCAL_WORLD_SIZE="2",
            MASTER_ADDR="127.0.0.1",
            MASTER_PORT=str(port),
            NSA_RENDEZVOUS_TOKEN=secret,
        )
        return subprocess.Popen(
            command, env=own, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    started = [start(0, "the right token of this test")]
    try:
        other = start(1, "another token of this test")
        started.append(other)
        print(other.communicate(timeout=LONGEST)[0].replace(str(port), "PORT"), end="")
        print("code", other.returncode)
        started[1] = start(1, "the right token of this test")
        for rank in started:
            printed = rank.communicate(timeout=LONGEST)[0]
            if rank.returncode != 0:
                fail(f"a rank ended with code {rank.returncode}: {printed}")
    finally:
        for rank in started:
            rank.kill()
    print("the run went on")


{"flood": flood, "token": token}[sys.argv[1]](sys.argv[2:])
