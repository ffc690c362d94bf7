"""The nn dialect in float64, from its definitions alone."""

import numpy as np

from rules import call, gradient, rule


def matrix(x):
    return x.reshape(-1, x.shape[-1])


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def chunks(rows, count, step=1):
    """Where ranges of equal length begin, the last ones maybe shorter or empty."""
    each = -(-rows // count)
    each += -each % step
    return [slice(min(i * each, rows), min((i + 1) * each, rows)) for i in range(count)]


def sum_over_rows(x, partial_sums, step=1):
    """Of a matrix; one sum, or one of each range."""
    if partial_sums is None:
        return x.sum(0)
    return np.stack([x[part].sum(0) for part in chunks(len(x), partial_sums, step)])


# --- Embedding and matmul ----------------------------------------------------


@rule("nn.embedding")
def embedding(c, table, ids):
    inside = (ids >= 0) & (ids < len(table))
    return np.where(inside[..., None], table[np.clip(ids, 0, len(table) - 1)], 0.0)


@rule("nn.embedding_backward")
def embedding_backward(c, output_grad, ids, vocab):
    table = np.zeros((vocab, output_grad.shape[-1]))
    inside = (ids >= 0) & (ids < vocab)
    np.add.at(table, ids[inside], output_grad[inside])
    return table


@gradient("nn.embedding")
def _(c, o, dy):
    return {"table": call(c, "nn.embedding_backward", output_grad=dy, ids=o.ids, vocab=len(o.table))[0]}


@rule("nn.matmul")
def matmul(c, lhs, rhs, accumulator, transpose_lhs, transpose_rhs):
    a, b = matrix(lhs), matrix(rhs)
    y = (a.T if transpose_lhs else a) @ (b.T if transpose_rhs else b)
    if not transpose_lhs:
        y = y.reshape(*lhs.shape[:-1], -1) if lhs.size else np.zeros((*lhs.shape[:-1], y.shape[-1]))
    return y if accumulator is None else y + accumulator


@gradient("nn.matmul")
def _(c, o, dy):
    # Both factors of a matmul have the type of the activations.
    a, b, g = matrix(o.lhs), matrix(o.rhs), matrix(c.inner(dy) if o.result_type == "f32" else dy)
    # y = A B, with what is transposed seen through.
    da = g @ (b if o.transpose_rhs else b.T)
    db = (a if o.transpose_lhs else a.T) @ g
    found = {"lhs": (da.T if o.transpose_lhs else da).reshape(o.lhs.shape),
             "rhs": (db.T if o.transpose_rhs else db).reshape(o.rhs.shape)}
    if o.accumulator is not None:
        found["accumulator"] = dy
    return found


@rule("nn.add_bias")
def add_bias(c, input, bias):
    return input + bias


@rule("nn.sum_rows")
def sum_rows(c, input, partial_sums):
    return sum_over_rows(matrix(input), partial_sums)


@gradient("nn.add_bias")
def _(c, o, dy):
    return {"input": dy, "bias": matrix(dy).sum(0)}


# --- Normalisation -----------------------------------------------------------


@rule("nn.rms_norm")
def rms_norm(c, input, weight, eps, plus_one):
    rstd = 1 / np.sqrt((input**2).mean(-1) + eps)
    return input * rstd[..., None] * (weight + (1 if plus_one else 0)), rstd


@rule("nn.rms_norm_backward")
def rms_norm_backward(c, output_grad, input, weight, rstd, plus_one, partial_sums):
    g, n = output_grad * (weight + (1 if plus_one else 0)), input * rstd[..., None]
    mean = c.sum((g * n).mean(-1, keepdims=True), np.abs(g * n).mean(-1, keepdims=True))
    dx = rstd[..., None] * c.sum(g - n * mean, np.abs(g))
    return dx, sum_over_rows(matrix(output_grad * n), partial_sums)


# --- Rotary embedding, heads, parts ------------------------------------------


def rotate(x, angles, inverse):
    """`angles` [..., D/2, 2] of the rows of x [B, S, H, D]."""
    c, s = angles[..., None, :, 0], angles[..., None, :, 1] * (-1 if inverse else 1)
    low, high = np.split(x, 2, -1)
    return np.concatenate([c * low - s * high, c * high + s * low], -1)


@rule("nn.rotary")
def rotary(c, input, table, start, at, stride, inverse):
    t = np.arange(input.shape[1]) + (0 if at is None else at[:, 1:])
    if start is None:
        return rotate(input, table[t * stride], inverse)
    begin = start[np.arange(len(input))[:, None] if at is None else at[:, :1], (t + 1) * stride - 1]
    return rotate(input, table[(t - begin // stride) * stride], inverse)


@gradient("nn.rotary")
def _(c, o, dy):
    return {"input": call(c, "nn.rotary", input=dy, table=o.table, start=o.start, at=o.at, stride=o.stride,
                          inverse=not o.inverse)[0]}


@rule("nn.split_heads")
def split_heads(c, input, heads):
    return input.reshape(*input.shape[:2], heads, -1) if input.size else \
        np.zeros((*input.shape[:2], heads, input.shape[2] // heads))


@rule("nn.merge_heads")
def merge_heads(c, input):
    return input.reshape(*input.shape[:2], input.shape[2] * input.shape[3])


@gradient("nn.split_heads", "nn.merge_heads")
def _(c, o, dy):
    return {"input": dy.reshape(o.input.shape)}


@rule("nn.split")
def split(c, input, sizes, rows):
    return tuple(np.split(input, np.cumsum(sizes)[:-1], 0 if rows else -1))


@rule("nn.concat")
def concat(c, parts, rows):
    return np.concatenate(parts, 0 if rows else -1)


@gradient("nn.split")
def _(c, o, *grads):
    return {"input": np.concatenate(grads, 0 if o.rows else -1)}


@gradient("nn.concat")
def _(c, o, dy):
    axis = 0 if o.rows else -1
    return {"parts": np.split(dy, np.cumsum([x.shape[axis] for x in o.parts])[:-1], axis)}


# --- Gates -------------------------------------------------------------------


@rule("nn.gate")
def gate(c, activation, logits, bias, branches):
    z = logits if bias is None else logits + bias
    z = z.reshape(*z.shape[:2], -1, branches)
    if activation == "sigmoid":
        return sigmoid(z)
    e = np.exp(z - z.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@rule("nn.gate_backward")
def gate_backward(c, activation, gates_grad, gates, partial_sums):
    if activation == "sigmoid":
        dz = gates_grad * gates * (1 - gates)
    else:
        mean = (gates_grad * gates).sum(-1, keepdims=True)
        dz = gates * c.sum(gates_grad - mean, np.abs(gates_grad))
    dz = dz.reshape(*dz.shape[:2], -1)
    return dz, sum_over_rows(matrix(dz), partial_sums, 16)


# --- Elementwise -------------------------------------------------------------


def silu_parts(x):
    """The share of x that SiLU lets through, and the slope."""
    s = sigmoid(x)
    return s, s * (1 + x * (1 - s))


def silu_slope(x):
    return silu_parts(x)[1]


def gelu_parts(x):
    k = np.sqrt(2 / np.pi)
    u = 2 * k * (x + 0.044715 * x**3)
    # (1 + tanh(u / 2)) / 2 is 0 too soon.
    s = sigmoid(u)
    return s, s + x * s * sigmoid(-u) * 2 * k * (1 + 3 * 0.044715 * x**2)


def squared_relu_parts(x):
    return np.maximum(x, 0), 2 * np.maximum(x, 0)


def define_activation(name, parts, gated):
    """`y = x * share(x)` and its gradient, and `gate * share(gate) * up`, if it has a name."""
    rule(f"nn.{name}")(lambda c, input: input * parts(input)[0])
    rule(f"nn.{name}_backward")(lambda c, output_grad, input: output_grad * parts(input)[1])
    if gated:
        def backward(c, output_grad, gate, up):
            share, slope = parts(gate)
            return output_grad * up * slope, output_grad * gate * share
        rule(f"nn.{gated}")(lambda c, gate, up: gate * parts(gate)[0] * up)
        rule(f"nn.{gated}_backward")(backward)


define_activation("silu", silu_parts, "swiglu")
define_activation("gelu", gelu_parts, "geglu")
define_activation("squared_relu", squared_relu_parts, None)


@rule("nn.scale")
def scale(c, input, factor):
    return factor * input


@gradient("nn.scale")
def _(c, o, dy):
    return {"input": o.factor * dy}


@rule("nn.softcap")
def softcap(c, input, cap):
    return cap * np.tanh(input / cap)


@rule("nn.softcap_backward")
def softcap_backward(c, output_grad, output, cap):
    return output_grad * c.sum(1 - (output / cap) ** 2, 1)


@rule("nn.add")
def add(c, lhs, rhs):
    return lhs + rhs


@gradient("nn.add")
def _(c, o, dy):
    return {"lhs": dy, "rhs": dy}


@rule("nn.cast", "nn.all_reduce", "nn.recompute_barrier")
def same(c, input):
    """A cast rounds as every result does; one rank is its own mean."""
    return input


@gradient("nn.cast")
def _(c, o, dy):
    return {"input": dy}


@rule("nn.cast_all")
def cast_all(c, inputs):
    return tuple(inputs)


@rule("nn.fill")
def fill(c, value, result_type):
    shape = result_type.removeprefix("tensor<").split("x")[:-1]
    return np.full([int(n) for n in shape], value)


# --- Loss --------------------------------------------------------------------


def log_sum_exp(x):
    top = x.max(-1)
    return top + np.log(np.exp(x - top[..., None]).sum(-1))


def pick(x, targets):
    return np.take_along_axis(x, np.maximum(targets, 0)[..., None], -1)[..., 0]


@rule("nn.cross_entropy")
def cross_entropy(c, logits, targets, over_all):
    valid = targets >= 0
    lse = log_sum_exp(logits)
    total = np.where(valid, lse - pick(logits, targets), 0).sum()
    n = targets.size if over_all else max(valid.sum(), 1)
    return np.asarray(total / n), lse, np.asarray(valid.sum() / (targets.size if over_all else 1))


def logits_grad(c, loss_grad, logits, targets, lse, divisor):
    hit = np.arange(logits.shape[-1]) == targets[..., None]
    p = np.exp(logits - lse[..., None])
    return np.where((targets >= 0)[..., None], loss_grad / divisor * c.sum(p - hit, p + hit), 0)


@rule("nn.argmax")
def argmax(c, logits, bias):
    return np.argmax(logits + bias, axis=-1)


def weights_of(x, largest, inverse):
    """exp((x - largest) * inverse) in 36 binary digits, by operations of f32."""
    f32 = np.float32
    power = (x - largest) * inverse
    counts = power > -25
    power = np.where(counts, power, f32(0))
    n = (f32(0.5) - power * f32(1.44269504088896341)).astype(np.int32)
    rest = power + n.astype(f32) * f32(11357 / 16384)
    rest += n.astype(f32) * f32(0.69314718055994531 - 11357 / 16384)
    y = np.full_like(rest, 1 / 5040)
    for divisor in 720, 120, 24, 6, 2, 1, 1:
        y = y * rest + f32(1 / divisor)
    return np.where(counts, np.ldexp(y.astype(np.float64), 36 - n), 0).astype(np.int64)


@rule("nn.draw")
def draw(c, logits, bias, best, uniforms, positions, inverse, top_k, top_p):
    """As the host draws, of ranked tokens, in integers."""
    drawn = best.copy()
    for b, (top,) in enumerate(best):
        if top < 0 or inverse[b] == 0:
            continue
        x = logits[b, 0].astype(np.float32) + bias.astype(np.float32)
        weights = [int(w) for w in weights_of(x, x[top], np.float32(inverse[b]))]
        parts = [sum(int(digit) << (24 - 12 * i) for i, digit in enumerate(row))
                 for row in (top_p[b], uniforms[b, (positions[b] + 1) % uniforms.shape[1]])]
        left = sorted(np.flatnonzero(x > -np.inf), key=lambda v: (-x[v], v))[:top_k[b] or len(x)]
        wanted, have, kept = (sum(weights[v] for v in left) * parts[0]) >> 36, 0, []
        for v in left:
            if have >= wanted:
                break
            kept.append(v)
            have += weights[v]
        target, have = (have * parts[1]) >> 36, 0
        for v in sorted(kept):
            have += weights[v]
            if have > target:
                drawn[b] = v
                break
    return drawn


@rule("nn.cross_entropy_backward")
def cross_entropy_backward(c, loss_grad, logits, targets, lse, count):
    return logits_grad(c, loss_grad, logits, targets, lse, max(float(count), 1.0))


@gradient("nn.cross_entropy")
def _(c, o, dloss, dlse, dcount):
    divisor = o.targets.size if o.over_all else max((o.targets >= 0).sum(), 1)
    return {"logits": logits_grad(c, dloss, o.logits, o.targets, o.lse, divisor)}


@rule("nn.cross_entropy_chunk")
def cross_entropy_chunk(c, logits, targets, count, loss_grad, first):
    own = targets.reshape(-1)[first:first + len(logits)]
    lse = log_sum_exp(logits)
    losses = np.where(own >= 0, c.sum(lse - pick(logits, own), np.abs(lse)), 0)
    if loss_grad is None:
        return losses
    return losses, logits_grad(c, loss_grad, logits, own, lse, max(float(count), 1.0))


@rule("nn.mean_loss")
def mean_loss(c, count, losses):
    return np.asarray(sum(x.sum() for x in losses) / max(float(count), 1.0))


@rule("nn.count_targets")
def count_targets(c, targets, over_all):
    return np.asarray((targets >= 0).sum() / (targets.size if over_all else 1))


@rule("nn.split_rows")
def split_rows(c, input, rows):
    return tuple(np.split(matrix(input), np.cumsum(rows)[:-1]))


@rule("nn.concat_rows")
def concat_rows(c, parts, shape):
    return np.concatenate(parts).reshape(shape)


# --- Updates -----------------------------------------------------------------


def is_finite(norm, loss):
    return bool(np.isfinite(norm) and np.isfinite(loss))


class Hyper:
    def __init__(self, hyper, norm):
        self.lr, self.beta1, self.beta2, self.eps, self.decay, most, self.scale, self.step = hyper
        n = norm * self.scale
        self.scale *= most / n if most > 0 and n > most else 1.0

    def decayed(self, weight, decay):
        return weight - self.lr * self.decay * weight if decay else weight


@rule("nn.adamw")
def adamw(c, weight, moment1, moment2, gradient, norm, loss, hyper, decay):
    if not is_finite(norm, loss):
        return weight, moment1, moment2
    h = Hyper(hyper, norm)
    g = gradient * h.scale
    m = h.beta1 * moment1 + (1 - h.beta1) * g
    v = h.beta2 * moment2 + (1 - h.beta2) * g**2
    step = (m / (1 - h.beta1**h.step)) / (np.sqrt(v / (1 - h.beta2**h.step)) + h.eps)
    return h.decayed(weight, decay) - h.lr * step, m, v


@rule("nn.lion")
def lion(c, weight, ema, gradient, norm, loss, hyper, decay):
    if not is_finite(norm, loss):
        return weight, ema
    h = Hyper(hyper, norm)
    g = gradient * h.scale
    step = np.sign(h.beta1 * ema + (1 - h.beta1) * g)
    return h.decayed(weight, decay) - h.lr * step, h.beta2 * ema + (1 - h.beta2) * g


@rule("nn.momentum")
def momentum(c, momentum, gradient, norm, loss, hyper):
    h = Hyper(hyper, norm)
    g = gradient * h.scale
    m = h.beta1 * momentum + (1 - h.beta1) * g
    # Nothing reads the direction of a step that is not finite.
    return m if is_finite(norm, loss) else momentum, h.beta1 * m + (1 - h.beta1) * g


@rule("nn.take_step")
def take_step(c, weight, direction, norm, loss, hyper, scale, decay):
    h = Hyper(hyper, norm)
    return h.decayed(weight, decay) - h.lr * scale * direction if is_finite(norm, loss) else weight


@rule("nn.muon")
def muon(c, weight, momentum, gradient, norm, loss, hyper, decay, element_type):
    if not is_finite(norm, loss):
        return weight, momentum
    h = Hyper(hyper, norm)
    m, u = call(c, "nn.momentum", momentum=momentum, gradient=gradient, norm=norm, loss=loss, hyper=hyper)
    c.kind = element_type or "f32"
    x = c.inner(u / (np.linalg.norm(u) + 1e-7))
    x = x if weight.shape[0] <= weight.shape[1] else x.T
    for _ in range(5):
        a = c.inner(x @ x.T)
        x = c.inner(3.4445 * x + c.inner((c.inner(-4.775 * a + 2.0315 * c.inner(a @ a))) @ x))
    x = x if weight.shape[0] <= weight.shape[1] else x.T
    return h.decayed(weight, decay) - h.lr * 0.2 * np.sqrt(max(weight.shape)) * x, m


@rule("nn.normalize")
def normalize(c, input, batch):
    x = input.reshape(batch, -1, input.shape[1])
    return (x / (np.linalg.norm(x, axis=(1, 2), keepdims=True) + 1e-7)).reshape(input.shape)


@rule("nn.batch_matmul")
def batch_matmul(c, lhs, rhs, addend, transpose_lhs, transpose_rhs, alpha, beta, batch):
    a, b = (x.reshape(batch, -1, x.shape[1]) for x in (lhs, rhs))
    y = alpha * (a.swapaxes(1, 2) if transpose_lhs else a) @ (b.swapaxes(1, 2) if transpose_rhs else b)
    y = y.reshape(-1, y.shape[2])
    return y if addend is None else y + beta * addend


@rule("nn.accumulate_rows")
def accumulate_rows(c, sums, rows):
    return tuple(c.sum(x + y.sum(0), np.abs(x) + np.abs(y).sum(0)) for x, y in zip(sums, rows))


@rule("nn.gradient_norm")
def gradient_norm(c, gradients, squared):
    total = sum((x**2).sum() for x in gradients)
    return np.asarray(total if squared else np.sqrt(total))


@rule("nn.root_of_mean")
def root_of_mean(c, mean, ranks):
    return np.asarray(np.sqrt(ranks * mean))


@rule("nn.average_step")
def average_step(c, hyper, loss, count):
    with np.errstate(divide="ignore", invalid="ignore"):
        new = hyper.copy()
        new[6] = new[6] / count
        return new, np.asarray(loss / count)


@rule("nn.update_loss_scale")
def update_loss_scale(c, hyper, norm, loss, scale, streak, skipped, growth_interval):
    ok, full = is_finite(norm, loss), streak + 1 >= growth_interval
    new = hyper.copy()
    new[6], new[7] = new[6] / scale, new[7] - skipped
    grown = (min(2 * scale, 2.0**24) if full else scale) if ok else scale / 2
    return new, norm / scale, np.asarray(grown), np.asarray(streak + 1.0 if ok and not full else 0.0), \
        np.asarray(skipped + (0.0 if ok else 1.0))
