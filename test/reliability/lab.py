"""What all rows share: the tools, a tiny model with its data, the results of runs that
nothing disturbed, and how the end of a tool is judged."""

import csv
import ctypes
import hashlib
import json
import os
import pathlib
import re
import shutil
import signal
import struct
import subprocess
import sys
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path += [str(ROOT / "test" / "gpu"), str(ROOT / "test" / "invalid")]

import check  # of test/invalid: what a crash looks like
import jobs  # of test/gpu: heartbeats, settings as options

# No run of the tiny model takes longer than a second or two on a core of its own.
PATIENCE = 120

# The smoke configuration, so small that most of a run is its start.
MODEL = {
    "model.dim": 16, "model.n_layers": 1, "model.n_heads": 2, "model.n_kv_groups": 1,
    "model.d_k": 8, "model.d_v": 8, "nsa.l": 4, "nsa.d": 2, "nsa.l_sel": 4, "nsa.n_sel": 2,
    "nsa.w": 8, "train.seq_len": 16, "train.batch_size": 4, "train.micro_batch": 1,
}
RUN = {
    "train.steps": 24, "train.warmup_steps": 4, "train.save_every": 3, "train.eval_every": 8,
    "train.eval_batches": 1, "train.final_eval_batches": 4, "train.log_every": 4,
    "train.keep_checkpoints": 4,
}


class Wrong(Exception):
    """A case that did not end as it should."""


class Silent(Wrong):
    """Exit code 0 with another result than the undisturbed run's."""


class Crashed(Wrong):
    """A tool that was ended by a signal which nobody sent."""


class Ended:
    """How a tool ended. `sent` are signals that the case sent itself."""

    def __init__(self, tool, code, out, err, sent=()):
        self.tool, self.code, self.out, self.err = tool, code, out, err
        # A launcher tells of signals that its ranks got.
        signals = [-code] if code < 0 else []
        signals += [int(n) for n in re.findall(r"was killed by signal (\d+)", err)]
        stray = [n for n in signals if n not in sent]
        if stray:
            raise Crashed(f"{tool} was ended by {signal.Signals(stray[0]).name}: {self.tail()}")
        if check.CRASH.search(err) or "Traceback" in err:
            raise Crashed(f"{tool} crashed: {self.tail()}")

    def tail(self):
        """The last words, in one line."""
        return " / ".join((self.err.strip() or self.out.strip()).splitlines())[-400:]

    def errors(self):
        """What was wrong, once where several ranks say the same."""
        lines = [re.sub(r"^\[\d+\] ", "", line) for line in self.err.splitlines() if "error:" in line]
        return list(dict.fromkeys(lines))

    def expect(self, *codes):
        if self.code not in codes:
            wanted = " or ".join(map(str, codes))
            raise Wrong(f"{self.tool} ended with code {self.code} instead of {wanted}: {self.tail()}")
        return self

    def one_error(self, *words):
        """One error, with all these words; a tuple is a choice."""
        errors = self.errors()
        if len(errors) != 1:
            raise Wrong(f"{self.tool}: {len(errors)} errors instead of one: {self.tail()}")
        for word in words:
            choice = word if isinstance(word, tuple) else (word,)
            if not any(str(part) in errors[0] for part in choice):
                raise Wrong(f"{self.tool}: the error does not name {' or '.join(map(str, choice))}: {errors[0]}")
        return self


class Process:
    """A tool at work, in a process group of its own."""

    def __init__(self, command, folder, env=None):
        self.tool = pathlib.Path(command[0]).name
        number = len(list(folder.glob("*.out")))
        self.files = [folder / f"{self.tool}-{number}.{end}" for end in ("out", "err")]
        self.sent = set()
        with open(self.files[0], "wb") as out, open(self.files[1], "wb") as err:
            self.child = subprocess.Popen(
                [str(word) for word in command], stdout=out, stderr=err,
                stdin=subprocess.DEVNULL, start_new_session=True,
                env={**os.environ, "OPENBLAS_NUM_THREADS": "1", **(env or {})})

    def running(self):
        return self.child.poll() is None

    def send(self, number):
        self.sent.add(int(number))
        try:
            os.killpg(self.child.pid, number)
        except ProcessLookupError:
            pass

    def texts(self):
        return [path.read_text(errors="replace") for path in self.files]

    def wait(self, limit=PATIENCE):
        try:
            code = self.child.wait(limit)
        except subprocess.TimeoutExpired:
            self.send(signal.SIGKILL)
            self.child.wait()
            raise Wrong(f"{self.tool} does not end within {limit} s: {self.texts()[1][-400:]}") from None
        return Ended(self.tool, code, *self.texts(), self.sent)

    def stop(self):
        """For the end of a case, however it went."""
        if self.running():
            self.send(signal.SIGKILL)
            self.child.wait()


