"""Ranks that are killed or stopped: the others end with code 5, and a restart goes on."""

import os
import re
import signal
import time

import jobs
from lab import Wrong, await_that, heartbeats, named_run, steps_made

RANK_SECONDS = 2
# From the signal to the end of all, with a machine that is busy with other things.
KILL_LIMIT, FREEZE_LIMIT = 40, 60
# Steps of ranks are short too: enough of them for a signal in between.
SETTINGS = {"train.steps": 48, "train.save_every": 6}


def is_alive(pid):
    """Zombies are not."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def silent_ranks(text):
    """Ranks that are said not to heartbeat any more: with them, others may have waited too long
    for a third one that waits for them."""
    return {int(rank) for rank in re.findall(r"rank (\d+) did not come,[^;\]]*silent for", text)}


class Ranks:
    name, title = "ranks", "killed and stopped ranks: the others end with code 5, a restart gives the bits"
    counts = 8, 80

    def case(self, lab, rng, folder, number):
        ranks = 4 if number % 4 == 3 else 2
        freeze = number % 2 == 1
        victim = rng.randrange(ranks)
        way, more = [("", {}), (", sequences of two", {"train.context_parallel": 2}),
                     *((f", with parts of {kind}", {"compile": f"--shard={kind} --shard-ranks={ranks}"})
                       for kind in ("parameters", "optimizer"))][number // 2 % 4]
        settings = {**SETTINGS, **more}
        what = f"rank {victim} of {ranks} {'stopped' if freeze else 'killed'}{way}"
        try:
            for attempt in range(10):
                name = f"run{attempt}"
                done = self.disturb(lab, rng, folder, name, ranks, victim, freeze, settings)
                if done:
                    break
            else:
                raise Wrong("the run was faster than the signal ten times")
            done.expect(5)
            done = lab.train(folder, "--resume=auto", "--run-name=again", "--nproc", ranks,
                             settings=settings)
            run = named_run(done.expect(0))
            lab.same(run, lab.reference(ranks, **settings), done.expect(0))
        except Wrong as error:
            raise type(error)(f"{what}: {error}") from None
        return what

    def disturb(self, lab, rng, folder, name, ranks, victim, freeze, settings):
        """How the run ended after the signal; nothing if it was over before."""
        options = ["--nproc", ranks, f"--run-name={name}"]
        options += [f"--rank-seconds={RANK_SECONDS}"] if freeze else []
        process = lab.start(folder, *options, settings=settings)
        run = folder / "runs" / name
        step = rng.randrange(0, SETTINGS["train.steps"] - 8)
        try:
            await_that(lambda: all(steps_made(run, r) >= step for r in range(ranks)), f"step {step}", process)
            pids = [heartbeats(run, r)[-1]["pid"] for r in range(ranks)]
            time.sleep(rng.random() * 0.005)
            if steps_made(run, victim) == SETTINGS["train.steps"] or not is_alive(pids[victim]):
                process.wait()
                return None
            process.sent.add(int(signal.SIGKILL))
            os.kill(pids[victim], signal.SIGSTOP if freeze else signal.SIGKILL)
            limit = FREEZE_LIMIT if freeze else KILL_LIMIT
            await_that(lambda: not any(is_alive(pid) for pid in pids), "the end of all ranks", limit=limit)
            done = process.wait()
        finally:
            process.stop()
        if done.code == 0:
            # It had made its last step between the look and the signal.
            lab.same(run, lab.reference(ranks, **settings), done)
            return None
        text = done.out + done.err
        if not jobs.blames(text, victim, ranks) and silent_ranks(text) != {victim}:
            raise Wrong(f"rank {victim} is not blamed alone: {done.tail()}")
        return done
