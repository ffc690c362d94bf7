#!/usr/bin/env python3
"""Generates on a GPU with a model that was trained there, and holds what comes out
against whole sequences.

  test/gpu/generate.py prepare FOLDER [--target sm_90a]
      compiles the model in each form; needs the compiler, not a GPU
  test/gpu/generate.py run FOLDER [--only NAME...] [--blas FOLDER] [--out FOLDER]
      prints a line for each check; exit code 1 if one fails; needs a GPU

bf16 and fp32: trains a small model, continues prompts of several lengths with
nsa-generate, and compares logits and tokens (decode-on-gpu check). bf16-blocks and
fp32-blocks: which blocks are selected (decode-on-gpu blocks). With --target cpu and
--small it all runs on the processor.
"""
import os
import shutil
import subprocess
import sys

import jobs

NAMES = ("bf16", "fp32", "bf16-blocks", "fp32-blocks")
MODEL = {"model.dim": 256, "model.n_layers": 3, "model.n_heads": 16, "model.n_kv_groups": 1,
         "model.d_k": 64, "model.d_v": 64, "model.layers": "nsa*2, window:256",
         "nsa.l": 32, "nsa.d": 16, "nsa.l_sel": 64, "nsa.n_sel": 4, "nsa.w": 128}
TRAINED, CONTEXT = 512, 2048
# Tokens of prompts, all but one longer than what a step decodes alone, one longer than
# what was trained on; and tokens that each is continued by.
PROMPTS, TOKENS = (1, 33, 511, 1500), 256

BLOCKS = """
func.func @model(%tokens: tensor<2x{length}xi32> {{nn.dims = ["batch", "seq"], nn.name = "tokens", nn.role = "input"}},
    %targets: tensor<2x{length}xi32> {{nn.dims = ["batch", "seq"], nn.name = "targets", nn.role = "input"}},
    %queries: tensor<{ids}x1024xf32> {{nn.init = #nn.init<normal, 1.0>, nn.name = "queries", nn.role = "parameter"}},
    %keys: tensor<{ids}x64xf32> {{nn.init = #nn.init<normal, 1.0>, nn.name = "keys", nn.role = "parameter"}},
    %values: tensor<{ids}x64xf32> {{nn.init = #nn.init<normal, 1.0>, nn.name = "values", nn.role = "parameter"}})
    -> (tensor<f32> {{nn.name = "loss"}}, tensor<2x{length}x1024xf32> {{nn.name = "logits"}}) attributes {{nn.train}} {{
  %eq = nn.embedding %queries, %tokens : (tensor<{ids}x1024xf32>, tensor<2x{length}xi32>) -> tensor<2x{length}x1024xf32>
  %ek = nn.embedding %keys, %tokens : (tensor<{ids}x64xf32>, tensor<2x{length}xi32>) -> tensor<2x{length}x64xf32>
  %ev = nn.embedding %values, %tokens : (tensor<{ids}x64xf32>, tensor<2x{length}xi32>) -> tensor<2x{length}x64xf32>
  %q = nn.split_heads %eq {{heads = 16 : i64}} : (tensor<2x{length}x1024xf32>) -> !q
  %k = nn.split_heads %ek {{heads = 1 : i64}} : (tensor<2x{length}x64xf32>) -> !k
  %v = nn.split_heads %ev {{heads = 1 : i64}} : (tensor<2x{length}x64xf32>) -> !k
  %c = nsa.compress mean %k by(#cmp) : (!k) -> !c
  %oc, %l = nsa.attention %q, %c, %c visible(#cmp) : !q, !c, !c
  %i = nsa.select %q, %c, %l by(#cmp, #slc) : !q, !c -> tensor<2x1x{length}x4xi32>
  %o, %m = nsa.attention %q, %k, %v visible(#slc, %i : tensor<2x1x{length}x4xi32>) {{scale = 1.0e-3 : f64}} : !q, !k, !k
  %y = nn.merge_heads %o : (!q) -> tensor<2x{length}x1024xf32>
  %loss, %n, %s = nn.cross_entropy %y, %targets
      : (tensor<2x{length}x1024xf32>, tensor<2x{length}xi32>) -> (tensor<f32>, tensor<2x{length}xf32>, tensor<f32>)
  return %loss, %y : tensor<f32>, tensor<2x{length}x1024xf32>
}}
"""


