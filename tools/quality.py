#!/usr/bin/env python3
"""Compares attention by training whole models: arms, lengths and pairs of seeds.

  tools/quality.py prepare PLAN.yaml FOLDER [--arms NAME...]
      compiles every arm at every length; needs the compiler, not a GPU
  tools/quality.py run PLAN.yaml FOLDER --csv docs/measured/quality.csv [--minutes 9] [--jobs 2]
      trains the open rows of the plan, in its order, and adds a line for each that is
      finished; needs a GPU, not the compiler. Rows that share it have no `seconds`

The csv is the state: a row that is there is not trained again, and a run that was cut
goes on from its checkpoint where FOLDER still has it, else from the beginning. Rows are
told apart by length, arm, seed, tokens and the hash of the corpus; only rows of one
corpus count beside each other. Next to the csv, NAME-positions.csv has the losses by
position and NAME-curves.csv the training loss (means of 1/40 of the run).

The corpus is bytes: the Python sources of installed packages, each file a document.
Whole packages are held out, and files that training has as well are left out there.

A plan has `corpus` (limit of training bytes), `roots` (folders of packages, if not those
of this Python), `model` (a configuration), `arms` (a name: changes of the configuration,
`stages`, `rewrite`, what stands in place of parts of the model's text, and `from`, the
arm, length and steps of the row whose weights it begins with, of the same seed, trained
before in FOLDER) and `rows` (length, arms, seeds, steps).
"""
import argparse
import concurrent.futures
import csv
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../test/gpu"))
import jobs  # noqa: E402

KEYS = ("length", "arm", "seed", "tokens", "corpus")
COLUMNS = ("length", "arm", "seed", "tokens", "parameters", "loss", "passes_1.0_at", "seconds",
           "card", "corpus")
# One package in so many is held out.
HELD_OUT = 24
# The tables are of all rows that train at once.
NOTES = threading.Lock()


def read_plan(path):
    try:
        import yaml
    except ImportError:
        jobs.fail("plans are read with the package 'pyyaml' of PyPI, which is not installed")
    with open(path) as file:
        plan = yaml.safe_load(file)
    for row in plan["rows"]:
        for arm in row["arms"]:
            if arm not in plan["arms"]:
                jobs.fail(f"{path}: a row has the arm '{arm}', the plan {', '.join(plan['arms'])}")
    return plan


# In place of the compiler where there is none: what `prepare` has compiled.
STAND_INS = {
    "nsa-model": """#!/bin/sh
stage=1
for word; do case $word in --stage=*) stage=${word#--stage=};; esac; done
exec cat "$NSA_PREPARED.$stage.mlir"
""",
    "nsa-compile": """#!/bin/sh
for text in "$NSA_PREPARED".*.mlir; do
  cmp -s "$1" "$text" || continue
  [ "$2" = --estimate ] && exec cat "${text%.mlir}.estimate"
  exec cp "${text%.mlir}.nsax" "$3"
done
echo "nsa-compile: error: nothing was prepared for $1" >&2
exit 1
""",
}


def name(arm, length):
    return f"{arm}-{length}"


def configuration(plan, arm, row, **values):
    """The configuration of an arm in a row, by sections; `stages` are shares of the steps."""
    batch = row.get("batch", 1)
    settings = {"data.tokenizer": "shards", "train.steps": row["steps"], "train.seq_len": row["length"],
                "train.batch_size": batch, "train.micro_batch": batch} | plan["model"] | plan["arms"][arm] | values
    stages = settings.pop("stages", None)
    for key in ("rewrite", "from"):
        settings.pop(key, None)
    sections = {}
    for key, value in settings.items():
        section, key = key.split(".")
        sections.setdefault(section, {})[key] = value
    if stages:
        del sections["train"]["steps"]
        first = stages[0]["seq_len"]
        sections["train"] |= {key: batch * row["length"] // first if key != "seq_len" else first
                              for key in ("seq_len", "batch_size", "micro_batch")}
        sections["stages"] = []
        for stage in stages:
            length = stage.get("seq_len", row["length"])
            count = batch * row["length"] // length
            sections["stages"].append({"steps": round(stage["share"] * row["steps"]), "seq_len": length,
                                       "batch_size": count, "micro_batch": count})
    return sections


