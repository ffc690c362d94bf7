"""Calls an artefact's loss in a process, its children and theirs, some of them while threads are calling.

Arguments: the artefact, then threads of the program, threads that call meanwhile, children of each process, and how many
generations there are. Prints what the loss is; exit code 1 if it is another one in some process, or one hangs."""

import os
import signal
import sys
import threading

import numpy as np

import nsa

SECONDS = 60


def main(artefact, threads, callers, children, generations):
    module = nsa.load(artefact, threads=threads)
    module.run("init", {})
    inputs = {name: np.arange(np.prod(shape), dtype=np.int32).reshape(shape) % 16
              for name, (_, shape, _) in ((name, module.tensors[name]) for name in module.entries["eval"][0][:2])}

    def loss():
        return module.run("eval", inputs)["loss"].tobytes()

    first = loss()
    ending = threading.Event()

    def call():
        while not ending.is_set():
            loss()

    def fork(left):
        """Whether all processes below this one find the same."""
        good = loss() == first
        for _ in range(children if left else 0):
            child = os.fork()
            if child == 0:
                signal.alarm(SECONDS)
                os._exit(0 if fork(left - 1) else 1)
            good = os.waitpid(child, 0)[1] == 0 and good
        return good

    others = [threading.Thread(target=call) for _ in range(callers)]
    for other in others:
        other.start()
    good = fork(generations)
    ending.set()
    for other in others:
        other.join()
    print(first.hex())
    return 0 if good and loss() == first else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], *map(int, sys.argv[2:])))
