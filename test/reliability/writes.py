"""Writes that fail: the run goes on or ends with one error, and loses no checkpoint."""

import errno
import os
import re
import subprocess

from lab import Ended, Process, Wrong, named_run, newest_checkpoint, result

ERRORS = {
    "open": [errno.ENOSPC, errno.EACCES, errno.EMFILE, errno.EROFS],
    "write": [errno.ENOSPC, errno.EIO, errno.EFBIG, errno.EDQUOT],
    "short": [0],
    "fsync": [errno.EIO, errno.ENOSPC],
    "rename": [errno.ENOSPC, errno.EIO, errno.EROFS],
    "mkdir": [errno.ENOSPC, errno.EIO],
    "unlink": [errno.EIO],
    "truncate": [errno.EIO, errno.EFBIG],
}
TMPFS = """
mount -t tmpfs -o size={size} none "{runs}" || exit 99
{first} > "{folder}/full.out" 2> "{folder}/full.err"; echo $? > "{folder}/full.code"
cp -r "{runs}" "{folder}/full"
mount -o remount,size=256m "{runs}"
{second} > "{folder}/again.out" 2> "{folder}/again.err"; echo $? > "{folder}/again.code"
cp -r "{runs}" "{folder}/after"
"""


def may_mount():
    return subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "none", "/mnt"],
                          capture_output=True).returncode == 0


def saved_steps(done):
    return [int(n) for n in re.findall(r"^saved \S+/step-(\d+)$", done.out, re.M)]


