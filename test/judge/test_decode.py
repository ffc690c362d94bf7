"""One token at a time gives what the model gives to whole sequences."""

import numpy as np
import pytest
from executors import CPU, SEED, TARGET, Emulator, nsa
from nn_rules import draw

CONFIG = """
model: {{dim: 32, n_layers: {layers}, n_heads: {heads}, n_kv_groups: {groups}, d_k: 16, d_v: 16, {model}}}
nsa: {{l: 8, d: 4, l_sel: 16, n_sel: 4, w: 20, {nsa}}}
train: {{seq_len: 96, batch_size: 2, micro_batch: 2}}
data: {{isolate_documents: {isolated}}}
"""
MODELS = {
    "dense": ("attention: dense, mlp: silu", "phi: mean"),
    "window": ("attention: window, mlp: silu", "phi: mean"),
    "nsa": ("attention: nsa, mlp: silu", "phi: mean"),
    "linear": ("attention: nsa, mlp: silu, qk_norm: true", "phi: linear, phi_pos: true"),
    "mlp": ("layers: 'dense, nsa', mlp: silu, tied_embeddings: true", "phi: mlp, gate: softmax, shared_kv: true"),
    "biased": ("layers: 'dense/nope, window:20', mlp: geglu, qkv_bias: true, norm_plus_one: true, norms: both", "phi: mean"),
}
LENGTH = 160
#: With NSA_JUDGE_TARGET all runs on a GPU.
HOPPER, AMPERE = (Emulator("sm_90a"), Emulator("sm_80")) if TARGET == "cpu" else (CPU(), CPU())
#: Measured on the processor: 2e-6 at most.
TOLERANCE = {"cpu": 1e-5, "gpu": 1e-4}


def model_text(name, layers=2, isolated="false", heads=4, groups=2):
    model, keys = MODELS[name]
    return nsa.model_text(CONFIG.format(model=model, nsa=keys, layers=layers, isolated=isolated, heads=heads, groups=groups))


