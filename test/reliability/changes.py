"""Data that changes during a run: between its halves, or after it was verified. Files of
other projects have no manifest, and shards can be written in place."""

import json
import os
import struct

from lab import Silent, Wrong, await_that, copy, newest_checkpoint, result, steps_made

HEADER = 1024
TOKENS = 100_000
HALF = 12
# Of files of other projects nobody knows the text.
SETTINGS = {"data.tokenizer": "shards"}


def write_megatron(folder, tokens, lengths):
    """PREFIX.bin and PREFIX.idx, of documents of one sequence each."""
    (folder / "text.bin").write_bytes(tokens)
    places = [2 * sum(lengths[:i]) for i in range(len(lengths))]
    (folder / "text.idx").write_bytes(
        b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, len(lengths), len(lengths) + 1)
        + struct.pack(f"<{len(lengths)}i", *lengths) + struct.pack(f"<{len(lengths)}q", *places)
        + struct.pack(f"<{len(lengths) + 1}q", *range(len(lengths) + 1)))


class Changes:
    name, title = "changes", "data that changes between halves of a run, or after its check: refused, or the same bits"
    counts = 15, 150

    def prepared(self, lab):
        """For each kind of files its data, a run that stopped in the middle, and the result of a straight one."""
        def make():
            root = lab.scratch / "foreign"
            source = root / "synth"
            lab.must("nsa-data", "synth", "--order=1", "--vocab=16", f"--tokens={TOKENS * 10 // 9}", "--seed=3", "-o", source)
            llmc = (source / "train_000000.bin").read_bytes()
            found = {"own": (source, root / "own")}
            for kind in ("llmc", "megatron"):
                data = root / kind / "data"
                data.mkdir(parents=True)
                if kind == "llmc":
                    (data / "text.bin").write_bytes(llmc)
                else:
                    write_megatron(data, llmc[HEADER:HEADER + 2 * TOKENS], [TOKENS // 2, TOKENS // 2])
                found[kind] = data, root / kind
            made = {}
            for kind, (data, folder) in found.items():
                lab.train(folder, "--run-name=run", f"--stop-after={HALF}", data=data, settings=SETTINGS).expect(0)
                lab.train(folder, "--run-name=straight", data=data, settings=SETTINGS).expect(0)
                made[kind] = data, folder / "runs" / "run", result(folder / "runs" / "straight")
            return made
        (lab.scratch / "foreign" / "own").mkdir(parents=True, exist_ok=True)
        return lab.once("foreign", make)

    def case(self, lab, rng, folder, number):
        kind = ("tokens", "index", "overwritten", "touched", "old")[number % 5]
        files = {"tokens": "llmc", "index": "megatron", "overwritten": rng.choice(["own", "llmc"])}.get(
            kind, rng.choice(["own", "llmc", "megatron"]))
        source, run, straight = self.prepared(lab)[files]
        data = copy(source, folder / "data")
        if kind == "overwritten":
            return self.overwritten(lab, rng, folder, data, straight)
        copy(run, folder / "runs" / "run")
        what = getattr(self, kind)(rng, data, folder / "runs" / "run", lab)
        done = lab.train(folder, "--resume", folder / "runs" / "run", data=data, settings=SETTINGS)
        try:
            if kind in ("tokens", "index"):
                if done.code == 0:
                    raise Silent(f"code 0: {done.tail()}")
                done.expect(1).one_error("text.bin" if kind == "tokens" else "text.", "has changed")
            else:
                lab.same(folder / "runs" / "run", straight, done.expect(0))
                warned = done.out.count("no hashes of the files of its data")
                # After the header, and again at the end.
                if warned != (2 if kind == "old" else 0):
                    raise Wrong(f"warns {warned} times")
        except Wrong as error:
            raise type(error)(f"{files}, {what}: {error}") from None
        return f"{files}, {what}"

    def tokens(self, rng, data, run, lab):
        """Beyond what tells files apart."""
        path = data / "text.bin"
        content = bytearray(path.read_bytes())
        at = 2 * rng.randrange(1 << 15, len(content) // 2 - (1 << 15))
        content[at] = (content[at] + rng.randrange(1, 16)) % 16
        path.write_bytes(content)
        return f"token {(at - HEADER) // 2}"

    def index(self, rng, data, run, lab):
        cut = rng.randrange(1, TOKENS // 2)
        write_megatron(data, (data / "text.bin").read_bytes(), [cut, TOKENS - cut])
        return f"documents of {cut} and {TOKENS - cut} tokens"

    def touched(self, rng, data, run, lab):
        for path in data.glob("*.bin"):
            os.utime(path, (1e9, rng.randrange(1 << 30)))
        return "new times"

    def old(self, rng, data, run, lab):
        """As versions wrote it that kept no hashes of files."""
        path = newest_checkpoint(run) / "state.json"
        state = json.loads(path.read_text())
        del state["data_files"], state["state_xxh3"]
        state["state_xxh3"] = lab.hash(json.dumps(state, separators=(",", ":"), ensure_ascii=False).encode())
        path.write_text(json.dumps(state, indent=2) + "\n")
        return "a state without hashes"

    def overwritten(self, lab, rng, folder, data, straight):
        """In place, once it was verified: no later step is saved, and going on with the old bytes gives their bits."""
        path = rng.choice(sorted(data.glob("*.bin")))
        good = path.read_bytes()
        bad = good[:HEADER] + bytes((byte + 1) % 16 if i % 2 == 0 else 0 for i, byte in enumerate(good[HEADER:]))
        run = folder / "runs" / "run"
        process = lab.start(folder, "--run-name=run", data=data, settings=SETTINGS)
        # There is a checkpoint to go on from.
        step = rng.randrange(2 * lab.settings["train.save_every"], lab.settings["train.steps"] - 2)
        await_that(lambda: steps_made(run) >= step, f"step {step}", process)
        with open(path, "r+b") as file:
            file.write(bad)
        done = process.wait()
        what = f"{path.name} is overwritten after step {step}"
        try:
            done.expect(0, 1)
            if done.code == 1:
                done.one_error(path.name, ("has changed", "has hash"))
                path.write_bytes(good)
                done = lab.train(folder, "--resume=auto", "--run-name=run", data=data, settings=SETTINGS).expect(0)
            lab.same(run, straight, done)
        except Wrong as error:
            raise type(error)(f"{what}: {error}") from None
        return what
