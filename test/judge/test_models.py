"""Models that nsa-model writes: their loss and gradients as they are compiled, against the rules of their operations."""

import json
import re
import subprocess

import numpy as np
import pytest
from executors import BUILD, CPU, SEED, Emulator, make_rng

import declarations
import judge
import nsa_rules
import program
from numerics import Errors
from program import Program, Value, build

SMALL = {"model": {"dim": 32, "n_layers": 2, "n_heads": 4, "n_kv_groups": 2, "d_k": 8, "d_v": 8, "init_std": 0.2},
         "nsa": {"l": 8, "d": 4, "l_sel": 16, "n_sel": 3, "w": 12},
         "train": {"seq_len": 70, "batch_size": 2, "micro_batch": 2}}
LINEAR = {"nsa.phi": "linear", "nsa.gate": "softmax", "model.mlp": "swiglu", "model.d_v": 12, "nsa.n_initial": 0, "nsa.n_local": 1}
MLP = {"nsa.phi": "mlp", "nsa.phi_pos": True, "nsa.gate": "softmax", "model.mlp": "swiglu", "model.d_v": 12}
SHARED = {"model.mlp": "gelu", "model.qk_norm": True, "model.tied_embeddings": True, "model.logit_softcap": 2,
          "nsa.shared_kv": True}
GEMMA = {"model.mlp": "geglu", "model.qkv_bias": True, "model.norm_plus_one": True, "model.norms": "both",
         "model.embedding_scale": 3, "model.attention_scale": 0.4, "model.attention_softcap": 2, "model.window_rope_base": 100, "model.layers": "nsa, window:5"}
#: Each key alone would be a compilation; none of them hides another.
MODELS = {
    "sparse": {}, "linear": LINEAR, "mlp": MLP, "window": {"model.attention": "window"},
    "dense and window": {"model.layers": "dense, window:5"},
    "isolated": {"data.isolate_documents": True, "nsa.phi": "mlp", "nsa.phi_pos": True, "model.n_layers": 1},
    "shared": SHARED, "relu2": {"model.mlp": "relu2", "model.qk_norm": True, "model.layers": "nsa, dense"}, "gemma": GEMMA,
    "olmo": {"model.qk_norm": True, "model.qk_norm_joint": True, "model.norms": "after", "model.layers": "dense/nope, window:5",
             "model.rope_scaling": "llama3", "model.rope_factor": 4, "model.rope_length": 8}}
#: Heads for tensor cores.
WIDE = {"model.d_k": 16, "model.d_v": 16}
#: Those of two sequences.
DOCUMENTS = (32, 1, 7, 13, 17, 64, 6)


def call(*words):
    return subprocess.run([BUILD / "bin" / words[0], *words[1:]], check=True, capture_output=True, text=True).stdout


def write_model(changes, folder):
    sections = {name: dict(section) for name, section in SMALL.items()}
    for key, value in changes.items():
        section, key = key.split(".")
        sections.setdefault(section, {})[key] = value
    (folder / "model.yaml").write_text(json.dumps(sections))
    call("nsa-model", folder / "model.yaml", "-o", folder / "model.mlir")
    return (folder / "model.mlir").read_text(), call("nsa-opt", folder / "model.mlir", "--nsa-expand-model",
                                                     "--mlir-print-op-generic")


# --- The expanded function as a program ---------------------------------------


def attribute(text):
    """What a rule takes for an attribute in generic syntax."""
    kind = re.match(r"#nsa\.?<?(compressed|selected|window|causal|strided)>?\b<?([^>]*)", text)
    if kind:
        fields = re.findall(r"(\w+) = (\d+)", kind[2]) or [("window", n) for n in re.findall(r"\d+", kind[2])]
        defaults = {"initial": 1, "local": 2} if "count" in kind[2] else {}
        return nsa_rules.visibility(kind[1], **defaults | {key: int(n) for key, n in fields})
    keyword = re.match(r"#\w+<\w+ (\w+)>", text)
    if keyword:
        return keyword[1]
    if text.startswith("array<"):
        return [int(n) for n in re.findall(r"-?\d+", text.split(":", 1)[1])]
    number = text.split(" : ")[0]
    return float(number) if re.search(r"[.e]", number) else int(number) if re.fullmatch(r"-?\d+", number) else text


def split(text):
    """At the commas that are in no brackets."""
    parts, depth = [""], 0
    for c in text:
        depth += (c in "<([{") - (c in ">)]}")
        if c == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += c
    return [part.strip() for part in parts if part.strip()]


def argument_names(text):
    return re.findall(r'nn\.name = "([^"]*)"', text.split("function_type")[0])