class Pair:
    """A model on whole sequences, and with caches where `execute` runs it, of the same large weights."""

    def __init__(self, name, execute=CPU(threads=1), precision="fp32", part=0, pages=0, **options):
        text = model_text(name, **options)
        self.whole = CPU(threads=1).compile(text, seq_len=LENGTH)
        self.cached = execute.compile(text, context=LENGTH, precision=precision, prefill_chunk=part, **({"pages": pages} if pages else {}))
        self.tolerance = TOLERANCE[execute.place]
        rng = np.random.default_rng(1)
        for module in (self.whole, self.cached):
            module.run("init", {})
        for tensor, (_, shape, role) in self.whole.tensors.items():
            if role == "parameter" and len(shape) > 1:
                scale = 0.4 if "key" in tensor or "query" in tensor else 0.2
                weights = (rng.standard_normal(shape) * scale).astype(np.float32)
                for module in (self.whole, self.cached):
                    module.write(tensor, weights)
        self.ids = rng.integers(0, 64, (2, LENGTH)).astype(np.int32)
        #: What else the entries take.
        self.pages = {}
        if pages:
            columns = -(-LENGTH // (16 if "nsa" in MODELS[name][0] else 64))
            self.pages = {"pages": 1 + rng.permutation(pages)[:2 * columns].reshape(2, columns).astype(np.int32)}

    def forward(self, **inputs):
        self.expected = self.whole.run("forward", {"tokens": self.ids} | inputs)["logits"]

    def prefill(self, positions, length=96):
        tokens = np.where(np.arange(96) < length, self.ids[:, :96], 0).astype(np.int32)
        return self.cached.run("prefill", {"tokens": tokens, "positions": np.asarray(positions, np.int32)})["next_logits"]

    def decode(self, at, positions):
        tokens = self.ids[[0, 1], at].reshape(2, 1)
        return self.cached.run("decode", {"token": tokens, "positions": np.asarray(positions, np.int32)} | self.pages)["next_logits"]

    def check(self, found, at, rows=(0, 1)):
        """Logits against those of the tokens `at`."""
        for row in rows:
            error = abs(found[row, 0] - self.expected[row, np.broadcast_to(at, 2)[row]]).max() / abs(self.expected).max()
            assert error <= self.tolerance, (at, row, error)


# Around every l, d, l', w and n l' that there is, and beyond the sequences of the training.
@pytest.mark.parametrize("name, execute, options, length", [
    *((name, CPU(threads=1), {}, LENGTH) for name in MODELS), ("nsa", HOPPER, {"layers": 1}, 72),
    ("linear", AMPERE, {"layers": 1}, 40), ("mlp", HOPPER, {}, 40), ("biased", HOPPER, {}, 40)])
def test_every_position_is_row_of_forward(name, execute, options, length):
    pair = Pair(name, execute, **options)
    pair.forward()
    for at in range(length):
        pair.check(pair.decode(at, [at, at]), at)


def test_isolated_documents_are_sequences_of_their_own():
    """Three documents packed in a row."""
    begins = [0, 37, 96]
    pair = Pair("linear", isolated="true")
    start = np.repeat(np.array([begins], np.int32), np.diff([*begins, LENGTH]), axis=1).repeat(2, axis=0)
    pair.forward(start=start)
    pair.check(pair.prefill([36, 36], length=37), 36)
    for at in range(LENGTH):
        pair.check(pair.decode(at, at - start[:, at]), at)


@pytest.mark.parametrize("execute, many", [(CPU(threads=1), [([96, 5], 20), ([31, 32], 20), ([1, 64], 20)]),
                                           (HOPPER, [([71, 54], 4), ([34, 17], 4)])])
def test_prefill_of_two_lengths_goes_on_as_decode(execute, many):
    pair = Pair("nsa", execute)
    pair.forward()
    for lengths, steps in many:
        last = np.array(lengths) - 1
        pair.check(pair.prefill(last), last)
        for at in (last + step for step in range(1, steps)):
            pair.check(pair.decode(at, at), at)


@pytest.mark.parametrize("name, execute, pages", [("nsa", HOPPER, 0), ("window", AMPERE, 0), ("nsa", HOPPER, 23), ("mlp", AMPERE, 21),
                                                  ("window", AMPERE, 6), ("nsa", CPU(threads=1), 20)])
def test_parts_of_a_prompt_on_a_gpu_go_on_as_decode(name, execute, pages):
    """On the CPU, test/python/test_prefill_parts.py compares more. Pages are of 16 rows, and without selection of 64."""
    pair = Pair(name, execute, part=16, pages=pages, layers=2 if name == "mlp" else 1)
    pair.forward()
    lengths = [39, 53]
    for row, length in enumerate(lengths):
        for first in range(0, length, 16):
            tokens = np.zeros((1, 16), np.int32)
            last = min(first + 16, length) - 1
            tokens[0, :last + 1 - first] = pair.ids[row, first:last + 1]
            place = {"part_at": np.array([[row, first]], np.int32), "part_last": np.array([last], np.int32)} | pair.pages
            if pages:
                place["part_position"] = np.array([[0, first]], np.int32)
            logits = pair.cached.run("prefill_part", {"part_tokens": tokens, **place})["part_logits"]
            pair.check(np.repeat(logits, 2, 0), last, rows=[row])
    for step in range(3):
        at = np.array(lengths) + step
        pair.check(pair.decode(at, at), at)
    # The second sequence becomes the first one's 32 tokens, and goes on with the next one.
    if pages:
        pair.pages["pages"][1, :2] = pair.pages["pages"][0, :2]
    if not pages or name != "window":
        pair.cached.run("copy_prefix", {"part_from": np.array([[0, 0]], np.int32), "part_at": np.array([[1, 0]], np.int32),
                                        "part_last": np.array([31], np.int32)})
    pair.ids[1], pair.expected[1] = pair.ids[0], pair.expected[0]
    pair.check(pair.decode(32, [-1, 32]), 32, rows=[1])


@pytest.mark.parametrize("execute, name, steps", [(CPU(threads=1), "nsa", LENGTH), (HOPPER, "nsa", 12), (AMPERE, "window", 8)])
@pytest.mark.parametrize("inverse, top_k, top_p", [(0, [0, 0], [1, 1]), (1.25, [0, 20], [0.5, 1])])
def test_next_chooses_as_host_until_end(execute, name, steps, inverse, top_k, top_p):
    """One sequence goes on to the end of the context, the other one up to a token that ends it; one token is excluded."""
    decoding, module = (Pair(name, execute, layers=1).cached for _ in range(2))
    ids = np.zeros((2, steps), np.int32)
    uniforms = np.random.default_rng(SEED).integers(0, 4096, (2, 32, 3)).astype(np.int32)
    how = {"inverse": np.full(2, inverse, np.float32), "top_k": np.array(top_k, np.int32),
           "top_p": np.array([[part * 4096, 0, 0] for part in top_p], np.int32), "uniforms": uniforms}
    bias = np.where(np.arange(256) == 7, -np.inf, 0).astype(np.float32)
    begin = LENGTH - steps
    ids[:, 0] = 3, 5
    for at in range(steps - 1):
        inputs = {"token": ids[:, at:at + 1], "positions": np.full(2, begin + at, np.int32)}
        logits = decoding.run("decode", inputs)["next_logits"]
        best = (logits[:, 0] + bias).argmax(-1)[:, None]
        ids[:, at + 1] = draw(None, logits, bias, best, positions=inputs["positions"], **how)[:, 0]
    end = next(token for token in ids[1, 1:] if token not in ids[0, 1:])
    states = {"token": ids[:, :1], "positions": np.full(2, begin, np.int32), "end": np.array([end], np.int32), "bias": bias,
              **how}
    for state, value in states.items():
        module.write(f"next.{state}", value)
    found = [list(ids[:, 0])]
    for at in range(steps - 1):
        module.run("next", {})
        found.append(list(module.read("next.ids")[:, (begin + at + 1) % 32]))
    last = int(np.argmax(ids[1, 1:] == end)) + 1
    assert [row[0] for row in found] == list(ids[0])
    assert [row[1] for row in found[:last + 1]] == list(ids[1, :last + 1])
    assert list(module.read("next.positions")) == [LENGTH - 1, -1]
    module.run("next", {})
    assert list(module.read("next.positions")) == [-1, -1]
    module.write("next.positions", np.array([4, -1], np.int32))
    module.write("embedding.weight", np.full((256, 32), np.inf, np.float32))
    module.run("next", {})
    assert module.read("next.ids")[0, 5] == -1 and list(module.read("next.positions")) == [-1, -1]


@pytest.mark.parametrize("execute, length", [(CPU(threads=1), 40), (HOPPER, 20)])
def test_position_minus_one_leaves_sequence_alone(execute, length):
    pair = Pair("nsa", execute)
    pair.forward()
    for at in range(length):
        for row in range(2):
            pair.check(pair.decode(at, np.where(np.arange(2) == row, at, -1)), at, rows=[row])


def test_heads_for_tensor_cores_point_the_same_way():
    """As many heads in a group as an M-tile has rows."""
    pair = Pair("nsa", HOPPER, precision="bf16", layers=1, heads=16, groups=1)
    pair.cached.run("prepare", {})
    pair.forward()
    found, wanted = (np.stack(x).ravel() for x in ([pair.decode(at, [at, at])[:, 0] for at in range(40)],
                                                  pair.expected[:, :40].swapaxes(0, 1)))
    assert found @ wanted / np.linalg.norm(found) / np.linalg.norm(wanted) > 0.995


def test_samples_beside_training_follow_the_parameters():
    """Of a program that trains as well, on a GPU as on the processor."""
    modules = [execute.compile(model_text("nsa", layers=1), sample_context=80) for execute in (CPU(), HOPPER)]
    ids, hyper = np.arange(192, dtype=np.int32).reshape(2, 96) * 53 % 256, [1e-2, 0.9, 0.95, 1e-8, 0.1, 1, 1]
    assert "forward" not in modules[0].entries
    for module in modules:
        module.run("init", {})
    for step in range(2):
        for module in modules:
            module.run("accumulate", {"tokens": ids, "targets": (ids + 53) % 256})
            module.run("update", {"hyper": np.array([*hyper, step + 1], np.float32)})
        for at in range(30):
            inputs = {"token": np.array([[at * 37 % 256]], np.int32), "positions": np.array([at], np.int32)}
            wanted, found = (module.run("decode", inputs)["next_logits"] for module in modules)
            assert abs(found - wanted).max() <= 1e-3 * abs(wanted).max(), (step, at)
