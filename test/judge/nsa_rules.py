"""The nsa dialect in float64, from its definitions alone: dense masks, one sequence at a time."""

import dataclasses

import numpy as np

from nn_rules import rotate, silu_slope, sigmoid
from rules import call, gradient, rule

# --- Visibility --------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Visibility:
    """An attribute `#nsa.kind<parameters>`."""
    kind: str
    parameters: tuple = ()

    def __getattr__(self, name):
        try:
            return dict(self.parameters)[name]
        except KeyError:
            raise AttributeError(name) from None

    def __str__(self):
        if not self.parameters:
            return f"#nsa.{self.kind}"
        fields = [str(v) if self.kind == "window" else f"{k} = {v}" for k, v in self.parameters]
        return f"#nsa.{self.kind}<{', '.join(fields)}>"

    def sees(self, t, i):
        """Whether query t sees key i, as far as no indices say otherwise."""
        if self.kind == "compressed":
            return i * self.stride + self.block - 1 <= t
        if self.kind == "window":
            return (i <= t) & (i > t - self.window)
        if self.kind == "strided":
            return (i <= t) & ((t // self.block - i // self.block) % self.stride == 0)
        return i <= t

    def keys(self, length):
        return blocks_of(length, self.block, self.stride) if self.kind == "compressed" else length


def visibility(kind, **parameters):
    return Visibility(kind, tuple(parameters.items()))


def blocks_of(length, block, stride):
    return (length - block) // stride + 1 if length >= block else 0


# --- Packed sequences --------------------------------------------------------


def einsum(subscripts, lhs, rhs):
    """By a product of matrices, where NumPy's own loops take long."""
    return np.einsum(subscripts, lhs, rhs, optimize=True)


def sequences(start):
    """Row, first token and length of each."""
    for b, row in enumerate(start):
        begins = [t for t in range(len(row)) if t == 0 or row[t] == t]
        for begin, end in zip(begins, [*begins[1:], len(row)]):
            yield b, begin, end - begin


def one_by_one(start, axes, outputs, evaluate, inputs, block=1, stride=1, otherwise=0.0):
    """The results of `evaluate` for each sequence, put where its rows lie. `axes` and `outputs` say of each array
    what its rows are: "tokens", "heads" (tokens after the heads), "blocks", or None for what sequences share (a sum)."""
    if start is None:
        return evaluate(*inputs)

    def place(axis, b, begin, length):
        rows = slice(begin, begin + length)
        if axis == "blocks":
            rows = slice(begin // stride, begin // stride + blocks_of(length, block, stride))
        return (slice(b, b + 1), slice(None), rows) if axis == "heads" else (slice(b, b + 1), rows)

    results = None
    for where in sequences(start):
        own = evaluate(*[x[place(axis, *where)] if axis else x for x, axis in zip(inputs, axes)])
        if results is None:
            results = []
            for y, axis in zip(own, outputs):
                shape = list(y.shape)
                if axis:
                    shape[0] = len(start)
                    shape[2 if axis == "heads" else 1] = start.shape[1] // stride if axis == "blocks" else start.shape[1]
                results.append(np.full(shape, otherwise if axis else 0.0))
        for total, y, axis in zip(results, own, outputs):
            if axis:
                total[place(axis, *where)] = y
            else:
                total += y
    return tuple(results)


def inside(at, start, axes, outputs, evaluate, inputs, block=1, stride=1, otherwise=0.0, keys=(), sums_of_keys=0):
    """The same of rows of queries that begin where `at` says, each among queries of zeros. `keys` are the inputs that belong
    to the sequences; so many results at the end are of these, sums over rows."""
    if at is None:
        return one_by_one(start, axes, outputs, evaluate, inputs, block, stride, otherwise)
    length = inputs[0].shape[1]
    results = None
    for b, (s, p) in enumerate(at):
        own = []
        for i, (x, axis) in enumerate(zip(inputs, axes)):
            if i in keys:
                own.append(x[s:s + 1])
                continue
            before, after = p, tokens_of(at, start, length) - p - length
            widths = [(0, 0)] * x.ndim
            widths[2 if axis == "heads" else 1] = before, after
            own.append(np.pad(x[b:b + 1], widths, constant_values=-1 if x.dtype.kind == "i" else 0))
        found = one_by_one(None if start is None else start[s:s + 1], axes, outputs, evaluate, own, block, stride, otherwise)
        sums = found[len(outputs) - sums_of_keys:]
        rows = [y.take(np.arange(p, p + length), 2 if axis == "heads" else 1)
                for y, axis in zip(found[:len(found) - sums_of_keys], outputs)]
        if results is None:
            results = [[] for _ in rows] + [np.zeros((len(inputs[i]), *y.shape[1:])) for i, y in zip(keys, sums)]
        for result, row in zip(results, rows):
            result.append(row)
        for total, y in zip(results[len(rows):], sums):
            total[s] += y[0]
    return tuple(np.concatenate(x) if isinstance(x, list) else x for x in results)


def positions_of(at, batch, length):
    """Where queries are in their rows, [B, S]."""
    return np.tile(np.arange(length), (batch, 1)) + (0 if at is None else at[:, 1:])


def tokens_of(at, start, length):
    """The tokens of the sequences that queries are of, as many as matter."""
    if start is not None:
        return start.shape[1]
    return length if at is None else at[:, 1].max() + length


# --- Compression -------------------------------------------------------------


def named_parameters(kind, parameters):
    """Weight, output weight and positions, None for what is not there."""
    weights = {"mean": 0, "linear": 1, "mlp": 2}[kind]
    found = list(parameters[:weights]) + [None] * (2 - weights)
    return (*found, parameters[weights] if len(parameters) > weights else None)


def gather_blocks(x, block, stride, positions):
    """[B, Nc, H, block * D]"""
    b, length, h, d = x.shape
    rows = blocks_of(length, block, stride)
    u = np.zeros((b, rows, h, block, d))
    for i in range(rows):
        u[:, i] = x[:, i * stride:i * stride + block].transpose(0, 2, 1, 3)
    return (u if positions is None else u + positions).reshape(b, rows, h, block * d)


def compress_one(c, kind, block, stride, x, *parameters):
    weight, output_weight, positions = named_parameters(kind, parameters)
    u = gather_blocks(x, block, stride, positions)
    if weight is None:
        return (u.reshape(*u.shape[:3], block, x.shape[3]).mean(3),)
    z = einsum("bihr,hre->bihe", u, weight)
    if output_weight is None:
        return (z,)
    return (einsum("bihc,hce->bihe", c.inner(z * sigmoid(z)), output_weight),)


def compress_backward_one(c, kind, block, stride, dy, x, *parameters):
    weight, output_weight, positions = named_parameters(kind, parameters)
    b, _, h, d = x.shape
    u = gather_blocks(x, block, stride, positions)
    grads = []
    if weight is None:
        du = np.repeat(dy[:, :, :, None] / block, block, axis=3)
    else:
        dz = dy
        if output_weight is not None:
            z = einsum("bihr,hre->bihe", u, weight)
            grads.append(einsum("bihc,bihe->hce", c.inner(z * sigmoid(z)), dy))
            dz = c.inner(einsum("bihe,hce->bihc", dy, output_weight) * silu_slope(z))
        grads.insert(0, einsum("bihr,bihe->hre", u, dz))
        du = einsum("bihe,hre->bihr", dz, weight).reshape(b, dy.shape[1], h, block, d)
        if positions is not None:
            grads.append(du.sum((0, 1)))
    dx = np.zeros_like(x)
    for i in range(dy.shape[1]):
        dx[:, i * stride:i * stride + block] += du[:, i].transpose(0, 2, 1, 3)
    return (dx, *grads)


@rule("nsa.compress")
def compress(c, kind, input, parameters, start, compressed):
    sizes = compressed.block, compressed.stride
    return one_by_one(start, ["tokens"] + [None] * len(parameters), ["blocks"],
                      lambda *x: compress_one(c, kind, *sizes, *x), [input, *parameters], *sizes)


@rule("nsa.compress_backward")
def compress_backward(c, kind, output_grad, input, parameters, start, compressed):
    sizes, shared = (compressed.block, compressed.stride), [None] * len(parameters)
    return one_by_one(start, ["blocks", "tokens", *shared], ["tokens", *shared],
                      lambda *x: compress_backward_one(c, kind, *sizes, *x), [output_grad, input, *parameters], *sizes)


@rule("nsa.compress_key_value")
def compress_key_value(c, kind, key, value, key_parameters, value_parameters, table, start, compressed):
    keys, = call(c, "nsa.compress", kind=kind, input=key, parameters=key_parameters, start=start, compressed=compressed)
    values, = call(c, "nsa.compress", kind=kind, input=value, parameters=value_parameters, start=start,
                   compressed=compressed)
    if table is not None:
        keys, = call(c, "nn.rotary", input=c.inner(keys), table=table, start=start, stride=compressed.stride)
    return keys, values


@rule("nsa.compress_key_value_backward")
def compress_key_value_backward(c, kind, key_grad, value_grad, key, value, key_parameters, value_parameters, start,
                                compressed):
    sides = [call(c, "nsa.compress_backward", kind=kind, output_grad=dy, input=x, parameters=parameters, start=start,
                  compressed=compressed)
             for dy, x, parameters in ((key_grad, key, key_parameters), (value_grad, value, value_parameters))]
    return (sides[0][0], sides[1][0], *sides[0][1:], *sides[1][1:])


# --- Attention ---------------------------------------------------------------


def group(x, heads):
    """The heads of keys for each of the queries' heads: [B, N, Hkv, D] -> [B, Hq, N, D]."""
    return np.repeat(x, heads // x.shape[2], axis=2).transpose(0, 2, 1, 3)


def ungroup(x, kv_heads):
    b, hq, n, d = x.shape
    return x.reshape(b, kv_heads, hq // kv_heads, n, d).sum(2).transpose(0, 2, 1, 3)


def make_mask(visible, q, k, indices, t=None):
    """[B, Hq, S, N] of the queries t, which are all by default."""
    b, length, hq, _ = q.shape
    t = np.arange(length)[None, :, None] if t is None else t[:, :, None]
    i = np.arange(k.shape[1])[None, None, :]
    mask = np.broadcast_to(visible.sees(t, i), (b, length, k.shape[1]))[:, None]
    if indices is not None:
        mask = mask & (indices[..., None] == i[0, 0] // visible.block).any(3)
    return np.broadcast_to(np.repeat(mask, hq // mask.shape[1], 1), (b, hq, length, k.shape[1]))


def scores(c, q, k, scale, cap):
    """Also their derivatives by the products that `scale` is a factor of."""
    s = einsum("bhtd,bhud->bhtu", q.transpose(0, 2, 1, 3), group(k, q.shape[2])) * scale
    s = c.sum(s, np.abs(s))
    return (s, scale) if cap is None else (cap * np.tanh(s / cap), scale * (1 - np.tanh(s / cap)**2))


def probabilities(c, q, k, mask, how, lse=None):
    s = np.where(mask, scores(c, q, k, *how)[0], -np.inf)
    if lse is None:
        top = s.max(-1, initial=-np.inf)
        top = np.where(np.isfinite(top), top, 0.0)
        with np.errstate(divide="ignore"):
            lse = top + np.log(np.exp(s - top[..., None]).sum(-1))
    with np.errstate(over="ignore"):
        return np.exp(s - np.where(np.isfinite(lse), lse, 0.0)[..., None]), lse


def attend(c, visible, how, q, k, v, indices=None, t=None):
    p, lse = probabilities(c, q, k, make_mask(visible, q, k, indices, t), how)
    return einsum("bhtu,bhud->bthd", c.inner(p), group(v, q.shape[2])), lse


def attend_backward(c, visible, how, do, q, k, v, o, lse, indices=None):
    heads, kv_heads = q.shape[2], k.shape[2]
    p, _ = probabilities(c, q, k, make_mask(visible, q, k, indices), how, lse)
    do_h, q_h, v_h = do.transpose(0, 2, 1, 3), q.transpose(0, 2, 1, 3), group(v, heads)
    dp = einsum("bhtd,bhud->bhtu", do_h, v_h)
    size = np.abs(do * o).sum(-1).transpose(0, 2, 1)[..., None]
    ds = c.inner(p * c.sum(dp - (do * o).sum(-1).transpose(0, 2, 1)[..., None], size + np.abs(dp))) * scores(c, q, k, *how)[1]
    return (einsum("bhtu,bhud->bthd", ds, group(k, heads)),
            ungroup(einsum("bhtu,bhtd->bhud", ds, q_h), kv_heads),
            ungroup(einsum("bhtu,bhtd->bhud", c.inner(p), do_h), kv_heads))


def key_axis(visible):
    return ("blocks", visible.block, visible.stride) if visible.kind == "compressed" else ("tokens", 1, 1)


def how_of(query, scale, softcap):
    return query.shape[-1] ** -0.5 if scale is None else scale, softcap


@rule("nsa.attention")
def attention(c, query, key, value, indices, start, at, visibility, scale, softcap):
    keys, *sizes = key_axis(visibility)
    extra = [] if indices is None else [indices]
    return inside(at, start, ["tokens", keys, keys, "heads"], ["tokens", "heads"],
                  lambda *x: attend(c, visibility, how_of(query, scale, softcap), *x), [query, key, value, *extra], *sizes,
                  keys=(1, 2))


@rule("nsa.attention_backward")
def attention_backward(c, output_grad, query, key, value, output, lse, indices, start, at, visibility, scale, softcap):
    keys, *sizes = key_axis(visibility)
    extra = [] if indices is None else [indices]
    return inside(at, start, ["tokens", "tokens", keys, keys, "tokens", "heads", "heads"], ["tokens", keys, keys],
                  lambda *x: attend_backward(c, visibility, how_of(query, scale, softcap), *x),
                  [output_grad, query, key, value, output, lse, *extra], *sizes, keys=(2, 3), sums_of_keys=2)


@rule("nsa.rotary_attention")
def rotary_attention(c, query, key, value, keys, table, start, visibility, scale, softcap):
    turned = [c.inner(call(c, "nn.rotary", input=x, table=table, start=start)[0]) for x in (query, *keys)]
    return (*attention(c, turned[0], key, value, None, start, None, visibility, scale, softcap), *turned)


# --- Selection ---------------------------------------------------------------


def overlaps(rows, columns, compressed, block):
    """[rows, columns] tokens that compressed blocks and selection blocks share, in strides."""
    i, j = np.arange(rows)[:, None] * compressed.stride, np.arange(columns)[None] * block
    return np.maximum(np.minimum(i + compressed.block, j + block) - np.maximum(i, j), 0) / compressed.stride


def block_scores(c, compressed, selected, how, q, k, lse, t=None, context=None):
    """[B, Hkv, S, blocks], -inf where a block is no candidate."""
    b, length, hq, _ = q.shape
    p, _ = probabilities(c, q, k, make_mask(compressed, q, k, None, t), how, lse)
    p = p.reshape(b, k.shape[2], hq // k.shape[2], length, k.shape[1]).sum(2)
    columns = -(-(context or length) // selected.block)
    score = p @ overlaps(k.shape[1], columns, compressed, selected.block)
    t = np.arange(length)[None] if t is None else t
    return np.where(np.arange(columns) <= (t // selected.block)[:, None, :, None], score, -np.inf)


def forced_blocks(last, selected):
    """The blocks taken in any case, in order of entry."""
    order = [last, *range(selected.initial), *(last - n for n in range(1, selected.local))]
    return [j for j in dict.fromkeys(order) if 0 <= j <= last][:selected.count]


def choose(score, selected):
    """The indices [B, Hkv, S, count]."""
    indices = np.full((*score.shape[:3], selected.count), -1, np.int32)
    for place in np.ndindex(score.shape[:3]):
        last = int(np.isfinite(score[place]).sum()) - 1
        chosen = forced_blocks(last, selected)
        rest = sorted(set(range(last + 1)) - set(chosen), key=lambda j: (-score[place][j], j))
        chosen = sorted(chosen + rest[:selected.count - len(chosen)])
        indices[place][:len(chosen)] = chosen
    return indices


def find_gap(score, chosen, selected):
    """Of one query: how much better the worst of its blocks that is not forced is than the best block left; infinite
    where there is nothing to choose."""
    last = int(np.isfinite(score).sum()) - 1
    free, left = set(chosen) - set(forced_blocks(last, selected)) - {-1}, set(range(last + 1)) - set(chosen)
    return min(score[j] for j in free) - max(score[j] for j in left) if free and left else np.inf


def bad_choice(indices, score, selected, allowed):
    """What is wrong with a choice of blocks whose scores may be off by `allowed`, or nothing."""
    for place in np.ndindex(score.shape[:3]):
        last = int(np.isfinite(score[place]).sum()) - 1
        row, number = list(indices[place]), min(selected.count, last + 1)
        chosen = row[:number]
        if row[number:] != [-1] * (selected.count - number) or chosen != sorted(set(chosen) & set(range(last + 1))):
            return f"{row} is no list of {number} blocks up to {last} at {place}"
        forced = forced_blocks(last, selected)
        if not set(forced) <= set(chosen):
            return f"{row} is without one of {forced} at {place}"
        gap = find_gap(score[place], chosen, selected)
        if gap < -allowed:
            return f"{row} is not the best choice at {place}: {gap} between the scores"
        # Blocks that nothing visible overlaps tie on any machine: the lower one goes first.
        zeros = [j for j in range(last + 1) if score[place][j] == 0 and j not in forced]
        taken = [j for j in zeros if j in chosen]
        if taken != zeros[:len(taken)]:
            return f"{row} breaks a tie of {zeros} at {place}"
    return None


def scores_of(c, query, key, lse, start, at, compressed, selected, scale, softcap):
    columns = -(-tokens_of(at, start, query.shape[1]) // selected.block)

    def of_one(q, k, own_lse):
        score = block_scores(c, compressed, selected, how_of(query, scale, softcap), q, k, own_lse)
        return (np.pad(score, [(0, 0)] * 3 + [(0, columns - score.shape[3])], constant_values=-np.inf),)
    return inside(at, start, ["tokens", "blocks", "heads"], ["heads"], of_one, [query, key, lse], compressed.block,
                  compressed.stride, -np.inf, keys=(1,))[0]


@rule("nsa.select")
def select(c, query, key, lse, start, at, compressed, selected, scale, softcap):
    return choose(scores_of(c, query, key, lse, start, at, compressed, selected, scale, softcap), selected)


@gradient("nsa.select")
def _(c, o, dindices):
    return {}


# --- Combination, statistics -------------------------------------------------


@rule("nsa.combine")
def combine(c, gates, branches):
    return sum(gates[..., n, None] * x for n, x in enumerate(branches))


@rule("nsa.combine_backward")
def combine_backward(c, output_grad, gates, branches):
    grads = [c.sum((output_grad * x).sum(-1), np.abs(output_grad * x).sum(-1)) for x in branches]
    return (np.stack(grads, -1), *(gates[..., n, None] * output_grad for n in range(len(branches))))


@rule("nsa.gate_statistics")
def gate_statistics(c, gates):
    total = gates.sum(-1, keepdims=True)
    p = gates / np.where(total == 0, 1, total)
    entropy = -(p * np.log(np.where(p > 0, p, 1))).sum(-1).mean()
    return np.array([*gates.mean((0, 1, 2)), entropy])


@rule("nsa.selection_statistics")
def selection_statistics(c, indices, start, at, select_block):
    b, h, length, _ = indices.shape
    t, place = np.arange(length), positions_of(at, b, length)
    begin = np.zeros((b, length), int) if start is None else start[np.arange(b)[:, None] if at is None else at[:, :1], place]
    own = ((place - begin) // select_block)[:, None, :, None]
    chosen = indices >= 0
    named = np.where(chosen, indices + (begin // select_block)[:, None, :, None], -1)
    different = [len(set(named[i, j, t // select_block == n].ravel()) - {-1})
                 for i in range(b) for j in range(h) for n in range(-(-length // select_block))]
    far = np.where(chosen, own - indices, 0).sum() / max(chosen.sum(), 1)
    return np.array([chosen.sum(-1).mean(), far, np.mean(different)])


# --- Decoding ----------------------------------------------------------------


@rule("nsa.last_block")
def last_block(c, positions, compressed):
    over = positions - (compressed.block - 1)
    last = np.where(over >= 0, over // compressed.stride, -1)
    return last, np.where((over >= 0) & (over % compressed.stride == 0), last, -1)


def place_of(cache, pages, sequence, row):
    """Where a row of a cache is; None if it is in no page."""
    if pages is None:
        return sequence, row % cache.shape[1]
    column, inside = divmod(row, cache.shape[1])
    page = pages[sequence, column] if 0 <= column < pages.shape[1] else 0
    return (page - 1, inside) if page else None


def rows_of(cache, pages, sequence, rows):
    """Rows of a sequence, zeros where there is none."""
    places = (place_of(cache, pages, sequence, row) if row >= 0 else None for row in rows)
    return np.stack([np.zeros_like(cache[0, 0]) if place is None else cache[place] for place in places])


def write_row(cache, pages, sequence, row, values):
    if (place := place_of(cache, pages, sequence, row)) is not None:
        cache[place] = values


@rule("nsa.cache_append")
def cache_append(c, cache, row, index, pages):
    new = cache.copy()
    for b, i in enumerate(index):
        if i >= 0:
            write_row(new, pages, b, i, row[b, 0])
    return new


@rule("nsa.advance")
def advance(c, token, positions, ids, end, context):
    token, place, kept = token[:, 0], positions + 1, ids.copy()
    for b in np.flatnonzero(positions >= 0):
        kept[b, place[b] % ids.shape[1]] = token[b]
    return np.where((positions >= 0) & (token >= 0) & (token != end[0]) & (place < context), place, -1), kept


@rule("nsa.first_block")
def first_block(c, at, compressed):
    over = np.maximum(at[:, 1] - (compressed.block - compressed.stride), 0)
    return np.stack([at[:, 0], over // compressed.stride], 1)


@rule("nsa.cache_fill")
def cache_fill(c, cache, rows, last, at, pages):
    new, most = cache.copy(), cache.shape[1] * (1 if pages is None else pages.shape[1])
    for b, end in enumerate(last):
        s, first = (b, 0) if at is None else at[b]
        for i in range(rows.shape[1]):
            if end - most < first + i <= end:
                write_row(new, pages, s, first + i, rows[b, i])
    return new


@rule("nsa.cache_slice")
def cache_slice(c, cache, at, pages, count, stride):
    if pages is not None:
        return np.stack([rows_of(cache, pages, s, p * stride + np.arange(count)) for s, p in at])
    padded = np.pad(cache, [(0, 0), (0, cache.shape[1] * stride + count), (0, 0), (0, 0)])
    return np.stack([padded[s, p * stride:p * stride + count] for s, p in at])


@rule("nsa.cache_read")
def cache_read(c, cache, last, pages, count):
    return np.stack([rows_of(cache, pages, b, end - count + 1 + np.arange(count)) for b, end in enumerate(last)])


@rule("nsa.take_row")
def take_row(c, input, index, at):
    index = index - (0 if at is None else at[:, 1])
    rows = [x[i:i + 1] if 0 <= i < len(x) else np.zeros_like(x[:1]) for x, i in zip(input, index)]
    return np.stack(rows)


@rule("nsa.rotary_at")
def rotary_at(c, input, table, index, stride):
    place = index * stride
    inside = (place >= 0) & (place < len(table))
    angles = np.where(inside[:, None, None], table[np.where(inside, place, 0)], 0)
    return rotate(input, angles[:, None], False)


@rule("nsa.decode_attention")
def decode_attention(c, query, key, value, positions, indices, pages, visibility, scale, softcap):
    """Keys by their numbers: those that the caches hold are the last ones."""
    outputs, lses = [], []
    for b, t in enumerate(positions):
        count = visibility.keys(max(int(t) + 1, 0))
        keys, values = (np.stack([rows_of(x, pages, b, np.arange(count))]) if count else x[:1, :0] for x in (key, value))
        o, lse = attend(c, visibility, how_of(query, scale, softcap), query[b:b + 1], keys, values,
                        None if indices is None else indices[b:b + 1], np.array([[t]]))
        outputs.append(o)
        lses.append(lse)
    return np.concatenate(outputs), np.concatenate(lses)


@rule("nsa.decode_select")
def decode_select(c, query, key, lse, positions, compressed, selected, context, scale, softcap):
    return choose(decode_scores(c, query, key, lse, positions, compressed, selected, context, scale, softcap), selected)


def decode_scores(c, query, key, lse, positions, compressed, selected, context, scale, softcap):
    return block_scores(c, compressed, selected, how_of(query, scale, softcap), query, key, lse, positions[:, None], context)
