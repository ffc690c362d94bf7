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