def block_model(length):
    """A model whose logits say which blocks it selects: test/gpu/DecodeCheck.cpp."""
    aliases = ("#cmp = #nsa.compressed<block = 32, stride = 16>\n#slc = #nsa.selected<block = 64, count = 4>\n"
               f"!q = tensor<2x{length}x16x64xf32>\n!k = tensor<2x{length}x1x64xf32>\n"
               f"!c = tensor<2x{length // 16 - 1}x1x64xf32>\n")
    return aliases + BLOCKS.format(length=length, ids=length // 64 * 16)


def compile_to(args, name, model, *options):
    path = os.path.join(args.folder, name)
    with open(path + ".mlir", "w") as file:
        file.write(model)
    jobs.call(os.path.join(args.build, "bin", "nsa-compile"), path + ".mlir", "-o", path + ".nsax",
              f"--target={args.target}", "--allow-slow-path=all", *options)
    os.remove(path + ".mlir")


def prepare_blocks(args, name):
    precision, length = name.split("-")[0], 1024 if args.small else CONTEXT
    compile_to(args, name, block_model(length), f"--precision={precision}")
    compile_to(args, name + "-decode", block_model(length), f"--precision={precision}", f"--context={length}")


def prepare_model(args, name):
    """Trained at one length, and run at another: whole, and token by token."""
    batch = len(PROMPTS)
    rows, steps = (2, 6) if args.small else (16, 300)
    values = MODEL | {"train.seq_len": TRAINED, "train.batch_size": rows, "train.micro_batch": rows, "train.lr": 1e-3,
                      "train.warmup_steps": 5, "train.steps": steps, "train.save_every": steps,
                      "runtime.precision": name, "runtime.device": "cpu" if args.target == "cpu" else "cuda"}
    jobs.prepare(args, name, "showcase", jobs.STEPS_ONLY | values)
    settings = jobs.assign(MODEL | {"train.micro_batch": batch, "train.batch_size": batch, "train.seq_len": TRAINED})
    read = lambda *more: jobs.call(os.path.join(args.build, "bin", "nsa-model"), os.path.join(
        jobs.ROOT, "test/bench/shapes/showcase.yaml"), *settings, *more, "-o", "-")
    whole = read("--set", f"train.seq_len={CONTEXT}")
    compile_to(args, name + "-forward", whole, f"--precision={name}")
    compile_to(args, name + "-decode", read(), f"--precision={name}", f"--context={CONTEXT}")
    if name == "bf16":
        compile_to(args, "bf16-reference", whole, "--precision=fp32")


def prepare(args):
    names = jobs.chosen(NAMES, args.only)
    os.makedirs(args.folder, exist_ok=True)
    if not all("-" in name for name in names):
        jobs.prepare_data(args, "pack", *args.text, "--max-bytes", "8000000")
    for name in names:
        (prepare_blocks if "-" in name else prepare_model)(args, name)
    for program in ("bin/nsa-generate", "test/gpu/decode-on-gpu"):
        shutil.copy(os.path.join(args.build, program), args.folder)


def prompts():
    """Ids of text that the model was not trained on: this script."""
    with open(os.path.abspath(__file__), "rb") as file:
        text = list(file.read())
    return [text[start:start + count] for start, count in enumerate(PROMPTS)]


def path(args, name):
    return os.path.join(args.folder, name + ".nsax")


def generate(args, name, checkpoint):
    """The prompts with their continuations, as lines for decode-on-gpu."""
    given = [",".join(map(str, prompt)) for prompt in prompts()]
    command = [os.path.join(args.folder, "nsa-generate"), checkpoint, "--artifact", path(args, name + "-decode"), "--ids",
               "--temperature", "0", "--ignore-end", "--tokens", str(TOKENS),
               *[word for text in given for word in ("--prompt", text)],
               *(["--blas", args.blas] if args.blas else [])]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode:
        jobs.fail(result.stderr)
    print(f"{name}: {'; '.join(result.stderr.splitlines()[-2:])}", flush=True)
    parts = [part.split("\n")[1] for part in result.stdout.split("=== ")[1:]]
    if [part.count(",") + 1 for part in parts] != [TOKENS] * len(PROMPTS):
        jobs.fail(f"nsa-generate gave {[part.count(',') + 1 for part in parts]} tokens")
    return [f"{prompt} | {part}".replace(",", " ") for prompt, part in zip(given, parts)]


def check(args, *words):
    environment = os.environ | ({"NSA_BLAS": args.blas} if args.blas else {})
    result = subprocess.run([os.path.join(args.folder, "decode-on-gpu"), *words], env=environment, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return result.returncode == 0, " | ".join(result.stdout.strip().splitlines())


def check_model(args, name):
    directory = jobs.train(args, name, {})
    sequences = os.path.join(args.out, name + ".sequences")
    with open(sequences, "w") as file:
        file.write("\n".join(generate(args, name, directory)) + "\n")
    reference = name + ("-reference" if name == "bf16" else "-forward")
    return check(args, "check", path(args, reference), path(args, name + "-forward"), path(args, name + "-decode"),
                 directory, sequences)


def run(args):
    failures = 0
    for name in jobs.there(args, NAMES):
        if "-" in name:
            passed, text = check(args, "blocks", path(args, name), path(args, name + "-decode"))
        else:
            passed, text = check_model(args, name)
        failures += not passed
        print(f"{name}: {text}", flush=True)
    print(f"{failures} failures")
    sys.exit(failures > 0)


def prepare_options(parser):
    parser.add_argument("--small", action="store_true", help="a few steps and short sequences")
    parser.add_argument("--text", nargs="+", default=["/usr/include"], metavar="PATH")


jobs.main(__doc__, prepare, run, prepare_options)
