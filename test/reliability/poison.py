"""Numbers that are not finite: the run ends with code 3, and no checkpoint holds them."""

import json
import struct

from lab import Silent, Wrong, copy, named_run, newest_checkpoint, not_finite, tensors

VALUES = {"NaN": 0x7FC00000, "a signalling NaN": 0x7FA00000, "infinity": 0x7F800000, "-infinity": 0xFF800000}


def write_hashed(lab, checkpoint, name, content):
    """Writes a file of a checkpoint, and its hash where state.json has it."""
    path = checkpoint / name
    old = lab.hash(path.read_bytes())
    path.write_bytes(content)
    state = checkpoint / "state.json"
    text = state.read_text()
    if old not in text:
        raise Wrong(f"state.json does not have the hash of {name}")
    state.write_text(seal(lab, text.replace(old, lab.hash(content))))


def seal(lab, text):
    """The text of a state.json with the hash that it keeps of itself."""
    state = json.loads(text)
    del state["state_xxh3"]
    state["state_xxh3"] = lab.hash(json.dumps(state, separators=(",", ":")).encode())
    return json.dumps(state, indent=2) + "\n"


class Poison:
    name, title = "poison", "NaN and infinities: code 3, never saved, the last good checkpoint stays"
    counts = 20, 200

    def case(self, lab, rng, folder, number):
        return (self.checkpoint, self.explosion, self.products)[number % 3](lab, rng, folder)

    def judge(self, lab, run, done, last):
        """`last` is the checkpoint that stays, if one was there."""
        if done.code == 0:
            raise Silent(f"code 0: {done.out[-200:]}")
        done.expect(3)
        for checkpoint in sorted((run / "checkpoints").glob("step-*")):
            if checkpoint != last and (bad := not_finite(checkpoint)):
                raise Wrong(f"{checkpoint.name} is saved with {', '.join(bad[:3])}")
        if (run / ".anomaly_type").read_text().strip() != "nan_loss":
            raise Wrong("no .anomaly_type")
        if json.loads((run / "metrics.json").read_text())["end"] != "nan_loss":
            raise Wrong("metrics.json has another end")

    def checkpoint(self, lab, rng, folder):
        """One element of a weight or a moment of a checkpoint."""
        copy(lab.stopped_run(), folder / "runs")
        run = folder / "runs" / "run"
        newest = newest_checkpoint(run)
        path = newest / rng.choice(["model.safetensors", "optimizer.safetensors"])
        table, content = tensors(path)
        name = rng.choice(sorted(n for n, entry in table.items() if entry[0] == "F32" and entry[2] > entry[1]))
        _, begin, end = table[name]
        value = rng.choice(sorted(VALUES))
        at = begin + 4 * rng.randrange((end - begin) // 4)
        content[at:at + 4] = struct.pack("<I", VALUES[value])
        write_hashed(lab, newest, path.name, bytes(content))
        settings = {"train.save_every": rng.choice([1, 3, 100])}
        done = lab.train(folder, "--resume", str(newest), settings=settings)
        what = f"{value} in {name}"
        try:
            if done.code == 1:
                # Refused at the start.
                done.one_error(path.name)
            else:
                self.judge(lab, run, done, newest)
                if newest_checkpoint(run) != newest:
                    raise Wrong(f"latest is {newest_checkpoint(run).name} now")
        except Wrong as error:
            raise type(error)(f"{what}: {error}") from None
        return what

    def explosion(self, lab, rng, folder):
        """A learning rate and a decay with which weights grow without end."""
        settings = {"train.lr": rng.choice([30.0, 100.0]), "train.weight_decay": rng.choice([20.0, 60.0, 100.0]),
                    "train.lr_schedule": "constant", "train.warmup_steps": rng.randrange(5),
                    "train.save_every": rng.choice([1, 2, 5]), "train.eval_every": rng.choice([0, 1]),
                    "train.grad_clip": rng.choice([0, 1]), "train.seed": rng.randrange(1000)}
        done = lab.train(folder, "--run-name=run", settings=settings)
        try:
            self.judge(lab, folder / "runs" / "run", done, None)
        except Wrong as error:
            raise type(error)(f"{settings}: {error}") from None
        return "explosion"

    def products(self, lab, rng, folder):
        """A library whose matmuls begin with NaN from some number on; then a good one."""
        library = lab.once("blas", lambda: lab.compile("poisoned-blas.c", "-ldl"))
        run = folder / "runs" / "run"
        env = {"NSA_POISONED_RANK": str(rng.randrange(2)), "NSA_POISONED_PRODUCT": str(rng.randrange(1, 1500))}
        check = rng.choice([[], ["--check-finite"]])
        settings = {"train.eval_every": 0, "train.final_eval_batches": 1}
        done = lab.train(folder, "--run-name=run", "--nproc=2", f"--blas={library}", *check, env=env,
                         settings=settings)
        what = f"product {env['NSA_POISONED_PRODUCT']} on rank {env['NSA_POISONED_RANK']}"
        try:
            reference = lab.reference(2, **settings)
            if done.code == 0:
                # There were not so many.
                lab.same(run, reference, done)
                return what
            self.judge(lab, run, done, None)
            done = lab.train(folder, "--resume=auto", "--run-name=again", "--nproc=2", settings=settings)
            lab.same(named_run(done.expect(0)), reference, done)
        except Wrong as error:
            raise type(error)(f"{what}: {error}") from None
        return what
