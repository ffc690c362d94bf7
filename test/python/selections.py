"""Lists of blocks that rounding alone decides: what programs of many shapes select of the same queries and compressed keys."""

import re

import numpy as np

HEADS, GROUPS = 4, 2


class Lists:
    """Operands of nsa.select for a sequence, and programs that take parts of them. Keys repeat in other orders, so that the
    scores of most blocks are equal but for rounding."""

    def __init__(self, rng, length, element="f32", width=16, block=8, stride=4, select_block=16, count=4):
        self.length, self.element, self.width, self.block, self.stride = length, element, width, block, stride
        self.count = count
        self.compressed = f"#nsa.compressed<block = {block}, stride = {stride}>"
        self.selected = f"#nsa.selected<block = {select_block}, count = {count}>"
        per_block, rows = select_block // stride, self.rows(length)
        self.query = rng.standard_normal((1, length, HEADS, width)).astype(np.float32)
        kinds = rng.standard_normal((GROUPS, per_block, width)) / 2
        order = np.concatenate([rng.permuted(np.tile(np.arange(per_block), (GROUPS, 1)), axis=1)
                                for _ in range(0, rows, per_block)], axis=1)[:, :rows]
        self.key = np.take_along_axis(kinds, order[..., None], 1).swapaxes(0, 1)[None].astype(np.float32)
        if element == "bf16":
            self.query, self.key = ((x.view(np.uint32) & 0xffff0000).view(np.float32) for x in (self.query, self.key))

    def rows(self, length):
        return max((length - self.block) // self.stride + 1, 0)

    def text(self, batch, length, rows, packed=False):
        """lse of compressed attention, and the blocks by it."""
        q, k = (f"tensor<{batch}x{n}x{h}x{self.width}x{self.element}>" for n, h in ((length, HEADS), (rows, GROUPS)))
        s, lse, i = (f"tensor<{batch}x{rest}>" for rest in (f"{length}xi32", f"{HEADS}x{length}xf32",
                                                            f"{GROUPS}x{length}x{self.count}xi32"))
        start = f" start(%s : {s})" if packed else ""
        return f"""func.func @main(%q: {q} {{nn.name = "q"}}, %k: {k} {{nn.name = "k"}}{f', %s: {s} {{nn.name = "s"}}' * packed})
    -> ({i} {{nn.name = "i"}}, {lse} {{nn.name = "lse"}}) {{
  %o, %lse = nsa.attention %q, %k, %k visible({self.compressed}){start} : {q}, {k}, {k}
  %i = nsa.select %q, %k, %lse{start} by({self.compressed}, {self.selected}) : {q}, {k} -> {i}
  return %i, %lse : {i}, {lse}
}}"""

    def decode_text(self, batch, context):
        q, k = (f"tensor<{batch}x{n}x{h}x{self.width}x{self.element}>"
                for n, h in ((1, HEADS), (self.rows(context), GROUPS)))
        p, lse, i = (f"tensor<{batch}x{rest}>" for rest in ("i32", f"{HEADS}x1xf32", f"{GROUPS}x1x{self.count}xi32"))
        p = f"tensor<{batch}xi32>"
        return f"""func.func @main(%q: {q} {{nn.name = "q"}}, %k: {k} {{nn.name = "k"}}, %p: {p} {{nn.name = "p"}})
    -> ({i} {{nn.name = "i"}}, {lse} {{nn.name = "lse"}}) {{
  %o, %lse = nsa.decode_attention %q, %k, %k at %p visible({self.compressed}) : ({q}, {k}, {k}, {p}) -> ({q}, {lse})
  %i = nsa.decode_select %q, %k, %lse at %p {{
         compressed = {self.compressed}, selected = {self.selected}, context = {context} : i64}} : ({q}, {k}, {lse}, {p}) -> {i}
  return %i, %lse : {i}, {lse}
}}"""

    def whole(self, length=None):
        """Queries and keys of the first `length` tokens."""
        length = length or self.length
        return {"q": self.query[:, :length], "k": self.key[:, :self.rows(length)]}

    def packed(self, lengths):
        """These of the first tokens, so many times, as sequences of a row."""
        parts = [self.whole(length) for length in lengths]
        begins = np.cumsum([0, *lengths[:-1]])
        keys = np.zeros((1, sum(lengths) // self.stride, *self.key.shape[2:]), np.float32)
        for begin, part in zip(begins // self.stride, parts):
            keys[:, begin:begin + part["k"].shape[1]] = part["k"]
        return {"q": np.concatenate([part["q"] for part in parts], 1), "k": keys,
                "s": np.repeat(begins, lengths)[None].astype(np.int32)}

    def steps(self, positions, context):
        """Those that decoding has at these positions, each of a sequence of its own."""
        keys = np.zeros((len(positions), self.rows(context), *self.key.shape[2:]), np.float32)
        keys[:, :self.key.shape[1]] = self.key
        return {"q": self.query[0, positions][:, None], "k": keys, "p": positions.astype(np.int32)}


def load_parameters(module, model):
    """Initializes a program with the parameters of an nsa.Model."""
    module.run("init", {})
    for name in module.tensors:
        if name in model.parameters:
            module.write(name, model.parameters[name])
    return module


def expose(text, entry, layers):
    """The program of an entry, which also returns each list of blocks and what it is chosen by."""
    start = text.index(f"  func.func @{entry}(")
    end = text.find("\n  func.func", start)
    function = text[start:end if end >= 0 else text.rindex("}")]
    values, types, names = [], [], []
    for number, match in enumerate(re.finditer(
            r"(%\S+) = nsa\.(?:decode_)?select (%\S+), (%\S+), (%\S+) .* : \(?(tensor<\S+>), (tensor<[^ ,]+>).* -> (tensor<\S+>)",
            function)):
        indices, query, key, lse, query_type, key_type, indices_type = match.groups()
        batch, length, heads = re.findall(r"\d+(?=x)", query_type)[:3]
        values += [indices, query, key, lse]
        types += [indices_type, query_type, key_type, f"tensor<{batch}x{heads}x{length}xf32>"]
        names += [f"{name}.{number}" for name in ("indices", "query", "key", "lse")]
    assert len(values) == layers * 4, function
    header, _, body = function.partition(") {\n")
    results = ", ".join(f'{kind} {{nn.name = "{name}"}}' for kind, name in zip(types, names))
    body = re.sub(r"(?m)^(    return [^:]*) : (.*)$", rf"\1, {', '.join(values)} : \2, {', '.join(types)}", body)
    return text[:text.index("  func.func")] + header + ", " + results + ") {\n" + body + "\n}\n"