def write(path, text):
    with open(path, "w") as file:
        file.write(text)


def rewrite(path, parts):
    with open(path) as file:
        text = file.read()
    for part, instead in parts.items():
        if part not in text:
            jobs.fail(f"{path}: there is no '{part}' to rewrite")
        text = text.replace(part, instead)
    write(path, text)


def prepare(args, plan):
    tool = os.path.join(args.build, "bin", "nsa-{}").format
    shutil.copy(tool("train"), args.folder)
    for program, text in STAND_INS.items():
        write(os.path.join(args.folder, program), text)
        os.chmod(os.path.join(args.folder, program), 0o755)
    for row in plan["rows"]:
        for arm in args.arms or row["arms"]:
            base = os.path.join(args.folder, name(arm, row["length"]))
            if arm not in row["arms"] or os.path.exists(base + ".1.nsax"):
                continue
            values = configuration(plan, arm, row)
            write(base + ".yaml", json.dumps(values))
            for stage in range(1, 1 + len(values.get("stages", [1]))):
                path = f"{base}.{stage}"
                jobs.call(tool("model"), base + ".yaml", "-o", path + ".mlir",
                          *([f"--stage={stage}"] if stage > 1 else []))
                rewrite(path + ".mlir", plan["arms"][arm].get("rewrite", {}))
                compiler = [tool("compile"), path + ".mlir", "--target", args.target, "--precision", values["runtime"]["precision"]]
                jobs.call(*compiler, "-o", path + ".nsax", "--no-forward", "--allow-slow-path=spill,unfused")
                write(path + ".estimate", jobs.call(*compiler, "--estimate"))
            print(f"prepared {os.path.basename(base)}", flush=True)


def sources(roots):
    """Python files by package, in a fixed order."""
    for root in roots:
        for package in sorted(os.listdir(root)):
            if package.startswith((".", "__")) or package == "site-packages":
                continue
            path = os.path.join(root, package)
            files = [path] if package.endswith(".py") else sorted(
                os.path.join(folder, file) for folder, _, names in os.walk(path) for file in names
                if file.endswith(".py"))
            yield package.removesuffix(".py"), files


