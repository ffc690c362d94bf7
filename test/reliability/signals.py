"""Signals at random times: the exit codes of runtime/Train/README.md, and nothing lost."""

import json
import re
import signal
import time

from lab import Wrong, await_that, named_run, steps_made

STOPS = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP]
KINDS = [*STOPS, signal.SIGUSR1, signal.SIGXFSZ, signal.SIGPIPE]
RANK_SETTINGS = {"train.steps": 48, "train.save_every": 6}


def masks(pid):
    """Signals that a process catches, ignores or blocks, as bits."""
    try:
        with open(f"/proc/{pid}/status") as file:
            found = dict(re.findall(r"^(Sig\w+):\s+([0-9a-f]+)$", file.read(), re.M))
    except OSError:
        return 0
    return sum(int(found.get(key, "0"), 16) for key in ("SigCgt", "SigIgn", "SigBlk"))


def is_ready(pid):
    """Whether a process has begun to handle signals: before, any of them ends it."""
    return masks(pid) >> (signal.SIGTERM - 1) & 1


class Signals:
    name, title = "signals", "signals at random times: the documented codes, nothing lost"
    counts = 24, 240

    def case(self, lab, rng, folder, number):
        kind = KINDS[number % len(KINDS)]
        # A launcher hands on what stops and what asks for a dump.
        ranks = 2 if kind not in KINDS[4:] and rng.random() < 0.2 else 1
        settings = RANK_SETTINGS if ranks > 1 else {}
        options = ["--nproc", ranks] if ranks > 1 else []
        reference = lab.reference(ranks, **settings)
        run = folder / "runs" / "run"
        process = lab.start(folder, "--run-name=run", *options, settings=settings)
        try:
            at = self.await_moment(rng, process, run, reference)
            process.send(kind)
            if rng.random() < 0.3:
                # Some launchers send it twice; within a second that is one Ctrl-C.
                time.sleep(rng.random() * 0.05)
                process.send(kind)
            done = process.wait()
        finally:
            process.stop()
        what = f"{kind.name} {at}{f', {ranks} ranks' if ranks > 1 else ''}"
        try:
            if kind in STOPS:
                self.judge_stop(lab, folder, run, done, reference, options, settings)
            else:
                lab.same(run, reference, done.expect(0))
                if kind == signal.SIGUSR1:
                    self.judge_dumps(run, done)
        except Wrong as error:
            raise type(error)(f"{what}: {error}") from None
        return what

    def await_moment(self, rng, process, run, reference):
        await_that(lambda: is_ready(process.child.pid), "signal handlers", process)
        if rng.random() < 0.3:
            delay = rng.random() * reference["seconds"]
            time.sleep(delay)
            return f"{delay:.3f} s after the start"
        step = rng.randrange(0, reference["step"])
        await_that(lambda: steps_made(run) >= step, f"step {step}", process)
        time.sleep(rng.random() * 0.005)
        return f"after step {step}"

    def judge_stop(self, lab, folder, run, done, reference, options, settings):
        done.expect(0, 4)
        if done.code == 0:
            # It had made its last step.
            return lab.same(run, reference, done)
        if (run / "checkpoints" / "latest").exists():
            if "stopped before the first step" not in done.err:
                if json.loads((run / "metrics.json").read_text())["end"] != "interrupted":
                    raise Wrong("metrics.json has another end")
        elif "stopped before the first step" not in done.err:
            raise Wrong(f"stopped without a checkpoint: {done.tail()}")
        done = lab.train(folder, "--resume=auto", "--run-name=again", *options, settings=settings).expect(0)
        where = named_run(done) if "| id" in done.out else run
        lab.same(where, reference, done)

    def judge_dumps(self, run, done):
        """What a dump says is JSON of its step; one that came too late has none."""
        for path in run.glob("state_dump_*.json"):
            if json.loads(path.read_text())["step"] != int(path.stem.split("_")[-1]):
                raise Wrong(f"{path.name} is of another step")
