"""Equal queries and compressed keys select equal blocks, bit for bit, wherever they are computed."""

import numpy as np
import pytest
from selections import Lists

import nsa

LENGTH = 1027
GEOMETRIES = [{}, {"width": 24, "block": 32, "stride": 16, "select_block": 64, "count": 6}]


def run(text, inputs, **options):
    results = nsa.compile(text, **{"threads": 1} | options).run("main", inputs)
    return results["i"], results["lse"]


def select_by_torch(lists, inputs):
    torch = pytest.importorskip("torch", minversion="2.9")
    import nsa.torch as nt
    q, k = (torch.from_numpy(inputs[name]).to({"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}[
        lists.element]) for name in "qk")
    blocks = {"block": lists.block, "stride": lists.stride}
    lse = nt.compressed_attention(q, k, k, **blocks)[1]
    size, count = (int(part.split("=")[1].strip(" >")) for part in lists.selected.split(","))
    return nt.select(q, k, lse, **blocks, select_block=size, count=count).numpy(), lse.numpy()


@pytest.mark.parametrize("geometry", GEOMETRIES, ids=["small", "large"])
@pytest.mark.parametrize("element", ["f32", "bf16", "f16"])
def test_equal_scores_of_any_program_select_equal_blocks(rng, element, geometry):
    lists = Lists(rng, LENGTH, element, **geometry)
    if element == "f16":
        lists.query, lists.key = (x.astype(np.float16).astype(np.float32) for x in (lists.query, lists.key))
    cast = (lambda x: {name: x[name].astype(np.float16) if name in "qk" else x[name] for name in x}) if element == "f16" else dict
    rows, count = lists.rows(LENGTH), 0
    expected = run(lists.text(1, LENGTH, rows), cast(lists.whole()))

    def check(found, queries, what):
        nonlocal count
        queries = np.arange(queries) if isinstance(queries, int) else queries
        for name, got, want in zip(("lists", "lse"), found, expected):
            want = np.broadcast_to(want[:, :, queries], got.shape)
            assert np.array_equal(got.view(np.int32), want.view(np.int32)), (what, name, (got != want).sum())
        count += found[0][..., 0].size

    for length in (70, 131, 300, 515, 850):
        check(run(lists.text(1, length, lists.rows(length)), cast(lists.whole(length))), length, f"length {length}")
    schedule = "module attributes {nsa.schedules = {select = [#nsa.schedule<queries = 16, blocks = 1>]}} {\n"
    check(run(f"{schedule}{lists.text(1, LENGTH, rows)}\n}}", cast(lists.whole())), LENGTH, "schedule")
    many = {name: np.repeat(x, 3, 0) for name, x in cast(lists.whole()).items()}
    check(run(lists.text(3, LENGTH, rows), many, threads=2), LENGTH, "batch")
    check(select_by_torch(lists, {name: np.repeat(x, 3, 0) for name, x in lists.whole().items()}), LENGTH, "nsa.torch")
    # A sequence of a row begins in a tile of 64 queries of another one: up to 63 of its lse are sums in another order there,
    # of queries that take all blocks.
    lengths = [*rng.integers(1, 250, 9).tolist(), 850]
    packed = lists.packed(lengths)
    blocks, lse = run(lists.text(1, sum(lengths), packed["k"].shape[1], packed=True), cast(packed))
    for length, end in zip(lengths, np.cumsum(lengths)):
        own = lse[:, :, end - length:end]
        own[:, :, :63] = expected[1][:, :, :min(length, 63)]
        check((blocks[:, :, end - length:end], own), length, f"packed {length}")
    for context, step in ((LENGTH, 1), (2 * LENGTH, 4)):
        positions = np.arange(0, LENGTH, step)
        i, lse = run(lists.decode_text(len(positions), context), cast(lists.steps(positions, context)), threads=2)
        check((i.transpose(2, 1, 0, 3), lse.transpose(2, 1, 0)), positions, f"decoding in {context}")
    assert count >= 100_000 / 6


MODEL = """model: {dim: 32, n_layers: 2, n_heads: 4, n_kv_groups: 2, d_k: 16, d_v: 16, mlp: silu}
nsa: {l: 8, d: 4, l_sel: 16, n_sel: 4, w: 20}
train: {seq_len: 160, batch_size: 3, micro_batch: 3}
"""


class Cached:
    """The entries prefill and decode of a model with the same random weights, for a batch of sequences."""

    def __init__(self, batch):
        self.module = nsa.compile(nsa.model_text(MODEL), context=160, micro_batch=batch, selection=True, threads=2)
        self.module.run("init", {})
        rng = np.random.default_rng(1)
        for name, (_, shape, role) in sorted(self.module.tensors.items()):
            if role == "parameter" and len(shape) > 1:
                self.module.write(name, rng.standard_normal(shape).astype(np.float32) * 0.3)

    def generate(self, ids, lengths, steps=20):
        """Logits and blocks of prompts of these lengths and of the ids after them; -1 leaves a row out."""
        positions, found = np.array(lengths, np.int32) - 1, []
        results = [self.module.run("prefill", {"tokens": ids, "positions": positions})]
        for row, last in enumerate(positions):
            found.append([results[0]["next_logits"][row]] + [results[0][f"selection.{n}"][row, :, :last + 1] for n in range(2)])
        for _ in range(steps):
            positions = np.where(positions < 0, -1, positions + 1).astype(np.int32)
            step = self.module.run("decode", {"token": ids[np.arange(len(ids)), positions, None], "positions": positions})
            for row, own in enumerate(found):
                own += [step["next_logits"][row].copy(), *[step[f"next_selection.{n}"][row].copy() for n in range(2)]]
        return found


def test_model_logits_and_blocks_do_not_depend_on_order_nor_on_other_sequences():
    cached, ids = Cached(3), np.random.default_rng(2).integers(0, 256, (3, 160)).astype(np.int32)
    lengths, order = np.array([130, 97, 64]), [2, 0, 1]
    usual = cached.generate(ids, lengths)
    for row, own in zip(order, cached.generate(ids[order], lengths[order])):
        assert all(np.array_equal(a, b) for a, b in zip(own, usual[row]))
    alone = cached.generate(ids, np.where(np.arange(3) == 1, lengths, 0))[1]
    assert all(np.array_equal(a, b) for a, b in zip(alone, usual[1]))
    one = Cached(1).generate(ids[1:2], lengths[1:2])[0]
    assert all(np.array_equal(a, b) for a, b in zip(one, usual[1]))
