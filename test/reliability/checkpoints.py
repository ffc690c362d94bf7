"""Damaged checkpoints: named ones are refused; of a run the one before is taken, and the
bad one named. No new run begins in silence."""

import json
import re
import shutil

import damage
from lab import Silent, Wrong, copy, named_run

FILES = ["model.safetensors", "optimizer.safetensors", "config.yaml", "state.json"]


def change_number(text, key, rng):
    """Another number in the place of a key's."""
    match = re.search(rf'"{key}": (\d+)', text)
    old = int(match[1])
    new = rng.choice([old + 1, max(old - 1, 0), old * 2 + 1, rng.randrange(1 << 31), 0])
    while new == old:
        new = rng.randrange(1 << 31)
    return text[:match.start(1)] + str(new) + text[match.end(1):], f"{key} {old} -> {new}"


def change_digit(text, rng):
    """Another digit in one of the hashes."""
    match = rng.choice(list(re.finditer(r'"([0-9a-f]{16})"', text)))
    at = match.start(1) + rng.randrange(16)
    digit = rng.choice([d for d in "0123456789abcdef" if d != text[at]])
    key = re.findall(r'"([\w.]+)":\s*$', text[:match.start()])
    return text[:at] + digit + text[at + 1:], f"a digit of {key[-1] if key else 'a hash'}"


class Checkpoints:
    name, title = "checkpoints", "damaged checkpoints: refused if named, otherwise the one before is taken"
    counts = 24, 240

    def case(self, lab, rng, folder, number):
        copy(lab.stopped_run(), folder / "runs")
        run = folder / "runs" / "run"
        root = run / "checkpoints"
        if number % 8 == 6:
            return self.latest(lab, rng, folder, run, root)
        if number % 8 == 7:
            return self.leftovers(lab, rng, folder, run, root)
        newest = root / (root / "latest").read_text().strip()
        before = sorted(root.glob("step-*"))[-2]
        file, what = self.damage(rng, newest, before)
        explicit = rng.random() < 0.5
        how = str(newest) if explicit else rng.choice(["auto", str(run)])
        done = lab.train(folder, "--resume", how)
        try:
            if explicit:
                self.judge_named(lab, run, newest, file, done)
            else:
                self.judge_run(lab, run, newest, before, done)
        except Wrong as error:
            raise type(error)(f"{what}, --resume {'CHECKPOINT' if explicit else how.replace(str(run), 'RUN')}: {error}") from None
        return what

    def damage(self, rng, newest, before):
        """The file that is damaged, and how."""
        kind = rng.randrange(8)
        state = newest / "state.json"
        text = state.read_text()
        if kind == 0:
            text, what = change_number(text, rng.choice(["step", "samples", "seed", "format"]), rng)
        elif kind == 1:
            text, what = change_digit(text, rng)
        elif kind == 2:
            what = damage.damage_file(state, rng)
            return state, what
        elif kind == 3:
            file = newest / rng.choice(FILES)
            file.unlink()
            return file, f"without {file.name}"
        elif kind == 4:
            # Of the checkpoint before, whole in itself.
            file = newest / rng.choice(["model.safetensors", "optimizer.safetensors", "state.json"])
            shutil.copy(before / file.name, file)
            return file, f"{file.name} of the checkpoint before"
        elif kind == 5:
            keys = [k for k in json.loads(text)]
            key = rng.choice(keys)
            text = json.dumps({k: v for k, v in json.loads(text).items() if k != key}, indent=2) + "\n"
            what = f"state.json without {key}"
        else:
            file = newest / rng.choice(FILES[:3])
            return file, damage.damage_file(file, rng)
        state.write_text(text)
        return state, what

    def judge_named(self, lab, run, newest, file, done):
        if done.code == 0:
            lab.same(run, lab.reference(), done)
            raise Wrong("is accepted, with the same result")
        # state.json holds the hashes of the others: either may be blamed.
        files = tuple(FILES) if file.name == "state.json" else (file.name, "state.json")
        done.expect(1).one_error(str(newest), files)
        if (newest.parent / "latest").read_text().strip() != newest.name:
            raise Wrong("latest was changed although nothing was resumed")

    def judge_run(self, lab, run, newest, before, done):
        done.expect(0)
        if named_run(done) != run:
            raise Silent(f"a new run begins: {named_run(done)}")
        lab.same(run, lab.reference(), done)
        if newest.name not in (done.out + done.err):
            raise Wrong(f"{newest.name} is not named")
        if not re.search(rf"resuming from \S*{before.name}", done.out):
            raise Wrong(f"does not go on from {before.name}: {done.tail()}")

    def latest(self, lab, rng, folder, run, root):
        """`latest` is missing, or names what is not there."""
        change = rng.choice(["missing", "empty", "garbage", "absent", "older", "bits"])
        file = root / "latest"
        if change == "missing":
            file.unlink()
        elif change == "empty":
            file.write_text("")
        elif change == "garbage":
            file.write_bytes(rng.randbytes(rng.randrange(1, 40)))
        elif change == "absent":
            file.write_text("step-00000099\n")
        elif change == "older":
            file.write_text(sorted(root.glob("step-*"))[0].name + "\n")
        else:
            damage.damage_file(file, rng)
        done = lab.train(folder, "--resume", rng.choice(["auto", str(run)]))
        try:
            done.expect(0, 1)
            if done.code == 1:
                done.one_error("latest")
            else:
                if named_run(done) != run:
                    raise Silent(f"a new run begins: {named_run(done)}")
                lab.same(run, lab.reference(), done)
        except Wrong as error:
            raise type(error)(f"latest: {change}: {error}") from None
        return f"latest: {change}"

    def leftovers(self, lab, rng, folder, run, root):
        """What killed saves leave does not matter."""
        newest = root / (root / "latest").read_text().strip()
        for _ in range(rng.randrange(1, 4)):
            kind = rng.randrange(4)
            pid = rng.randrange(1, 1 << 22)
            if kind == 0:
                (root / f"latest.tmp.{pid}").write_bytes(rng.randbytes(9))
            elif kind == 1:
                (newest / f"state.json.tmp.{pid}").write_text('{"step": 99')
            elif kind == 2:
                copy(newest, root / f".tmp-step-{rng.randrange(13, 99):08}")
            else:
                (run / f"training.csv.tmp.{pid}").write_text("step,lo")
        done = lab.train(folder, "--resume", rng.choice(["auto", str(run), str(newest)]))
        done.expect(0)
        if named_run(done) != run:
            raise Silent(f"a new run begins: {named_run(done)}")
        lab.same(run, lab.reference(), done)
        return "leftovers"
