"""How operations of nsa are made up, with the shapes that every kernel is tried on."""

import dataclasses

import numpy as np

from generate import sample
from nsa_rules import Visibility, blocks_of, choose, positions_of, visibility


@dataclasses.dataclass
class Geometry:
    """Sizes of one attention; `logits` is the standard deviation of its scores."""
    kv_heads: int
    group: int
    dk: int
    dv: int
    compressed: Visibility
    selected: Visibility
    window: int
    logits: float

    @property
    def heads(self):
        return self.kv_heads * self.group


def geometry(b):
    widths = [32, 48, 64, 64, 80, 128, 136, 200, 256] if b.wide else [1, 5, 12, 16, 16, 16, 24, 33, 64]
    dk = b.pick(widths)
    stride = b.pick([1, 2, 3, 4, 4, 8, 8, 16])
    block = stride * b.between(1, 4)
    select_block = block + stride * b.pick([0, 0, 1, 2, 4])
    columns = -(-b.length // select_block)
    count = columns + b.between(0, 3) if b.chance(0.2) else b.between(1, 5)
    group = b.pick([1, 1, 2, 3, 4, 5, 8])
    if b.many:  # gradients of keys are sums of parts
        stride = b.pick([1, 2, 4])
        block = select_block = stride * b.between(1, 2)
        count, group = b.between(1, max(b.length // (10 * select_block), 1)), b.pick([2, 3, 6])
    initial, local = (1, 2) if b.chance(0.6) else (b.between(0, 2), b.between(1, 3))
    return Geometry(2 if b.many else b.between(1, 2), group, dk, dk if b.chance(0.5) else b.pick(widths),
                    visibility("compressed", block=block, stride=stride),
                    visibility("selected", block=select_block, count=count, initial=initial, local=local),
                    b.length + b.between(0, 9) if b.chance(0.2) else b.between(1, 40),
                    1.0 if b.reuse else b.pick([1.0, 1.0, 1.0, 0.0, 30.0, 1000.0]))


def key_rows(b, g, kind, start):
    if kind != "compressed":
        return b.length
    return b.length // g.compressed.stride if start else g.compressed.keys(b.length)


def make_visibility(b, g, kind):
    if kind == "compressed":
        return g.compressed
    if kind == "selected":
        return visibility("selected", block=g.selected.block)
    return {"window": visibility("window", window=g.window), "causal": visibility("causal"),
            "strided": visibility("strided", block=b.pick([1, 8, 16]), stride=b.between(1, 3))}[kind]


def random_indices(b, g, start, at=None, rows=None, length=None):
    """A choice by random scores; the query's own block is always among it."""
    rows, length, at = rows or b.batch, length or b.length, at and at.array
    t = positions_of(at, rows, length)
    if start is not None:
        t = t - start.array[np.arange(rows)[:, None] if at is None else at[:, :1], t]
    columns = -(-b.length // g.selected.block)
    score = b.rng.random((rows, g.kv_heads, length, columns))
    own = (t // g.selected.block)[:, None, :, None]
    return b.argument(choose(np.where(np.arange(columns) <= own, score, -np.inf), g.selected))


def attention_operands(b, kind=None, g=None, packed=0.3):
    g = g or geometry(b)
    kind = kind or b.pick(["window", "causal", "compressed", "selected", "strided"])
    start = b.start() if b.chance(packed) else None
    rows, size = key_rows(b, g, kind, start), np.sqrt(g.logits)
    at, *sizes = b.at() if b.inside else (None,)
    query = b.normal(*sizes, g.heads, g.dk, scale=size) if b.inside else b.heads(g.heads, g.dk, scale=size)
    given = {"query": query, "key": b.heads(g.kv_heads, g.dk, rows, size), "value": b.heads(g.kv_heads, g.dv, rows),
             "start": start, "at": at, "visibility": make_visibility(b, g, kind)}
    if kind == "selected":
        given["indices"] = random_indices(b, g, start, at, *sizes)
    if b.chance(0.2):
        given["scale"] = 0.25
        if g.heads % 2:
            given["softcap"] = g.logits + 1.0
    return g, given


@sample("nsa.attention")
def _(b):
    b.op("nsa.attention", **attention_operands(b)[1])


def parameters(b, g, kind, width):
    depth = g.compressed.block * width
    shapes = {"mean": [], "linear": [(depth, width)], "mlp": [(depth, width), (width, width)]}[kind]
    found = [b.normal(g.kv_heads, *s, scale=s[0] ** -0.5) for s in shapes]
    if shapes and b.chance(0.5):
        found.append(b.normal(g.kv_heads, g.compressed.block, width, scale=0.5))
    return found


@sample("nsa.compress")
def _(b):
    g, kind = geometry(b), b.pick(["mean", "linear", "mlp"])
    b.op("nsa.compress", kind=kind, input=b.heads(g.kv_heads, g.dk), parameters=parameters(b, g, kind, g.dk),
         start=b.start() if b.chance(0.3) else None, compressed=g.compressed)


def key_value(b, g, kind, start):
    own, other = parameters(b, g, kind, g.dk), parameters(b, g, kind, g.dv)
    while len(own) != len(other):
        other = parameters(b, g, kind, g.dv)
    return {"key": b.heads(g.kv_heads, g.dk), "value": b.heads(g.kv_heads, g.dv), "key_parameters": own,
            "value_parameters": other, "start": start, "kind": kind, "compressed": g.compressed}


@sample("nsa.compress_key_value")
def _(b):
    g, start = geometry(b), b.start() if b.chance(0.3) else None
    table = b.table(b.length + 4 * g.compressed.stride, g.dk) if g.dk % 2 == 0 and b.chance(0.5) else None
    b.op("nsa.compress_key_value", **key_value(b, g, b.pick(["mean", "linear", "mlp"]), start), table=table)


def scoring(given):
    return {name: given[name] for name in ("scale", "softcap", "at") if name in given}


def select(b, g, query, key, lse, start, **how):
    return b.op("nsa.select", query=query, key=key, lse=lse, start=start, compressed=g.compressed, selected=g.selected, **how)[0]


def competition(b):
    """A geometry with more blocks than are chosen, of which the one before the query's own is not always forced: what
    reaches into it from the future must not count."""
    b.length = b.pick([64, 100, 129, 200])
    stride = b.pick([2, 4, 8])
    g = geometry(b)
    g.compressed = visibility("compressed", block=2 * stride, stride=stride)
    g.selected = visibility("selected", block=2 * stride * b.between(1, 2), count=b.between(2, 5), initial=b.between(0, 1),
                            local=b.between(1, 2))
    g.logits = b.pick([1.0, 1.0, 9.0, 0.0])
    return g


@sample("nsa.select")
def _(b):
    g = competition(b) if b.chance(0.7) else geometry(b)
    if b.chance(0.2):  # more than there are blocks
        g.selected = visibility("selected", block=g.selected.block, count=b.length // g.selected.block + 4, initial=1, local=2)
    g, given = attention_operands(b, "compressed", g)
    _, lse = b.given("nsa.attention", **given)
    select(b, g, given["query"], given["key"], lse, given["start"], **scoring(given))


@sample("nsa.combine")
def _(b):
    branches = b.pick([1, 2, 3, 3, 5])
    x = [b.heads(b.between(1, 4), b.pick([1, 16, 24]))]
    x += [b.like(x[0]) for _ in range(branches - 1)]
    b.op("nsa.combine", gates=b.normal(*x[0].array.shape[:3], branches, element="f32"), branches=x)


@sample("nsa.gate_statistics")
def _(b):
    gates = b.rng.random((b.batch, b.length, b.between(1, 4), b.between(1, 4)))
    gates[..., 1:] *= b.pick([0, 1, 1])
    b.op("nsa.gate_statistics", gates=b.argument(gates, "f32"))


@sample("nsa.selection_statistics")
def _(b):
    g, start = geometry(b), b.start() if b.chance(0.4) else None
    at = b.at() if b.inside else [None]
    b.op("nsa.selection_statistics", indices=random_indices(b, g, start, *at), start=start, at=at[0], select_block=g.selected.block)


@sample("nsa.rotary_attention")
def _(b):
    g, given = attention_operands(b, "compressed")
    given.pop("at")
    if g.dk % 2:
        return _(b)
    keys = [b.heads(g.kv_heads, g.dk) for _ in range(b.between(0, 2))]
    b.op("nsa.rotary_attention", **given, keys=keys, table=b.table(b.length, g.dk))


@sample("layer")
def layer(b):
    """Native sparse attention: branches, their gates and their sum; what fusion is made for."""
    g = geometry(b)
    start = b.start() if b.chance(0.25) else None
    rotary = g.dk % 2 == 0 and b.chance(0.8 if b.many else 0.4)
    table = b.table(b.length + 4 * g.compressed.stride, g.dk) if rotary else None
    turn = (lambda x, stride=1, **place: b.op("nn.rotary", input=x, table=table, start=start, stride=stride, **place)[0]) \
        if rotary else lambda x, stride=1, **place: x
    at, *sizes = b.at() if b.inside else (None,)
    query = b.normal(*sizes, g.heads, g.dk) if b.inside else b.heads(g.heads, g.dk)
    kind = b.pick(["mean", "linear", "mlp"])
    turned, outputs, indices = turn(query, at=at), [], None
    kinds = b.pick([["compressed", "selected", "window"]] * 3 + [["selected", "window"], ["selected", "causal", "strided"],
                                                                ["selected"], ["compressed", "selected"]])
    for branch in kinds:
        key, value = b.heads(g.kv_heads, g.dk), b.heads(g.kv_heads, g.dv)
        if branch == "compressed":
            key, value = (b.op("nsa.compress", kind=kind, input=x, parameters=parameters(b, g, kind, x.array.shape[3]),
                               start=start, compressed=g.compressed)[0] for x in (key, value))
        key = turn(key, g.compressed.stride if branch == "compressed" else 1)
        given = {"query": turned, "key": key, "value": value, "start": start, "at": at,
                 "visibility": make_visibility(b, g, branch)}
        if g.logits > 1 and g.heads % 2 == 0:
            given["softcap"] = 4.0
        if branch == "selected":
            given["indices"] = indices or random_indices(b, g, start, at, *sizes)
        o, lse = b.op("nsa.attention", **given)
        outputs.append(o)
        if branch == "compressed":
            indices = select(b, g, turned, key, lse, start, **scoring(given))
    n = len(outputs)
    logits = b.normal(*(sizes or (b.batch, b.length)), g.heads * n)
    bias = b.normal(g.heads * n, element="f32") if b.chance(0.5) else None
    gates, = b.op("nn.gate", activation=b.pick(["sigmoid", "softmax"] if n > 1 else ["sigmoid"]), logits=logits, bias=bias,
                  branches=n)
    y, = b.op("nsa.combine", gates=gates, branches=outputs)
    b.op("nn.merge_heads", input=y)


# --- Decoding ----------------------------------------------------------------


def positions(b, most, least=-1):
    """Of each sequence; -1 is none."""
    b.batch = b.between(1, 3)
    return b.argument(b.rng.integers(least, most, b.batch))


@sample("nsa.last_block")
def _(b):
    b.op("nsa.last_block", positions=positions(b, 200), compressed=geometry(b).compressed)


def caches(b, rows, *sizes):
    """Caches of so many rows and each of some sizes, and the pages that hold the rows of queries inside of sequences."""
    if not b.inside:
        return [b.normal(b.batch, rows, *size) for size in sizes], None
    page = b.pick([1, 8, 16, 24])
    columns, more = -(-rows // page), b.between(0, 2)
    table = 1 + b.rng.permutation(b.batch * columns + more)[:b.batch * columns].reshape(b.batch, columns)
    table[b.rng.random(table.shape) < 0.1] = 0
    return [b.normal(b.batch * columns + more, page, *size) for size in sizes], b.argument(table.astype(np.int32))


@sample("nsa.cache_append", "nsa.cache_read")
def _(b):
    rows, heads, width = b.pick([1, 8, 64]), b.between(1, 3), b.pick([1, 16])
    index = positions(b, rows if b.inside else 3 * rows)
    (cache,), pages = caches(b, rows, (heads, width))
    b.op("nsa.cache_read", cache=cache, last=index, pages=pages, count=b.between(1, rows))
    (cache,), pages = caches(b, rows, (heads, width))
    b.op("nsa.cache_append", cache=cache, row=b.normal(b.batch, 1, heads, width), index=index, pages=pages)


@sample("nsa.advance")
def _(b):
    at = positions(b, 12)
    b.op("nsa.advance", token=b.argument(b.rng.integers(-1, 3, (b.batch, 1))), positions=at, context=10,
         ids=b.argument(b.rng.integers(0, 9, (b.batch, b.pick([1, 8])))), end=b.argument(b.rng.integers(-1, 3, 1)))


@sample("nsa.cache_fill")
def _(b):
    rows, length, heads, width = b.pick([8, 64]), b.pick([5, 128]), b.between(1, 3), b.pick([1, 16])
    last, at = positions(b, rows if b.inside else length), None
    (cache,), pages = caches(b, rows, (heads, width))
    if b.inside:
        # One row: nothing says which of two that write the same is the last.
        first = b.rng.integers(0, rows)
        at = b.argument(np.array([[b.rng.integers(0, b.batch), first]], np.int32))
        last = b.argument(np.minimum(last.array[:1], first + length - 1))
    b.op("nsa.cache_fill", cache=cache, rows=b.normal(len(last.array), length, heads, width), last=last, at=at, pages=pages)


@sample("nsa.first_block")
def _(b):
    b.op("nsa.first_block", at=b.at(200)[0], compressed=geometry(b).compressed)


@sample("nsa.cache_slice")
def _(b):
    rows, heads, width = b.pick([8, 64]), b.between(1, 3), b.pick([1, 16])
    b.batch = b.between(1, 3)
    (cache,), pages = caches(b, rows, (heads, width))
    b.op("nsa.cache_slice", cache=cache, at=b.at(rows)[0], pages=pages, count=b.between(1, 2 * rows),
         stride=b.pick([0, 1, 3] if b.inside else [1, 3]))


@sample("nsa.take_row", "nsa.rotary_at")
def _(b):
    index = positions(b, 20)
    at = b.argument(b.rng.integers(0, 9, (b.batch, 2)).astype(np.int32)) if b.inside else None
    b.op("nsa.take_row", input=b.normal(b.batch, 17, 12), index=index, at=at)
    b.op("nsa.rotary_at", input=b.normal(b.batch, 1, 2, 16), table=b.table(40, 16), index=index, stride=b.pick([1, 4]))


@sample("nsa.decode_attention")
def _(b):
    g, kind = geometry(b), b.pick(["window", "causal", "compressed", "selected"])
    t = positions(b, b.length)
    visible = make_visibility(b, g, kind)
    rows = max(key_rows(b, g, kind, None), 1)
    given = {"query": b.normal(b.batch, 1, g.heads, g.dk)}
    (given["key"], given["value"]), given["pages"] = caches(b, rows, (g.kv_heads, g.dk), (g.kv_heads, g.dv))
    if kind == "selected":
        whole = random_indices(b, g, None)
        b.program.arguments.remove(whole)
        given["indices"] = b.argument(np.stack([whole.array[i, :, max(p, 0)] for i, p in enumerate(t.array)])[:, :, None])
    b.op("nsa.decode_attention", **given, positions=t, visibility=visible, **({"softcap": 2.0} if g.heads % 2 else {}))


@sample("nsa.decode_select")
def _(b):
    g = geometry(b)
    b.length = max(b.length, g.compressed.block)
    t = positions(b, b.length, 0)
    rows = blocks_of(b.length, g.compressed.block, g.compressed.stride)
    query, key = b.normal(b.batch, 1, g.heads, g.dk), b.normal(b.batch, rows, g.kv_heads, g.dk)
    how = {"softcap": 2.0} if g.heads % 2 else {}
    _, lse = b.given("nsa.decode_attention", query=query, key=key, value=key, positions=t, visibility=g.compressed, **how)
    b.op("nsa.decode_select", query=query, key=key, lse=lse, positions=t, compressed=g.compressed,
         selected=g.selected, context=b.length, **how)