def make_corpus(folder, limit, roots):
    """Writes a split each as llm.c has them; returns their hash."""
    import numpy
    documents = {"val": {}, "train": {}}
    for package, files in sources(dict.fromkeys(roots)):
        digest = hashlib.sha256(package.encode()).digest()
        part = documents["val" if digest[0] % HELD_OUT == 0 else "train"]
        for path in files:
            with open(path, "rb") as file:
                text = file.read()
            if text and b"\0" not in text:
                part.setdefault(hashlib.sha256(text).digest(), text)
    for digest in documents["train"]:
        documents["val"].pop(digest, None)
    whole = hashlib.sha256()
    os.makedirs(folder, exist_ok=True)
    for part, texts in documents.items():
        data = b"\0".join(texts.values())[:limit if part == "train" else limit // 20] + b"\0"
        whole.update(data)
        header = numpy.zeros(256, numpy.int32)
        header[:3] = 20240520, 1, len(data)
        with open(os.path.join(folder, f"corpus_{part}_000000.bin"), "wb") as file:
            file.write(header.tobytes())
            numpy.frombuffer(data, numpy.uint8).astype(numpy.uint16).tofile(file)
        print(f"corpus: {part} {len(data)} bytes of {len(texts)} files", flush=True)
    return whole.hexdigest()[:12]


def corpus(folder, plan):
    roots = plan.get("roots") or [sysconfig.get_path("purelib"), sysconfig.get_path("stdlib")]
    note = os.path.join(folder, "hash")
    if not os.path.exists(note):
        write(note, make_corpus(folder, plan["corpus"], roots))
    with open(note) as file:
        return file.read()


def read_csv(path):
    if not os.path.exists(path):
        return []
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def append_csv(path, columns, rows):
    new = not os.path.exists(path)
    with open(path, "a", newline="") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerows(rows)


def means(losses, count):
    """The mean of each of `count` equal parts."""
    edges = [len(losses) * i // count for i in range(count + 1)]
    return [sum(losses[a:b]) / (b - a) for a, b in zip(edges, edges[1:]) if b > a]


def passes(losses, level, width=100):
    """The first step at which the mean of the last `width` losses is below `level`."""
    total = 0.0
    for i, loss in enumerate(losses):
        total += loss - (losses[i - width] if i >= width else 0)
        if i >= width - 1 and total / width < level:
            return i + 1
    return None


def note(args, key, directory, seconds):
    """Adds what a finished run has measured to the three tables."""
    with open(os.path.join(directory, "metrics.json")) as file:
        metrics = json.load(file)
    with open(os.path.join(directory, "env.json")) as file:
        environment = json.load(file)
    with open(os.path.join(directory, "eval.jsonl")) as file:
        positions = json.loads(file.read().splitlines()[-1]).get("positions", [])
    losses = [float(row["loss"]) for row in jobs.rows(directory)]
    per_step = key["tokens"] // len(losses)
    first = passes(losses, 1.0)
    card = metrics.get("device") or environment.get("gpu") or environment.get("device", "")
    base, end = os.path.splitext(args.csv)
    append_csv(args.csv, COLUMNS, [key | {
        "parameters": metrics.get("parameters", ""), "loss": f"{metrics['val_loss']:.5f}",
        "passes_1.0_at": first * per_step if first else "", "seconds": f"{seconds:.0f}" if seconds else "", "card": card}])
    append_csv(base + "-positions" + end, KEYS + ("last", "loss"), [
        key | {"last": at["last"], "loss": f"{at['loss']:.5f}"} for at in positions])
    curve = means(losses, 40)
    append_csv(base + "-curves" + end, KEYS + ("at", "loss"), [
        key | {"at": key["tokens"] * (i + 1) // len(curve), "loss": f"{loss:.5f}"}
        for i, loss in enumerate(curve)])


def label_of(row, arm, seed):
    return f"{name(arm, row['length'])}-{seed}-{row['steps']}"


def begins(arm, seed):
    """The row whose weights an arm begins with, if there is one."""
    return "from" in arm and label_of(arm["from"], arm["from"]["arm"], seed)


def train(args, plan, row, key, until, before=None):
    """One row, or as much of it as there is time for, from the weights of the row `before`;
    false if it failed."""
    runs = os.path.join(args.folder, "runs")
    label = label_of(row, key["arm"], key["seed"])
    directory = os.path.join(runs, label)
    begin = ["--run-name", label]
    if before:
        weights = os.path.join(runs, before)
        if not os.path.exists(os.path.join(weights, "metrics.json")):
            print(f"{label}: left out, {before} was not trained in {args.folder}", flush=True)
            return True
        begin += ["--init-from", weights, "--init-partial"]
    earlier, seconds = directory + ".seconds", 0
    if os.path.isdir(os.path.join(directory, "checkpoints")):
        begin = ["--resume", directory]
        # Of a run that was cut in its last validation: it is made again.
        if os.path.exists(os.path.join(directory, "metrics.json")):
            os.remove(os.path.join(directory, "metrics.json"))
        if os.path.exists(earlier):
            with open(earlier) as file:
                seconds = float(file.read())
    else:
        shutil.rmtree(directory, ignore_errors=True)
    write(directory + ".yaml", json.dumps(configuration(plan, key["arm"], row, **{
        "train.seed": key["seed"], "train.eval_every": 0, "train.save_every": 0, "train.save_minutes": 0,
        "train.sample_bytes": 0, "train.log_every": 1000, "train.out_dir": runs,
        **dict.fromkeys(("train.eval_batches", "train.final_eval_batches"), plan.get("batches", 64))})))
    environment = os.environ | {"XDG_CACHE_HOME": os.path.join(args.folder, "cache"),
                                "NSA_PREPARED": os.path.join(args.folder, name(key["arm"], key["length"]))}
    began = time.time()
    with open(directory + ".log", "a") as log:
        process = subprocess.Popen(
            [os.path.join(args.folder, "nsa-train"), directory + ".yaml", "--no-progress", *begin,
             "--data", os.path.join(args.folder, "corpus"), *(["--blas", args.blas] if args.blas else [])],
            stdout=log, stderr=subprocess.STDOUT, env=environment)
        try:
            code = process.wait(max(1, until - time.time()))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGTERM)
            process.wait()
            code = None
    seconds += time.time() - began
    print(f"{label}: {'cut' if code is None else code}, {seconds:.0f} s", flush=True)
    write(earlier, str(seconds))
    if code:
        with open(directory + ".log") as log:
            print("".join(log.readlines()[-5:]), flush=True)
        return False
    if code == 0:
        with NOTES:
            note(args, key, directory, seconds if args.jobs == 1 else None)
        if not any(label == begins(arm, key["seed"]) for arm in plan["arms"].values()):
            shutil.rmtree(os.path.join(directory, "checkpoints"), ignore_errors=True)
    return True


def run(args, plan):
    until = time.time() + 60 * args.minutes
    os.makedirs(os.path.join(args.folder, "runs"), exist_ok=True)
    text = corpus(os.path.join(args.folder, "corpus"), plan)
    done = {tuple(row[key] for key in KEYS) for row in read_csv(args.csv)}

    rows = {}

    def train_in_time(row, key):
        before = begins(plan["arms"][key["arm"]], key["seed"])
        # Rows that come first in the plan are under way.
        if before in rows:
            rows[before].result()
        return time.time() >= until - 20 or train(args, plan, row, key, until, before)

    pool = concurrent.futures.ThreadPoolExecutor(args.jobs)
    for row in plan["rows"]:
        for seed in row["seeds"]:
            for arm in row["arms"]:
                key = {"length": row["length"], "arm": arm, "seed": seed, "corpus": text,
                       "tokens": row["steps"] * row["length"] * row.get("batch", 1)}
                if tuple(str(key[name]) for name in KEYS) in done or (args.arms and arm not in args.arms):
                    continue
                rows[label_of(row, arm, seed)] = pool.submit(train_in_time, row, key)
    pool.shutdown()
    failed = sum(not row.result() for row in rows.values())
    if failed:
        jobs.fail(f"{failed} runs failed")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for command in (prepare, run):
        sub = commands.add_parser(command.__name__)
        sub.add_argument("plan")
        sub.add_argument("folder")
        sub.add_argument("--arms", nargs="+", metavar="NAME", help="these alone")
        sub.set_defaults(function=command)
    commands.choices["prepare"].add_argument("--target", default="sm_90a")
    commands.choices["prepare"].add_argument("--build", default=os.path.join(jobs.ROOT, "build"))
    commands.choices["run"].add_argument("--csv", required=True)
    commands.choices["run"].add_argument("--minutes", type=float, default=9)
    commands.choices["run"].add_argument("--jobs", type=int, default=1, help="rows that share the GPU")
    commands.choices["run"].add_argument("--blas", help="folder of cuBLASLt")
    args = parser.parse_args()
    args.folder = os.path.abspath(args.folder)
    os.makedirs(args.folder, exist_ok=True)
    args.function(args, read_plan(args.plan))


main()
