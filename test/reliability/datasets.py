"""Damaged shards and manifests: refused at the start, or the run ends with code 1."""

import json
import os
import re
import struct

import damage
from lab import Wrong, await_that, copy, steps_made


class Shards:
    name, title = "shards", "damaged shards, also while training: refused, or code 1"
    counts = 24, 240

    def case(self, lab, rng, folder, number):
        data = copy(lab.data, folder / "data")
        shards = sorted(data.glob("*.bin"))
        shard = rng.choice(shards)
        if number % 3 == 2:
            return self.while_training(lab, rng, folder, data, shard)
        what = self.damage(rng, shard, shards)
        done = lab.train(folder, "--run-name=run", data=data)
        try:
            if done.code == 0:
                lab.same(folder / "runs" / "run", lab.reference(), done)
                raise Wrong("is accepted, with the same result")
            done.expect(1).one_error(shard.name)
        except Wrong as error:
            raise type(error)(f"{what}: {error}") from None
        return what

    def damage(self, rng, shard, shards):
        content = shard.read_bytes()
        kind = rng.randrange(6)
        if kind == 0:
            # One of the numbers of the header, also of those that mean nothing yet.
            at = 4 * rng.choice([0, 1, 2, rng.randrange(3, 256)])
            old, = struct.unpack_from("<I", content, at)
            new = rng.choice([old ^ 1, old + 1, 0xFFFFFFFF, 1 << 30, rng.randrange(1 << 31)]) & 0xFFFFFFFF
            shard.write_bytes(content[:at] + struct.pack("<I", new if new != old else old ^ 1) + content[at + 4:])
            return f"{shard.name}: header number {at // 4}"
        if kind == 1:
            at = 1024 + 2 * rng.randrange((len(content) - 1024) // 2)
            token = rng.choice([n for n in range(16) if n != content[at]])
            shard.write_bytes(content[:at] + bytes([token, 0]) + content[at + 2:])
            return f"{shard.name}: another token"
        if kind == 2:
            # A whole shard: tokens that fit, but not here.
            other = rng.choice([s for s in shards if s != shard])
            shard.write_bytes(other.read_bytes())
            return f"{shard.name}: the bytes of {other.name}"
        return damage.damage_file(shard, rng)

    def while_training(self, lab, rng, folder, data, shard):
        """The file shrinks while it is mapped: no SIGBUS, and no other numbers."""
        run = folder / "runs" / "run"
        process = lab.start(folder, "--run-name=run", data=data)
        step = rng.randrange(0, lab.settings["train.steps"])
        await_that(lambda: steps_made(run) >= step, f"step {step}", process)
        size = rng.choice([0, 1024, 1025, rng.randrange(shard.stat().st_size)])
        os.truncate(shard, size)
        done = process.wait()
        what = f"{shard.name} shrinks to {size} bytes after step {step}"
        try:
            done.expect(0, 1)
            if done.code == 1:
                done.one_error(shard.name)
            else:
                lab.same(run, lab.reference(), done)
        except Wrong as error:
            raise type(error)(f"{what}: {error}") from None
        return what


class Manifests:
    name, title = "manifests", "damaged manifests: refused"
    counts = 20, 200

    def case(self, lab, rng, folder, number):
        data = copy(lab.data, folder / "data")
        path = data / "manifest.json"
        text = path.read_text()
        kind = number % 4
        if kind == 0:
            match = rng.choice(list(re.finditer(r"\d", text)))
            digit = rng.choice([d for d in "123456789" if d != match[0]])
            text = text[:match.start()] + digit + text[match.end():]
            what = f"a digit in line {text.count(chr(10), 0, match.start()) + 1}"
        elif kind == 1:
            content = json.loads(text)
            where = content
            keys = []
            while isinstance(where, dict) and where and (not keys or rng.random() < 0.6):
                keys.append(rng.choice(sorted(where)))
                parent, where = where, where[keys[-1]]
            del parent[keys[-1]]
            text, what = json.dumps(content, indent=2) + "\n", f"without {'.'.join(keys)}"
        elif kind == 2:
            lines = text.split("\n")
            a, b = rng.sample(range(len(lines) - 1), 2)
            if lines[a] == lines[b]:
                lines[a] += "x"
            lines[a], lines[b] = lines[b], lines[a]
            text, what = "\n".join(lines), f"lines {a + 1} and {b + 1} change places"
        else:
            other, what = damage.damaged(text.encode(), rng)
            path.write_bytes(other)
        if kind < 3:
            path.write_text(text)
        done = lab.train(folder, "--run-name=run", data=data)
        try:
            if done.code == 0:
                lab.same(folder / "runs" / "run", lab.reference(), done)
                self.harmless(lab, path)
            else:
                done.expect(1).one_error(("manifest.json", ".bin"))
        except Wrong as error:
            raise type(error)(f"{what}: {error}") from None
        return what

    def harmless(self, lab, path):
        """White space and the order of keys mean nothing."""
        good = json.loads((lab.data / "manifest.json").read_text())
        try:
            same = json.loads(path.read_text()) == good
        except ValueError:
            same = False
        if not same:
            raise Wrong("is accepted, with the same result")
