"""Kills at random times: what comes after is bit for bit what it would have been."""

import re
import signal
import time

from lab import Process, Wrong, await_that, copy, newest_checkpoint, steps_made


def kill_in_run(lab, rng, process, run):
    """Kills a training process at a random time; False if it was faster."""
    # Some time after a step, or after the start.
    if rng.random() < 0.7:
        step = rng.randrange(lab.settings["train.steps"])
        await_that(lambda: steps_made(run, pid=process.child.pid) >= step, f"step {step}", process)
        time.sleep(rng.random() * 0.01)
    else:
        time.sleep(rng.random() * lab.reference()["seconds"])
    process.send(signal.SIGKILL)
    return process.child.wait() == -signal.SIGKILL


def resume(lab, rng, folder, run):
    """Starts what continues a run, and its run directory."""
    if (run / "checkpoints" / "latest").exists():
        checkpoint = newest_checkpoint(run)
        if not (checkpoint / "state.json").exists():
            raise Wrong(f"latest names {checkpoint.name}, which has no state.json")
        how = rng.choice(["auto", str(run), str(checkpoint)])
        return lab.start(folder, "--resume", how), run
    if list((run / "checkpoints").glob("step-*")):
        # Killed between the first checkpoint and its entry in `latest`.
        return lab.start(folder, "--resume", rng.choice(["auto", str(run)])), run
    # Nothing is saved yet: a new run, which says so.
    again = run.with_name(run.name + "-again")
    return lab.start(folder, "--resume=auto", "--run-name", again.name), again


class Kills:
    name, title = "kills", "killed runs: resumed, the bits of one that was not"
    counts = 20, 200

    def case(self, lab, rng, folder, number):
        kind = number % 10
        if kind == 8:
            return self.data(lab, rng, folder)
        if kind == 9:
            return self.artefact(lab, rng, folder)
        return self.training(lab, rng, folder)

    def training(self, lab, rng, folder):
        """One to three kills in a row."""
        run = folder / "runs" / "run"
        process = lab.start(folder, "--run-name=run")
        wanted, made = rng.choice([1, 1, 2, 3]), 0
        while made < wanted:
            if kill_in_run(lab, rng, process, run):
                made += 1
                process, run = resume(lab, rng, folder, run)
            elif made == 0:
                # It was faster: another one, elsewhere.
                folder = folder / "new"
                folder.mkdir()
                run = folder / "runs" / "run"
                process = lab.start(folder, "--run-name=run")
            else:
                break
        done = process.wait()
        # The kill may have come between the result and the end.
        if done.code != 1 or "nothing to resume" not in done.err:
            done.expect(0)
            if run.name.endswith("-again") and not re.search("resuming from|starting at step 0", done.out):
                raise Wrong(f"starts a new run in silence: {done.tail()}")
        lab.same(run, lab.reference(), done)
        return f"{made} kills"

    def interrupted(self, command, folder, seconds, rng):
        """A tool that is killed before it ends, if it is slow enough."""
        process = Process(command, folder)
        time.sleep(rng.random() * seconds)
        process.send(signal.SIGKILL)
        process.child.wait()

    def data(self, lab, rng, folder):
        """The old data set stays until the new one is complete."""
        data = copy(lab.data, folder / "data")
        old = (data / "manifest.json").read_bytes()
        words = ["synth", "--kind=markov", "--order=1", "--vocab=16", "--tokens=30000", "--shard-tokens=4000",
                 "--seed=8", "--overwrite", "-o", data]
        new = lab.once("new data", lambda: self.new_data(lab, words))
        self.interrupted([lab.tool("nsa-data"), *words], folder, new[1], rng)
        Process([lab.tool("nsa-data"), "info", data], folder).wait().expect(0)
        if (data / "manifest.json").read_bytes() not in (old, new[0]):
            raise Wrong("the manifest is neither the old nor the new one")
        Process([lab.tool("nsa-data"), *words], folder).wait().expect(0)
        if (data / "manifest.json").read_bytes() != new[0]:
            raise Wrong("packing again gives another manifest")
        return "nsa-data"

    def new_data(self, lab, words):
        begin = time.monotonic()
        lab.must("nsa-data", *words[:-1], lab.scratch / "new-data")
        return (lab.scratch / "new-data" / "manifest.json").read_bytes(), time.monotonic() - begin

    def artefact(self, lab, rng, folder):
        """The file that is there stays whole."""
        path = folder / "model.nsax"
        path.write_bytes(lab.artefact.read_bytes())
        model, seconds = lab.once("another model", lambda: self.another_model(lab))
        self.interrupted([lab.tool("nsa-compile"), model, "-o", path], folder, seconds, rng)
        Process([lab.tool("nsa-dump"), path], folder).wait().expect(0)
        if path.read_bytes() not in (lab.artefact.read_bytes(), model.with_suffix(".nsax").read_bytes()):
            raise Wrong("the artefact is neither the old nor the new one")
        return "nsa-compile"

    def another_model(self, lab):
        model = lab.scratch / "another.mlir"
        lab.must("nsa-model", lab.config, "-o", model, "--set", "model.dim=32")
        begin = time.monotonic()
        lab.must("nsa-compile", model, "-o", model.with_suffix(".nsax"))
        return model, time.monotonic() - begin