def read_function(text, tensors):
    """The program of a function in generic syntax with these arguments, and its arguments by name."""
    for name, meaning in re.findall(r"^(#\w+) = (.*)$", text, re.MULTILINE):
        text = re.sub(re.escape(name) + r"\b(?![.<])", meaning, text)
    text = re.sub(r"\n {6,}", " ", text)
    made, values, arguments = Program(), {}, {}
    for name, (argument, type_) in zip(argument_names(text), re.findall(r"(%arg\d+): tensor<([^>]*)>", text)):
        arguments[name] = values[argument] = Value(tensors[name], type_.rsplit("x", 1)[-1])
        made.arguments.append(values[argument])
    for line in text.splitlines():
        op = re.match(r'\s+(?:(%\d+)(?::\d+)? = )?"([\w.]+)"\(([^)]*)\)(?: <\{(.*)\}>)? : ', line)
        if not op or op[2] == "func.return":
            continue
        given = dict(part.split(" = ", 1) if " = " in part else (part, None) for part in split(op[4] or ""))
        segments = given.pop("operandSegmentSizes", None)
        attributes = {key: True if x is None else attribute(x) for key, x in given.items()}
        operands = [values[name] for name in split(op[3])]
        declared = declarations.read()[op[2]].operands
        # Without segments, one operand at most has another number than one.
        other = len(operands) - len(declared) + 1
        sizes = attribute(segments) if segments else [other if x.optional or x.variadic else 1 for x in declared]
        for operand, size in zip(declared, sizes):
            found, operands = operands[:size], operands[size:]
            attributes[operand.name] = found if operand.variadic else found[0] if found else None
        made.ops.append(build(op[2], **attributes))
        for i, value in enumerate(made.ops[-1].results):
            values[f"{op[1]}#{i}" if len(made.ops[-1].results) > 1 else op[1]] = value
    returned = re.search(r'"func.return"\(([^)]*)\)', text)[1]
    made.results = [values[split(returned)[0]]]
    return made, arguments


# --- The tests ------------------------------------------------------------------


def inputs_of(rng, isolated):
    inputs = {name: rng.integers(0, 256, (2, 70)).astype(np.int32) for name in ("tokens", "targets")}
    if isolated:
        begins = np.cumsum((0, *DOCUMENTS))[:-1]
        inputs["start"] = (np.repeat(begins, DOCUMENTS).reshape(2, 70) % 70).astype(np.int32)
    return inputs


def evaluate(execute, text, expanded, inputs, precision, **options):
    """The module after one micro-batch and its loss; the model as a program that gives loss and gradients, and its
    parameters' names."""
    module = execute.compile(text, precision=precision, **options)
    module.run("init", {})
    loss = module.run("accumulate", inputs)["loss"]
    names = argument_names(expanded)
    tensors = inputs | {name: module.read(name).astype(np.float64) for name in names if name not in inputs}
    made, arguments = read_function(expanded, tensors)
    parameters = [name for name in names if arguments[name] in made.reaching()]
    made.wanted = [arguments[name] for name in parameters]
    next(op for op in made.ops if op.name == "nn.cross_entropy").attributes["over_all"] = True
    return module, loss, made, parameters


@pytest.mark.parametrize("name, execute, options", [
    *((name, CPU(), {}) for name in MODELS), ("sparse", Emulator("sm_90a"), {}), ("linear", Emulator("sm_80"), {}),
    ("shared", Emulator("sm_90a"), {}), ("gemma", Emulator("sm_90a"), {}),
    *(("isolated", Emulator("sm_90a"), program.form(form)) for form in ("lists", "masks"))])
def test_gradients_of_model(name, execute, options, tmp_path):
    rng = make_rng(name)
    text, expanded = write_model(MODELS[name], tmp_path)
    if options:
        aliases = re.match(r"(?:[!#].*\n)*", text)[0]
        text = f"{aliases}module attributes {{{program.write_schedules(options['schedules'])}}} {{\n{text[len(aliases):]}}}\n"
    inputs = inputs_of(rng, name == "isolated")
    module, loss, made, parameters = evaluate(execute, text, expanded, inputs, "fp32")
    choices = {op.results[0]: op.results[0].array for op in made.ops if op.name == "nsa.select"}
    found = [loss, *(module.read(f"grad.{parameter}") for parameter in parameters)]
    assert all(np.abs(x).max() > 0 for x in found)
    judge.expect(found, made.evaluate(choices=choices), lambda: made.evaluate(Errors(rng, execute.place), choices=choices), f"NSA_TEST_SEED={SEED}")


@pytest.mark.parametrize("precision, name, execute", [
    ("bf16", "sparse", CPU()), ("bf16", "mlp", CPU()), ("bf16", "shared", CPU()), ("bf16", "gemma", CPU()),
    ("fp16", "sparse", CPU()), ("fp16", "mlp", CPU()), ("bf16", "wide", Emulator("sm_90a")), ("fp16", "wide", Emulator("sm_86")),
    ("fp16", "wide", Emulator("sm_90a")), ("bf16", "wide", Emulator("sm_80"))])
def test_mixed_precision_points_the_same_way(precision, name, execute, tmp_path):
    """Gradients of fp16 are those of the scaled loss. Weights stay fp32."""
    text, expanded = write_model(MODELS.get(name, WIDE), tmp_path)
    inputs = inputs_of(make_rng(name), False)
    module, loss, made, parameters = evaluate(execute, text, expanded, inputs, precision)
    scale = float(module.read("loss_scale")) if precision == "fp16" else 1.0
    wanted_loss, *wanted = made.evaluate()
    wanted = np.concatenate([x.ravel() for x in wanted])
    found = np.concatenate([module.read(f"grad.{parameter}").ravel() for parameter in parameters]) / scale
    sizes = np.linalg.norm(wanted), np.linalg.norm(found)
    assert all(module.read(parameter).dtype == np.float32 for parameter in parameters)
    assert abs(loss - wanted_loss) < 0.05
    assert wanted @ found / sizes[0] / sizes[1] > (0.9999 if precision == "fp16" else 0.99)
    assert abs(sizes[1] / sizes[0] - 1) < (0.01 if precision == "fp16" else 0.1)