class Writes:
    name, title = "writes", "failing writes: the run goes on or ends with one error, no checkpoint is lost"
    counts = 38, 373

    def case(self, lab, rng, folder, number):
        kind = number % 10
        if kind == 7:
            return self.limited(lab, rng, folder)
        if kind == 8 and lab.once("may mount", may_mount):
            return self.full_disk(lab, rng, folder)
        if kind == 9:
            return self.other_tool(lab, rng, folder)
        return self.training(lab, rng, folder)

    # --- the preloaded library -----------------------------------------------

    def counts_of(self, lab, name, command, under):
        """How often a command makes each kind of call."""
        def make():
            folder = lab.scratch / f"counts-{name}"
            folder.mkdir()
            log = folder / "log"
            Process(command(folder), folder, self.shim(lab, folder / under, "count", log)).wait().expect(0)
            lines = [line.split() for line in log.read_text().splitlines()]
            return {kind: int(count) for kind, count in lines if int(count) and kind in ERRORS}
        return lab.once(("counts", name), make)

    def shim(self, lab, under, call, log, **more):
        return {"LD_PRELOAD": str(lab.shim), "NSA_FAULT_UNDER": str(under), "NSA_FAULT_LOG": str(log),
                "NSA_FAULT_CALL": call, **{f"NSA_FAULT_{key}": str(value) for key, value in more.items()}}

    def faulty(self, lab, rng, name, command, under, folder):
        """Runs a command one of whose calls fails: what failed, and its end."""
        counts = self.counts_of(lab, name, command, under)
        log = folder / "log"
        for _ in range(20):
            call = rng.choice(sorted(counts))
            number = rng.randrange(1, counts[call] + 1)
            more = {"N": number, "ERRNO": rng.choice(ERRORS[call])}
            if call != "short" and rng.random() < 0.4:
                more["FOREVER"] = 1
            env = self.shim(lab, folder / under, call, log, **more)
            done = Process(command(folder), folder, env).wait()
            if log.exists():
                what = f"{call} {number} {errno.errorcode.get(more['ERRNO'], '')}{' and all after' if 'FOREVER' in more else ''}"
                return call, what, done
            subprocess.run(["rm", "-rf", folder / under], check=True)
        raise Wrong("no call failed in 20 runs")

    def training(self, lab, rng, folder):
        command = lambda where: lab.command(where, "--run-name=run")
        call, what, done = self.faulty(lab, rng, "train", command, "runs", folder)
        try:
            self.judge(lab, folder / "runs" / "run", done, must_go_on=call == "short")
            self.go_on(lab, folder, folder / "runs" / "run", done)
        except Wrong as error:
            raise type(error)(f"{what}: {error}") from None
        return what

    def judge(self, lab, run, done, must_go_on=False):
        done.expect(*([0] if must_go_on else [0, 1]))
        if done.code == 1:
            done.one_error()
        elif "warning" in done.out + done.err:
            # A table or a heartbeat may be short where the run said so; weights may not.
            found, wanted = result(run), lab.reference()
            if found["weights"] != wanted["weights"]:
                raise Wrong("other weights after a warning")
        else:
            lab.same(run, lab.reference(), done)
        saved = saved_steps(done)
        if saved:
            newest = int(newest_checkpoint(run).name.split("-")[1])
            if newest < saved[-1]:
                raise Wrong(f"step {saved[-1]} was saved, but latest is {newest}")

    def go_on(self, lab, folder, run, before):
        """Where writes work again, the run ends with its bits."""
        if before.code == 0:
            return
        done = lab.train(folder, "--resume=auto", "--run-name=again")
        done.expect(0)
        where = named_run(done) if "| id" in done.out else run
        saved = saved_steps(before)
        begun = re.search(r"resuming from \S+ at step (\d+)", done.out)
        if saved and (not begun or int(begun[1]) < saved[-1]):
            raise Wrong(f"step {saved[-1]} was saved, resuming begins at {begun[1] if begun else 0}: {done.tail()}")
        lab.same(where, lab.reference(), done)

    # --- limits of the system ------------------------------------------------

    def limited(self, lab, rng, folder):
        """Files that may not grow beyond a size: EFBIG, and SIGXFSZ with it."""
        largest = lab.once("largest file", lambda: max(
            path.stat().st_size for path in self.reference_run(lab).rglob("*") if path.is_file()))
        size = rng.randrange(1, largest)
        words = [str(w) for w in lab.command(folder, "--run-name=run")]
        done = Process(["prlimit", f"--fsize={size}", *words], folder).wait()
        done.tool = "nsa-train"
        try:
            self.judge(lab, folder / "runs" / "run", done)
            self.go_on(lab, folder, folder / "runs" / "run", done)
        except Wrong as error:
            raise type(error)(f"files of at most {size} bytes: {error}") from None
        return f"RLIMIT_FSIZE {size}"

    def reference_run(self, lab):
        folder = lab.scratch / "sizes"
        folder.mkdir()
        lab.train(folder, "--run-name=run").expect(0)
        return folder / "runs" / "run"

    def full_disk(self, lab, rng, folder):
        """A small file system of its own, which is made larger afterwards."""
        runs = folder / "runs"
        runs.mkdir()
        size = rng.randrange(8, 400) * 1024
        quote = lambda words: " ".join(f"'{word}'" for word in words)
        script = TMPFS.format(
            size=size, runs=runs, folder=folder, first=quote(lab.command(folder, "--run-name=run")),
            second=quote(lab.command(folder, "--resume=auto", "--run-name=again")))
        subprocess.run(["unshare", "-m", "sh", "-c", script], timeout=240,
                       env={**os.environ, "OPENBLAS_NUM_THREADS": "1"})
        ends = [Ended("nsa-train", int((folder / f"{name}.code").read_text()),
                      *((folder / f"{name}.{end}").read_text() for end in ("out", "err")))
                for name in ("full", "again")]
        try:
            self.judge(lab, folder / "full" / "run", ends[0])
            if ends[0].code == 1:
                ends[1].expect(0)
                name = named_run(ends[1]).name
                lab.same(folder / "after" / name, lab.reference(), ends[1])
        except Wrong as error:
            raise type(error)(f"a disk of {size} bytes: {error}") from None
        return f"a disk of {size} bytes"

    # --- the other tools -----------------------------------------------------

    def other_tool(self, lab, rng, folder):
        """Either what they write is whole, or they say that it is not."""
        model = lab.scratch / "model.mlir"
        commands = {
            "nsa-compile": ["-o", "OUT/m.nsax", model],
            "nsa-model": [lab.config, "-o", "OUT/m.mlir"],
            "nsa-opt": [model, "-o", "OUT/m.mlir"],
            "nsa-data": ["synth", "--vocab=16", "--tokens=20000", "--shard-tokens=5000", "-o", "OUT/data"],
            "nsa-run": [lab.artefact, "--entry=init", "--output-dir", "OUT/arrays"],
        }
        tool = rng.choice(sorted(commands))

        def command(where):
            (where / "out").mkdir(exist_ok=True)
            return [lab.tool(tool), *(str(w).replace("OUT", str(where / "out")) for w in commands[tool])]

        call, what, done = self.faulty(lab, rng, tool, command, "out", folder)
        whole = self.files(lab.scratch / f"counts-{tool}" / "out")
        left = self.files(folder / "out")
        done.expect(*([0] if call == "short" else [0, 1]))
        if done.code == 1:
            done.one_error()
            # What is there under a final name is whole.
            for name, content in left.items():
                if name in whole and content != whole[name] and tool != "nsa-run":
                    raise Wrong(f"{tool}, {what}: leaves a part of {name}")
        elif any(left.get(name) != content for name, content in whole.items()):
            raise Wrong(f"{tool}, {what}: code 0 without its output: {done.tail()}")
        return f"{tool}: {what}"

    def files(self, folder):
        return {str(path.relative_to(folder)): path.read_bytes()
                for path in sorted(folder.rglob("*")) if path.is_file()}