def await_that(condition, what, process=None, limit=PATIENCE):
    """Waits until the condition holds; whether it does before the process ends."""
    end = time.monotonic() + limit
    while not condition():
        if process and not process.running():
            return bool(condition())
        if time.monotonic() > end:
            raise Wrong(f"{what}: not within {limit} s")
        time.sleep(0.002)
    return True


def heartbeats(run, rank=0):
    return jobs.heartbeats(str(run), rank)


def steps_made(run, rank=0, pid=None):
    """Optimizer steps that the heartbeats of a rank, or of a process, tell of; -1 before
    its start."""
    lines = [heartbeat for heartbeat in heartbeats(run, rank) if pid in (None, heartbeat["pid"])]
    return lines[-1]["step"] if lines else -1


class Lab:
    """The tools and what the cases start from. Folders are made once."""

    def __init__(self, tools, scratch):
        self.tools = self.honest = tools
        self.scratch = scratch
        self.lock = threading.RLock()
        self.made = {}
        self.config = ROOT / "configs" / "smoke.yaml"
        self.settings = {**MODEL, **RUN}
        self.artefact = scratch / "model.nsax"
        self.data = scratch / "data"
        model = scratch / "model.mlir"
        self.must("nsa-model", self.config, "-o", model, *jobs.assign(self.settings))
        self.must("nsa-compile", model, "-o", self.artefact)
        self.must("nsa-data", "synth", "--kind=markov", "--order=1", "--vocab=16", "--tokens=20000",
                  "--shard-tokens=5000", "--seed=7", "-o", self.data)
        self.shim = self.compile("faults.c", "-ldl")
        self.hashes = ctypes.CDLL(str(self.compile("hash.c")))
        self.hashes.nsaHash.restype = ctypes.c_ulonglong
        self.hashes.nsaHash.argtypes = [ctypes.c_char_p, ctypes.c_size_t]

    def tool(self, name):
        return self.tools / name

    def must(self, tool, *words):
        """Runs a tool that has to succeed and returns what it printed."""
        done = subprocess.run([str(self.tool(tool)), *map(str, words)], capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{tool} failed:\n{done.stderr}")
        return done.stdout

    def compile(self, source, *libraries):
        """A shared library of the C source beside this file."""
        cache = (ROOT / "build" / "CMakeCache.txt").read_text()
        found = re.search(r"^CMAKE_C_COMPILER:\w+=(.+)$", cache, re.M)
        library = self.scratch / (pathlib.Path(source).stem + ".so")
        subprocess.run([found[1] if found else "cc", "-O2", "-shared", "-fPIC", HERE / source,
                        "-o", library, *libraries], check=True)
        return library

    def once(self, key, make):
        """What `make` gives, made by the first case that asks for it."""
        with self.lock:
            if key not in self.made:
                tools, self.tools = self.tools, self.honest
                try:
                    self.made[key] = make()
                finally:
                    self.tools = tools
            return self.made[key]

    def hash(self, data):
        return f"{self.hashes.nsaHash(bytes(data), len(data)):016x}"

    # --- training ------------------------------------------------------------

    def command(self, folder, *options, settings=None, artefact=None, data=None):
        """nsa-train, for runs below `folder`/runs."""
        settings = dict(settings or {})
        words = settings.pop("compile", "")
        if (sharing := settings.get("train.context_parallel", 1)) > 1:
            words += f" --context-parallel={sharing}"
        artefact = artefact or self.artefact_of(words)
        return [self.tool("nsa-train"), artefact, "--config", self.config,
                "--data", data or self.data, "--out-dir", folder / "runs", "--no-progress", "--threads=1",
                *jobs.assign({**self.settings, **settings}), *options]

    def artefact_of(self, words):
        """The program, compiled with these options."""
        def make():
            made = self.scratch / f"model-{len(self.made)}.nsax"
            self.must("nsa-compile", self.artefact.with_suffix(".mlir"), "-o", made, "--no-forward", *words.split())
            return made
        return self.once(("artefact", words), make) if words else self.artefact

    def start(self, folder, *options, env=None, **changes):
        return Process(self.command(folder, *options, **changes), folder, env)

    def train(self, folder, *options, env=None, limit=PATIENCE, **changes):
        return self.start(folder, *options, env=env, **changes).wait(limit)

    def reference(self, ranks=1, **settings):
        """The result of a run that nothing disturbs."""
        def make():
            folder = self.scratch / f"reference-{len(self.made)}"
            folder.mkdir()
            options = ["--nproc", ranks] if ranks > 1 else []
            begin = time.monotonic()
            done = self.train(folder, "--run-name=run", *options, settings=settings)
            if done.code != 0:
                sys.exit(f"the undisturbed run failed:\n{done.err}")
            found = result(folder / "runs" / "run")
            found["seconds"] = time.monotonic() - begin
            return found
        return self.once(("reference", ranks, *sorted(settings.items())), make)

    def same(self, run, reference, done):
        """Holds a run that ended with code 0 to the undisturbed one."""
        try:
            found = result(run)
        except (OSError, ValueError, KeyError) as error:
            raise Silent(f"code 0 without a result in {run}: {error}; {done.tail()}") from None
        for what in ("step", "weights", "losses", "validation", "metrics"):
            if found[what] != reference[what]:
                raise Silent(f"code 0 with other {what} than the undisturbed run: "
                             f"{found[what]} instead of {reference[what]}"[:500])

    def stopped_run(self):
        """A run with four checkpoints that stopped in the middle."""
        def make():
            folder = self.scratch / "stopped"
            folder.mkdir()
            self.train(folder, "--run-name=run", "--stop-after=12").expect(0)
            return folder / "runs"
        return self.once("stopped", make)


def rows_of(path, columns):
    with open(path) as file:
        return [tuple(row[:columns]) for row in csv.reader(file)]


def newest_checkpoint(run):
    name = (run / "checkpoints" / "latest").read_text().strip()
    return run / "checkpoints" / name


# What differs between two runs of the same bits.
MEASURED = ("seconds", "step_seconds", "data_seconds", "save_seconds", "sample_seconds", "toks_per_s", "mfu", "memory_peak",
            "checkpoint")


def result(run):
    """What a finished run is worth: weights, moments, losses and metrics."""
    folder = newest_checkpoint(run)
    weights = hashlib.sha256()
    for path in sorted(folder.glob("*.safetensors")):
        weights.update(path.name.encode() + path.read_bytes())
    metrics = json.loads((run / "metrics.json").read_text())
    return {
        "step": json.loads((folder / "state.json").read_text())["step"],
        "weights": weights.hexdigest(),
        # Without the speed.
        "losses": rows_of(run / "training.csv", 4),
        "validation": rows_of(run / "val.csv", 3),
        "metrics": {k: v for k, v in metrics.items() if k not in MEASURED},
    }


def named_run(done):
    """The run directory that nsa-train named."""
    found = re.search(r"^run (\S+) \| id", done.out, re.M)
    if not found:
        raise Wrong(f"{done.tool} names no run: {done.tail()}")
    return pathlib.Path(found[1])


def tensors(path):
    """name -> (dtype, first byte, one past the last) of a safetensors file, and its bytes."""
    data = bytearray(path.read_bytes())
    size, = struct.unpack_from("<Q", data)
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    return {name: (entry["dtype"], *(8 + size + at for at in entry["data_offsets"]))
            for name, entry in header.items()}, data


def not_finite(checkpoint):
    """Names of tensors of a checkpoint with a NaN or an infinity."""
    bad = []
    for path in sorted(checkpoint.glob("*.safetensors")):
        table, data = tensors(path)
        for name, (dtype, begin, end) in table.items():
            if dtype == "F32" and any(word & 0x7F800000 == 0x7F800000
                                      for word, in struct.iter_unpack("<I", data[begin:end])):
                bad.append(f"{path.name}: {name}")
    return bad


def copy(source, target):
    shutil.copytree(source, target)
    return target
