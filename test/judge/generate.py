"""Programs that are made up from a seed.

`SAMPLES` has, for every operation, how one with legal operands is made. Operands are new arguments, or values that are
there if their type fits: so the same functions make programs of one operation and graphs of many.
"""

import re

import numpy as np

import declarations
import program
from numerics import store

SAMPLES = {}
STATISTICS = ("nsa.attention", "nn.rms_norm", "nn.cross_entropy")
LENGTHS = [1, 7, 15, 16, 17, 31, 32, 33, 47, 48, 63, 64, 65, 100, 129]


def sample(*names):
    def register(function):
        for name in names:
            SAMPLES[name] = function
        return function
    return register


class Builder:
    """Grows a program. `reuse` is how often a value that is there is taken as an operand; with `wide`, heads are as wide
    as those of models; with `many`, sequences have ten times as many tokens as a query selects; with `inside`, queries begin
    inside of sequences."""

    def __init__(self, rng, element="f32", reuse=0.0, wide=False, many=False, inside=False):
        self.rng, self.element, self.reuse, self.wide, self.many, self.inside = rng, element, reuse, wide, many, inside
        self.program = program.Program()
        self.values = []
        #: Sums over ranges of rows, which are not judged one by one.
        self.partial = set()
        self.batch, self.length = self.between(1, 2), self.pick([130, 210, 260] if many else LENGTHS)

    # --- Choices ---

    def pick(self, options):
        return options[int(self.rng.integers(len(options)))]

    def between(self, first, last):
        return int(self.rng.integers(first, last + 1))

    def chance(self, probability):
        return bool(self.rng.random() < probability)

    # --- Values ---

    def argument(self, array, element=None):
        element = element or ("i32" if np.issubdtype(np.asarray(array).dtype, np.integer) else self.element)
        value = program.Value(store(array, element), element)
        self.program.arguments.append(value)
        self.values.append(value)
        return value

    def find(self, fits):
        """A value that is there and of moderate size, newer ones more often."""
        found = [v for v in self.values if v.element != "i32" and fits(v) and np.abs(v.array).max(initial=0) < 30]
        return found[-1 - min(self.rng.geometric(0.3) - 1, len(found) - 1)] if found else None

    def normal(self, *shape, element=None, scale=1.0):
        element = element or self.element
        if self.chance(self.reuse):
            value = self.find(lambda v: v.element == element and v.array.shape == shape)
            if value is not None:
                return value
        return self.argument(scale * self.rng.standard_normal(shape), element)

    def scalar(self, value):
        return self.argument(np.asarray(float(value)), "f32")

    def tensor(self, rank=None):
        """Any values in the activations' type."""
        if self.chance(self.reuse):
            value = self.find(lambda v: v.element == self.element and v.array.ndim and
                              (rank is None or v.array.ndim == rank))
            if value is not None:
                return value
        rank = rank or self.between(1, 3)
        many = not self.reuse and self.chance(0.3)  # partial sums of several levels
        shape = (self.batch, self.length) if rank == 3 else (self.pick([700, 3000]) if many else self.between(1, 40),) * (rank - 1)
        return self.normal(*shape, self.pick([1, 3, 16, 20, 40]), scale=self.pick([0.5, 1, 3]))

    def like(self, value, element=None):
        return self.normal(*value.array.shape, element=element or value.element)

    def heads(self, heads, width, rows=None, scale=1.0):
        """[B, S, heads, width], projected from an activation where values are reused."""
        rows = self.length if rows is None else rows
        if rows == self.length and self.chance(self.reuse):
            x = self.find(lambda v: v.element == self.element and v.array.shape[:-1] == (self.batch, self.length))
            if x is not None:
                w = self.normal(x.array.shape[-1], heads * width, scale=x.array.shape[-1] ** -0.5)
                y = self.op("nn.matmul", lhs=x, rhs=w)[0]
                return self.op("nn.split_heads", input=y, heads=heads)[0]
        return self.normal(self.batch, rows, heads, width, scale=scale)

    def table(self, positions, width):
        angles = np.arange(positions)[:, None] * 100.0 ** (-2 * np.arange(width // 2) / width)
        return self.argument(np.stack([np.cos(angles), np.sin(angles)], -1), "f32")

    def start(self):
        """Sequences of any lengths in each row; one of a single token often."""
        rows = np.zeros((self.batch, self.length), np.int32)
        for row in rows:
            t = 0
            while t < self.length:
                size = self.pick([1, self.between(1, 20), self.between(1, self.length)])
                row[t:t + size] = t
                t += size
        return self.argument(rows)

    def at(self, tokens=None):
        """Where some rows of queries begin in sequences of so many tokens, several often in one, and how many queries each has."""
        tokens = tokens or self.length
        rows, length = self.between(1, 3), self.between(1, tokens)
        at = np.stack([self.rng.integers(0, n, rows) for n in (self.batch, tokens - length + 1)], 1)
        return self.argument(at.astype(np.int32)), rows, length

    def op(self, name, **given):
        made = program.build(name, **given)
        self.program.ops.append(made)
        if given.get("partial_sums"):
            # Where ranges begin is up to the compiler: the sum of their sums is not.
            self.partial.add(made.results[-1])
            total = self.op("nn.sum_rows", input=made.results[-1])
            self.values += made.results[:-1]
            return [*made.results[:-1], *total]
        # No gradient flows through lse, rstd and count.
        self.values += made.results[:1] if name in STATISTICS else made.results
        return made.results

    def given(self, name, **given):
        """What an operation gives, as arguments."""
        return [self.argument(v.array, v.element) for v in program.build(name, **given).results]

    def finish(self):
        used = {v for op in self.program.ops for v in op.inputs()}
        made = [v for op in self.program.ops for v in op.results]
        self.program.results = [v for v in made if v not in used] or made[-1:]
        return self.program


def grow(b, name):
    if name.endswith("_backward"):
        make_backward(b, name)
    else:
        SAMPLES[name](b)


def make_backward(b, name):
    """The operation NAME_backward of a NAME that is made up: what that gives is rounded as it is stored."""
    forward, declared = None, declarations.read()[name]
    while forward is None or f"{forward.name}_backward" != name:
        SAMPLES[name.removesuffix("_backward")](b)
        forward = b.program.ops.pop()
        b.values = [v for v in b.values if v not in forward.results]
    given, grads = dict(forward.attributes), iter(forward.results)
    results = dict(zip([r.name for r in forward.declaration.results], forward.results))
    for operand in declared.operands:
        if operand.name.endswith("_grad"):
            given[operand.name] = b.like(next(grads))
        elif operand.name in results:
            given[operand.name] = b.argument(results[operand.name].array, results[operand.name].element)
        else:
            given[operand.name] = forward.operands.get(operand.name)
    given |= {"logits_type": b.element} | {"vocab": len(x.array) for key, x in forward.operands.items() if key == "table"}
    rows = rows_of(forward.results[0]) // (forward.results[0].array.shape[-2] if name == "nn.gate_backward" else 1)
    given |= partial_sums(b, rows)
    known = {o.name for o in declared.operands} | {a.name for a in declared.attributes}
    b.op(name, **{key: x for key, x in given.items() if key in known})


#: Sizes of schedules: what they are multiples of, and of how many at most; and those that kernels have.
SIZES = {"queries": (16, 6), "keys": (16, 6), "selected_queries": (1, 20), "selected_keys": (1, 64), "gathered_queries": (1, 20),
         "blocks": (1, 40)}
KERNELS = {kernel: ("queries", "keys") for kernel in ("forward", "rotary_forward", "query_grad", "key_value_grad")} | {
    kernel: ("queries", "keys", "selected_queries", "selected_keys") for kernel in ("selected_forward", "selected_query_grad")} | {
    "selected_key_value_grad": ("selected_keys", "gathered_queries"), "select": ("queries", "blocks")}


def choose_options(b, made):
    """For every second program with attention, sizes that the compiler would not choose, masks in place of lists, and what
    kernels take whose first schedules are refused."""
    if b.chance(0.5) or not any(op.name.startswith("nsa.") and "attention" in op.name or op.name == "nsa.select"
                                for op in made.ops):
        return made
    kind = b.pick(["tiles", "tiles", "schedules", "masks"])
    if kind == "tiles":
        made.options["schedules"] = {
            kernel: {name: SIZES[name][0] * b.between(1, SIZES[name][1]) for name in names if b.chance(0.75)}
            for kernel, names in KERNELS.items()}
    elif kind == "schedules":
        made.options["refused"] = b.between(1, 11)
    if kind == "masks" or kind == "schedules" and b.chance(0.3):
        made.options |= program.form("masks")
    return made


def make_one(name, rng, element, wide=False, inside=False):
    """A program of one operation."""
    b = Builder(rng, element, wide=wide, inside=inside)
    while not any(op.name == name for op in b.program.ops):
        grow(b, name)
    ops = [op for op in b.program.ops if op.name == name or b.partial.intersection(op.inputs())]
    b.program.results = [v for op in ops for v in op.results if v not in b.partial]
    return choose_options(b, b.program.without_dead())


#: What programs of many operations are made of: layers, and what lies between them.
PIECES = ["layer"] * 4 + ["nsa.attention"] * 3 + ["nn.matmul"] * 4 + ["nn.add"] * 4 + ["nn.rms_norm"] * 3 + [
    "nn.silu", "nn.swiglu", "nn.gate", "nn.rotary", "nn.split_heads", "nn.merge_heads", "nn.concat", "nn.add_bias", "nn.scale",
    "nn.softcap", "nn.cast", "nn.embedding", "nn.cross_entropy", "nsa.compress", "nsa.combine"]
#: What has no gradient, besides.
FORWARD = ["nn.sum_rows", "nn.rms_norm_backward", "nn.silu_backward", "nn.swiglu_backward", "nn.fill", "nn.adamw",
           "nn.normalize", "nn.batch_matmul", "nsa.combine_backward", "nsa.select", "nn.gate_backward",
           "nsa.attention_backward", "nsa.compress_key_value"]


def make_graph(rng, element, size, wide=False):
    """A program of about `size` operations."""
    b = Builder(rng, element, reuse=0.8, wide=wide)
    while len(b.program.ops) < size:
        grow(b, b.pick(PIECES + FORWARD))
    made = b.finish()
    made.results.append(b.pick([v for op in made.ops for v in op.results if v not in b.partial]))
    update_states(b, made)
    return choose_options(b, made)


def update_states(b, made):
    """Leaves some results, also arguments as they are, in the memory of arguments of their types."""
    for v in dict.fromkeys([*made.results, *(a for a in made.arguments if b.chance(0.1))]):
        fits = [a for a in made.arguments if a.type == v.type and a.element != "i32" and a not in made.updates.values()]
        if fits and b.chance(0.6):
            made.updates[v] = b.pick(fits)
            made.results += [v] if v not in made.results else []


def make_gradient(rng, element, size, wide=False, many=False, inside=False):
    """The same, differentiated; with `many` or `inside`, a layer and what is added to it."""
    while True:
        b = Builder(rng, element, reuse=0.8, wide=wide, many=many, inside=inside)
        if many or inside:
            grow(b, "layer")
        while len(b.program.ops) < size:
            grow(b, b.pick(PIECES))
        made = b.finish()
        # Through statistics no gradient flows.
        objectives = [op.results[0] for op in made.ops if op.results[0] in made.results and op.results[0].element != "i32"]
        if not objectives:
            continue
        made.results = [b.pick(objectives), *(v for v in made.results if b.chance(0.3))]
        made.results = list(dict.fromkeys(made.results))
        made.wanted = made.reaching()
        made.wanted = [v for v in made.wanted if b.chance(0.7)] or made.wanted[:1]
        if made.wanted:
            if made.results[0].array.ndim:
                made.seed = store(rng.standard_normal(made.results[0].array.shape), made.results[0].element)
            return choose_options(b, made.without_dead())


def make_model(rng, size):
    """A model to train: results are the loss and the logits; `wanted` are the parameters."""
    b = Builder(rng, reuse=0.8)
    for _ in range(size):
        grow(b, b.pick([p for p in PIECES if p not in ("nn.cast", "nn.cross_entropy")]))
    found = [v for v in b.values if v.array.ndim == 3 and v.array.size and v.element == "f32" and v not in b.program.arguments]
    x = b.pick(found) if found else b.normal(b.batch, b.length, 16)
    x, _ = b.op("nn.rms_norm", input=x, weight=b.normal(x.array.shape[2], element="f32"), eps=1e-5)
    logits, = b.op("nn.matmul", lhs=x, rhs=b.normal(x.array.shape[2], 19, scale=x.array.shape[2] ** -0.5))
    targets = b.argument(rng.integers(-1, 19, logits.array.shape[:2]))
    loss = b.op("nn.cross_entropy", logits=logits, targets=targets)[0]
    b.program.results = [loss, logits]
    b.program.wanted = [v for v in b.program.reaching() if v.element == "f32"]
    return b.program.without_dead()


def training_text(model):
    """A model as the compiler trains it."""
    text = model.text().replace("@main", "@model").replace(") {\n", ") attributes {nn.train} {\n", 1)
    for v in model.wanted:
        i = model.arguments.index(v)
        decay = ", nn.decay" if i % 2 else ""
        text = text.replace(f'"a{i}"}}', f'"a{i}", nn.role = "parameter", nn.init = #nn.init<constant, 0.0>{decay}}}', 1)
    return re.sub('"r1"', '"logits"', text.replace('"r0"', '"loss"'))


# --- nn ----------------------------------------------------------------------


@sample("nn.embedding")
def _(b):
    table = b.normal(b.pick([b.between(1, 19), 300]), b.pick([1, 12, 24]))
    ids = b.rng.integers(-1, len(table.array) + 1, (b.batch, b.length))
    b.op("nn.embedding", table=table, ids=b.argument(ids))


@sample("nn.matmul")
def _(b):
    x = b.tensor()
    # Of a matrix only, where it may be differentiated.
    flags = {"transpose_lhs": b.chance(0.3) and (x.array.ndim == 2 or not b.reuse), "transpose_rhs": b.chance(0.5)}
    rows, inner = rows_of(x), x.array.shape[-1]
    inner = rows if flags["transpose_lhs"] else inner
    columns = b.pick([1, 12, 20, 48])
    w = b.normal(*((columns, inner) if flags["transpose_rhs"] else (inner, columns)), scale=inner ** -0.5)
    kind = "f32" if b.chance(0.2) else None
    shape = (x.array.shape[-1], columns) if flags["transpose_lhs"] else (*x.array.shape[:-1], columns)
    accumulator = b.normal(*shape, element=kind) if b.chance(0.2) else None
    b.op("nn.matmul", lhs=x, rhs=w, accumulator=accumulator, **flags, **({"result_type": kind} if kind else {}))


@sample("nn.add_bias")
def _(b):
    x = b.tensor()
    b.op("nn.add_bias", input=x, bias=b.normal(x.array.shape[-1], element="f32"))


def partial_sums(b, rows):
    return {"partial_sums": min(b.pick([1, 4, 33]), rows)} if b.chance(0.4) else {}


def rows_of(x):
    return int(np.prod(x.array.shape[:-1]))


@sample("nn.sum_rows")
def _(b):
    x = b.tensor()
    b.op("nn.sum_rows", input=x, **partial_sums(b, rows_of(x)))


def norm_operands(b, x):
    return {"input": x, "weight": b.normal(x.array.shape[-1], element="f32"), "plus_one": b.chance(0.3)}


@sample("nn.rms_norm")
def _(b):
    b.op("nn.rms_norm", **norm_operands(b, b.tensor()), eps=b.pick([1e-5, 0.1]))


@sample("nn.rotary")
def _(b):
    stride, inverse = b.pick([1, 1, 4]), b.chance(0.3)
    start = b.start() if b.chance(0.3) and b.length >= stride else None
    rows = b.length // stride if start else b.length
    heads, width = b.between(1, 3), b.pick([2, 16, 24])
    at, *sizes = b.at(rows) if b.inside else (None,)
    x = b.normal(*sizes, heads, width) if b.inside else b.heads(heads, width, rows)
    table = b.table(max(b.length * stride, 1), width)
    b.op("nn.rotary", input=x, table=table, start=start, at=at, stride=stride, inverse=inverse)


@sample("nn.split_heads")
def _(b):
    heads = b.between(1, 4)
    b.op("nn.split_heads", input=b.normal(b.batch, b.length, heads * b.pick([1, 4, 16])), heads=heads)


@sample("nn.merge_heads")
def _(b):
    b.op("nn.merge_heads", input=b.tensor(rank=4) if b.reuse else b.normal(b.batch, b.length, 3, 4))


@sample("nn.split", "nn.concat")
def _(b):
    x, rows = b.tensor(), b.chance(0.3)
    size = x.array.shape[0 if rows else -1]
    if size < 2:
        x, rows, size = b.normal(b.batch, b.length, 20), False, 20
    cut = b.between(1, size - 1)
    parts = b.op("nn.split", input=x, sizes=[cut, size - cut], rows=rows)
    parts = [b.op("nn.silu", input=parts[0])[0], *parts[1:], b.like(parts[0])]
    b.op("nn.concat", parts=parts if not rows or x.array.ndim > 1 else parts, rows=rows)


@sample("nn.gate")
def _(b):
    activation = b.pick(["sigmoid", "softmax"])
    heads, branches = b.between(1, 4), b.pick([1, 2, 3, 3, 5] if activation == "sigmoid" else [2, 3, 3, 5])
    logits = b.normal(b.batch, b.length, heads * branches, scale=3)
    bias = b.normal(heads * branches, element="f32") if b.chance(0.5) else None
    b.op("nn.gate", activation=activation, logits=logits, bias=bias, branches=branches)


@sample("nn.silu", "nn.gelu", "nn.squared_relu")
def _(b):
    b.op(b.pick(["nn.silu", "nn.gelu", "nn.squared_relu"]), input=b.tensor())


@sample("nn.swiglu", "nn.geglu")
def _(b):
    x = b.tensor()
    b.op(b.pick(["nn.swiglu", "nn.geglu"]), gate=x, up=b.like(x))


@sample("nn.scale")
def _(b):
    b.op("nn.scale", input=b.tensor(), factor=b.pick([0.25, 2.5]))


@sample("nn.softcap")
def _(b):
    b.op("nn.softcap", input=b.tensor(), cap=b.pick([1.5, 30.0]))


@sample("nn.add")
def _(b):
    x = b.tensor()
    b.op("nn.add", lhs=x, rhs=b.like(x))


@sample("nn.cast")
def _(b):
    y = b.op("nn.cast", input=b.tensor(), element_type=b.pick(["f32", "bf16", "f16"]))[0]
    if y.element != b.element:
        b.op("nn.cast", input=b.op("nn.scale", input=y, factor=0.5)[0], element_type=b.element)


@sample("nn.cast_all")
def _(b):
    inputs = [b.normal(*shape, element="f32", scale=100) for shape in [(33, 7), (2000,), (1,), (3, 4, 5)]]
    b.op("nn.cast_all", inputs=inputs, element_type=b.pick(["bf16", "f16"]))


@sample("nn.fill", "nn.all_reduce", "nn.recompute_barrier")
def _(b):
    x = b.normal(b.between(1, 40), b.between(1, 40), element="f32")
    y = b.op("nn.fill", value=-1.5, result_type=x.type)[0]
    y = b.op("nn.recompute_barrier", input=b.op("nn.all_reduce", input=x)[0])[0]
    b.op("nn.add", lhs=x, rhs=y)


def loss_operands(b, shape=None):
    vocab = b.pick([1, 17, 70, 300])
    shape = shape or (b.batch, b.length)
    targets = b.rng.integers(0, vocab, shape)
    targets = np.where(b.rng.random(shape) < b.pick([0, 0.3, 1.1]), -1, targets)
    return b.normal(*shape, vocab, scale=3), b.argument(targets)


@sample("nn.argmax")
def _(b):
    vocab = b.pick([1, 17, 300, 5000])
    bias = np.where(b.rng.random(vocab) < b.pick([0, 0.4]), -64.0, 0.0)
    b.op("nn.argmax", logits=b.normal(b.between(1, 3), 1, vocab, scale=3), bias=b.argument(bias, "f32"))


@sample("nn.draw")
def _(b):
    batch, vocab, kept = b.pick([1, 2, 3, 20]), b.pick([1, 17, 300, 5000]), b.pick([1, 8])
    grain = b.pick([2.0**-20, 0.25])
    logits = b.argument(np.rint(b.rng.standard_normal((batch, 1, vocab)) * b.pick([0.01, 3]) / grain) * grain)
    bias = b.argument(np.where(b.rng.random(vocab) < b.pick([0, 0.4]), -64.0, 0.0), "f32")
    best = np.where(b.chance(0.1), -1, np.argmax(logits.array[:, 0] + bias.array, axis=-1))[:, None]

    def fractions(x):
        return b.argument((np.int64(x * 2.0**36)[..., None] >> np.array([24, 12, 0])) & np.array([-1, 4095, 4095]))

    b.op("nn.draw", logits=logits, bias=bias, best=b.argument(best), uniforms=fractions(b.rng.random((batch, kept))),
         positions=b.argument(b.rng.integers(-1, 20, batch)), inverse=b.argument(b.rng.choice([0, 1, 1 / 0.7, 1 / 3, 50], batch), "f32"),
         top_k=b.argument(b.rng.choice([0, 1, 5, 40, vocab + 1], batch)),
         top_p=fractions(b.rng.choice([1, 0.9, 0.5, 1e-9, 1 - 2.0**-36], batch)))


@sample("nn.cross_entropy")
def _(b):
    logits, targets = loss_operands(b)
    b.op("nn.cross_entropy", logits=logits, targets=targets, over_all=b.chance(0.4))


@sample("nn.cross_entropy_chunk", "nn.mean_loss", "nn.count_targets")
def _(b):
    rows = b.between(1, b.batch * b.length)
    first = b.between(0, b.batch * b.length - rows)
    _, targets = loss_operands(b)
    logits = b.normal(rows, int(targets.array.max(initial=0)) + b.between(1, 40), scale=4)
    count, = b.op("nn.count_targets", targets=targets, over_all=b.chance(0.3))
    count = count if count.array > 0 else b.scalar(1)
    losses = b.op("nn.cross_entropy_chunk", logits=logits, targets=targets, count=count,
                  loss_grad=b.scalar(0.75) if b.chance(0.7) else None, first=first)[0]
    b.op("nn.mean_loss", count=count, losses=[losses, b.normal(7, element="f32")])


@sample("nn.split_rows", "nn.concat_rows")
def _(b):
    x = b.normal(b.batch, b.length, 23)
    rows = b.batch * b.length
    cut = b.between(1, rows)
    parts = b.op("nn.split_rows", input=x, rows=[cut, rows - cut] if cut < rows else [rows])
    b.op("nn.concat_rows", parts=[b.op("nn.silu", input=parts[0])[0], *parts[1:]], shape=x.array.shape)


def update_operands(b, shape):
    """Gradient, norm, loss and hyper; what is not finite updates nothing."""
    gradient = b.normal(*shape, element="f32")
    norm = np.sqrt((gradient.array**2).sum())
    clip, scale = b.pick([0.0, 0.5, 1e6]), b.pick([1.0, 0.25])
    hyper = [1e-2, 0.9, 0.95, 1e-8, 0.1, clip, scale, b.between(1, 9)]
    norm, loss = b.pick([(norm, 1.0), (norm, 1.0), (norm, np.inf), (norm, np.nan), (np.inf, 1.0), (np.nan, 1.0)])
    return {"gradient": gradient, "norm": b.scalar(norm), "loss": b.scalar(loss), "hyper": b.argument(np.array(hyper), "f32")}


@sample("nn.adamw", "nn.lion", "nn.momentum", "nn.take_step")
def _(b):
    shape = b.pick([(13, 20), (1,), (300, 17)])
    w, m = (b.normal(*shape, element="f32") for _ in range(2))
    m.array[0] = 0
    given = update_operands(b, shape)
    given["gradient"].array[0] = 0
    b.op("nn.adamw", weight=w, moment1=m, moment2=b.argument(b.rng.random(shape), "f32"), **given, decay=b.chance(0.5))
    b.op("nn.lion", weight=w, ema=m, **given, decay=b.chance(0.5))
    b.op("nn.momentum", momentum=m, **given)
    given.pop("gradient")
    b.op("nn.take_step", weight=w, direction=b.normal(*shape), **given, scale=0.5, decay=b.chance(0.5))


@sample("nn.muon")
def _(b):
    shape = b.pick([(12, 20), (20, 12), (8, 8)])
    w, m = (b.normal(*shape, element="f32") for _ in range(2))
    kind = {} if b.element == "f32" else {"element_type": b.element}
    b.op("nn.muon", weight=w, momentum=m, **update_operands(b, shape), decay=b.chance(0.5), **kind)


@sample("nn.normalize")
def _(b):
    x = b.normal(3 * b.pick([1, 5, 130]), b.pick([1, 5, 70]), element="f32")
    x.array[:len(x.array) // 3] *= b.pick([0, 1])
    b.op("nn.normalize", input=x, batch=3, result_type=b.element)


@sample("nn.batch_matmul")
def _(b):
    batch, rows, inner, columns = b.between(1, 5), b.pick([1, 17]), b.pick([1, 12]), b.pick([1, 20])
    flags = {"transpose_lhs": b.chance(0.5), "transpose_rhs": b.chance(0.5)}
    lhs = (inner, rows) if flags["transpose_lhs"] else (rows, inner)
    rhs = (columns, inner) if flags["transpose_rhs"] else (inner, columns)
    addend = b.normal(batch * rows, columns) if b.chance(0.5) else None
    b.op("nn.batch_matmul", lhs=b.normal(batch * lhs[0], lhs[1]), rhs=b.normal(batch * rhs[0], rhs[1]), addend=addend,
         alpha=0.5, beta=-3.0 if addend else 0.0, batch=batch, **flags)


@sample("nn.accumulate_rows", "nn.gradient_norm", "nn.root_of_mean")
def _(b):
    shapes = [(b.pick([1, 36, 64]), b.pick([1, 3, 700])) for _ in range(b.between(1, 4))]
    sums = [b.normal(width, element="f32") for _, width in shapes]
    totals = b.op("nn.accumulate_rows", sums=sums, rows=[b.normal(*s, element="f32") for s in shapes])
    mean, = b.op("nn.gradient_norm", gradients=[*totals, b.normal(1, 2, 3, element="f32")], squared=b.chance(0.5))
    b.op("nn.root_of_mean", mean=mean, ranks=4)


@sample("nn.average_step", "nn.update_loss_scale")
def _(b):
    hyper = b.argument(np.array([1e-2, 0.9, 0.95, 1e-8, 0.1, 1.0, 0.5, 40]), "f32")
    b.op("nn.average_step", hyper=hyper, loss=b.scalar(1.7), count=b.scalar(b.pick([0, 0.25, 3])))
    norm, loss = b.pick([(6.5, 2.0), (6.5, 2.0), (6.5, np.inf), (6.5, np.nan), (np.inf, 2.0), (np.nan, 2.0)])
    scale, streak = b.pick([(1024.0, 3.0), (1024.0, 99.0), (2.0**24, 99.0), (1.0, 98.0)])
    b.op("nn.update_loss_scale", hyper=hyper, norm=b.scalar(norm), loss=b.scalar(loss), scale=b.scalar(scale),
         streak=b.scalar(streak), skipped=b.scalar(5), growth_interval=100)
