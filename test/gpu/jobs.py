"""What scripts share that prepare training here and run it on a machine with GPUs.

A job is a compiled model with its configuration and settings. `prepare` puts the
jobs of a script, nsa-train and data into one folder, and `run` needs nothing else.
"""
import argparse
import csv
import json
import os
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

# Nothing but steps.
STEPS_ONLY = {"train.accumulate_grad_batches": 1, "train.eval_every": 0, "train.save_every": 0,
              "train.save_minutes": 0, "train.final_eval_batches": 1, "train.sample_bytes": 0}


def recipe(block, select_block, count):
    """The layers of configs/m7c_125m.yaml: windows of 64, every fourth NSA with shared keys, of which `count` blocks are selected."""
    return {"model.layers": ", ".join(["window:64*3, nsa"] * 3), "nsa.w": 64, "nsa.shared_kv": "true", "nsa.l": block, "nsa.l_sel": select_block,
            "nsa.n_sel": count}


def fail(message):
    sys.exit(f"{os.path.basename(sys.argv[0])}: error: {message}")


def call(*command):
    """What the command printed; the end if it fails."""
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if result.returncode:
        fail(f"{' '.join(command)}\n{result.stdout}")
    return result.stdout


def chosen(names, only):
    """The names that --only leaves."""
    for name in only:
        if name not in names:
            fail(f"there is no '{name}', only {', '.join(names)}")
    return [name for name in names if not only or name in only]


def there(args, names):
    """The chosen ones that are prepared."""
    found = [name for name in chosen(names, args.only)
             if os.path.exists(os.path.join(args.folder, name + ".nsax"))]
    if not found:
        fail(f"'{args.folder}' holds nothing to run; see 'prepare'")
    return found


def assign(values):
    """As options of the tools."""
    return [text for key, value in values.items() for text in ("--set", f"{key}={value}")]


def prepare(args, name, config, values, *options):
    """Compiles a job with options; `values` are its settings."""
    os.makedirs(args.folder, exist_ok=True)
    binaries = os.path.join(args.build, "bin")
    source = os.path.join(ROOT, "test/bench/shapes", config + ".yaml")
    model = os.path.join(args.folder, name + ".mlir")
    call(os.path.join(binaries, "nsa-model"), source, "-o", model, *assign(values))
    call(os.path.join(binaries, "nsa-compile"), model, "-o", model[:-5] + ".nsax",
         f"--target={args.target}", f"--precision={values['runtime.precision']}",
         f"--recompute={values.get('runtime.gradient_checkpointing', 'none')}",
         f"--recompute-budget={values.get('runtime.recompute_budget', 0)}",
         *(["--no-forward"] if values.get("train.sample_bytes") == 0 else []),
         f"--optimizer={values.get('train.optimizer', 'adamw')}",
         *([f"--ptxas={args.ptxas}"] if args.ptxas else []), *options)
    os.remove(model)
    with open(os.path.join(args.folder, name + ".json"), "w") as file:
        json.dump({"settings": values, "config": config + ".yaml"}, file)
    shutil.copy(source, args.folder)
    shutil.copy(os.path.join(binaries, "nsa-train"), args.folder)
    print(f"prepared {name}", flush=True)


def prepare_data(args, *command):
    """Token shards, made by nsa-data with this command."""
    os.makedirs(args.folder, exist_ok=True)
    data = os.path.join(args.folder, "data")
    if not os.path.isdir(data):
        call(os.path.join(args.build, "bin", "nsa-data"), *command, "-o", data)


def command(args, name, values, *options, label=None):
    """The command that trains a job, and the directory of its run; `values` are
    changes of the job's settings, `label` names the run, if not the job does."""
    with open(os.path.join(args.folder, name + ".json")) as file:
        job = json.load(file)
    runs = os.path.join(args.out, label or name)
    return [os.path.join(args.folder, "nsa-train"), os.path.join(args.folder, name + ".nsax"),
            "--config", os.path.join(args.folder, job["config"]),
            "--data", getattr(args, "data", None) or os.path.join(args.folder, "data"), "--no-progress",
            *assign(job["settings"] | values), "--out-dir", runs, "--run-name", "run",
            *(["--blas", args.blas] if args.blas else []), *options], os.path.join(runs, "run")


def train(args, name, values, *options, label=None):
    """Trains a job and returns the directory of its run."""
    words, directory = command(args, name, values, *options, label=label)
    shutil.rmtree(os.path.dirname(directory), ignore_errors=True)
    text = call(*words)
    with open(os.path.join(args.out, (label or name) + ".log"), "w") as file:
        file.write(text)
    return directory


def rows(directory):
    """What a run noted of its steps in training.csv."""
    with open(os.path.join(directory, "training.csv")) as file:
        return list(csv.DictReader(file))


def heartbeats(directory, rank=0):
    """The whole lines of a rank's heartbeat; none before its first."""
    try:
        with open(os.path.join(directory, f"heartbeat_rank{rank}.jsonl")) as file:
            # At once: line by line, the rest of one that was half there could follow.
            text = file.read()
            return [json.loads(line) for line in text[:text.rfind("\n") + 1].splitlines()]
    except FileNotFoundError:
        return []


def blames(text, victim, ranks):
    """Whether what a run said names the rank that was killed or frozen, and no other."""
    def named(rank):
        return any(f"rank {rank} {how}" in text
                   for how in ("was lost", "does not answer", "did not come")) or (
                       rank == 0 and "rank 0, which serves the store" in text)
    return named(victim) and not any(named(rank) for rank in range(ranks) if rank != victim)


def main(description, prepare_all, run_all, prepare_options=None, run_options=None):
    """Runs one of the two commands; the options are for functions of the parser."""
    parser = argparse.ArgumentParser(description=description,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, function, options in (("prepare", prepare_all, prepare_options),
                                    ("run", run_all, run_options)):
        sub = commands.add_parser(name)
        sub.add_argument("folder")
        sub.add_argument("--only", nargs="+", default=[], metavar="NAME")
        sub.set_defaults(function=function)
        if name == "prepare":
            sub.add_argument("--target", default="sm_90a")
            sub.add_argument("--ptxas", help="of nsa-compile")
            sub.add_argument("--build", default=os.path.join(ROOT, "build"))
        else:
            sub.add_argument("--blas", help="folder of cuBLASLt")
            sub.add_argument("--out", default="gpu-runs")
        if options:
            options(sub)
    args = parser.parse_args()
    args.folder = os.path.abspath(args.folder)
    if args.command == "run":
        os.makedirs(args.out, exist_ok=True)
    args.function(args)
