"""The operators as functions of MLIR: one text for one signature.

Shapes name the extents of a call: B sequences of T tokens, N compressed blocks of
each. In the text they are numbers, or `?` where one program serves all
(docs/extents.md).
"""

import dataclasses

import torch

ELEMENTS = {torch.float32: "f32", torch.bfloat16: "bf16", torch.float16: "f16"}


def compressed_rows(length, block, stride, is_packed=False):
    """Rows that `length` tokens have: one for each complete block of `block` tokens, `stride` apart, and, where
    several sequences share them, for each stride."""
    return length // stride if is_packed else torch.sym_max((length - block) // stride + 1, 0)


@dataclasses.dataclass
class Source:
    """A function with named arguments and results, whose types are aliases."""

    #: {alias: (shape, element type)}
    types: dict
    #: {name: alias}
    arguments: dict
    results: dict
    lines: list
    #: N, where types have it.
    rows: int = 0

    @property
    def takes_any_extents(self):
        """Whether it can be compiled for every B and T; docs/extents.md says what cannot."""
        return "start" not in self.types

    @property
    def sizes_of(self):
        """The position of an argument whose first dimensions are B and T."""
        return next(i for i, alias in enumerate(self.arguments.values()) if self.types[alias][0][:2] == ("B", "T"))

    def shape(self, alias, extents):
        """The shape of a type in a call."""
        return tuple(extents.get(size, size) for size in self.types[alias][0])

    def text(self, extents):
        """The module, for these extents; without any, for all."""
        def spell(shape, element):
            sizes = [size if isinstance(size, int) else extents[size] if extents else "?" for size in shape]
            return "tensor<" + "".join(f"{size}x" for size in sizes) + element + ">"

        aliases = "".join(f"!{alias} = {spell(*kind)}\n" for alias, kind in self.types.items())
        arguments = ", ".join(f'%{name}: !{alias} {{nn.name = "{name}"}}' for name, alias in self.arguments.items())
        results = ", ".join(f'!{alias} {{nn.name = "{name}"}}' for name, alias in self.results.items())
        body = "".join(f"  {line}\n" for line in self.lines)
        values = ", ".join(f"%{name}" for name in self.results)
        kinds = ", ".join(f"!{alias}" for alias in self.results.values())
        return (f"{aliases}func.func @main({arguments}) -> ({results}) {{\n{body}"
                f"  return {values} : {kinds}\n}}\n")


def _scaled(scale):
    return "" if scale is None else f" {{scale = {float(scale)!r} : f64}}"


def _heads(q, k, v, rows="T"):
    """Types of queries, keys, values and outputs, of tensors."""
    (heads, width), (groups, value_width) = q.shape[2:], v.shape[2:]
    element = ELEMENTS[q.dtype]
    return {"q": (("B", "T", heads, width), element), "k": (("B", rows, groups, width), element),
            "v": (("B", rows, groups, value_width), element), "o": (("B", "T", heads, value_width), element),
            "lse": (("B", heads, "T"), "f32")}


#: The first token of each token's sequence, where several share a row.
STARTS = (("B", "T"), "i32")


def _start(is_packed):
    return " start(%start : !start)" if is_packed else ""


def _take_starts(types, arguments):
    types["start"] = STARTS
    arguments["start"] = "start"


def _visible(visibility, is_packed):
    indices = ", %i : !i" if visibility.startswith("#nsa.selected") else ""
    return f"visible({visibility}{indices}){_start(is_packed)}"


def attend(tensors, parameters):
    """nsa.attention of one visibility: q, k, v, indices where it takes them, and starts of sequences if given."""
    (q, k, v, *others), (visibility, scale) = tensors, parameters
    types = _heads(q, k, v, "N" if "compressed" in visibility else "T")
    arguments = {"q": "q", "k": "k", "v": "v"}
    if visibility.startswith("#nsa.selected"):
        types["i"] = (("B", v.shape[2], "T", others.pop(0).shape[3]), "i32")
        arguments["i"] = "i"
    if others:
        _take_starts(types, arguments)
    line = (f"%o, %lse = nsa.attention %q, %k, %v {_visible(visibility, bool(others))}{_scaled(scale)} "
            ": !q, !k, !v")
    return Source(types, arguments, {"o": "o", "lse": "lse"}, [line], k.shape[1])


def attend_backward(tensors, parameters):
    (_, q, k, v, _, _, *others), (visibility, scale) = tensors, parameters
    source = attend([q, k, v, *others], parameters)
    extra = {name: name for name in ("i", "start") if name in source.arguments}
    source.arguments = {"do": "o", "q": "q", "k": "k", "v": "v", "o": "o", "lse": "lse", **extra}
    source.results = {"dq": "q", "dk": "k", "dv": "v"}
    source.lines = [f"%dq, %dk, %dv = nsa.attention_backward %do, %q, %k, %v, %o, %lse "
                    f"{_visible(visibility, 'start' in extra)}{_scaled(scale)} : !o, !q, !k, !v, !o, !lse"]
    return source


class _Compression:
    """nsa.compress of one tensor with its parameters, and the gradients."""

    def __init__(self, name, alias, phi, parameters, clause, is_packed=False):
        self.name, self.alias, self.phi = name, alias, phi
        self.clause = ("start(%start) " if is_packed else "") + f"by({clause})"
        self.start = ", !start" if is_packed else ""
        self.types = {f"{name}_p{i}": (tuple(p.shape), ELEMENTS[p.dtype]) for i, p in enumerate(parameters)}
        self.gradients = {f"d{name}_p{i}": (tuple(p.shape), "f32") for i, p in enumerate(parameters)}

    def forward(self, result):
        values = "".join(f", %{name}" for name in self.types)
        kinds = "".join(f", !{name}" for name in self.types)
        return (f"%{result} = nsa.compress {self.phi} %{self.name}{values} {self.clause} "
                f": (!{self.alias}{kinds}{self.start}) -> !{self.alias}c")

    def backward(self, gradient):
        values = "".join(f", %{name}" for name in self.types)
        kinds = "".join(f", !{name}" for name in self.types)
        results = "".join(f", %{name}" for name in self.gradients)
        result_kinds = "".join(f", !{name}" for name in self.gradients)
        return (f"%d{self.name}{results} = nsa.compress_backward {self.phi} %{gradient}, %{self.name}{values} "
                f"{self.clause} : (!{self.alias}c, !{self.alias}{kinds}{self.start}) -> "
                f"(!{self.alias}{result_kinds})")


def _compressed(block, stride):
    return f"#nsa.compressed<block = {block}, stride = {stride}>"


def _same(names):
    return {name: name for name in names}


def compress(tensors, parameters):
    """nsa.compress: x, the parameters of phi, and starts of sequences if `is_packed`."""
    (x, *weights), (phi, block, stride, is_packed) = tensors, parameters
    compression = _Compression("x", "x", phi, weights[:len(weights) - is_packed], _compressed(block, stride), is_packed)
    element = ELEMENTS[x.dtype]
    types = {"x": (("B", "T", *x.shape[2:]), element), "xc": (("B", "N", *x.shape[2:]), element), **compression.types}
    arguments = {"x": "x", **_same(compression.types)}
    if is_packed:
        _take_starts(types, arguments)
    return Source(types, arguments, {"y": "xc"}, [compression.forward("y")],
                  compressed_rows(x.shape[1], block, stride, is_packed))


def compress_backward(tensors, parameters):
    (_, x, *weights), (phi, block, stride, is_packed) = tensors, parameters
    source = compress([x, *weights], parameters)
    compression = _Compression("x", "x", phi, weights[:len(weights) - is_packed], _compressed(block, stride), is_packed)
    source.types.update(compression.gradients)
    source.arguments = {"dy": "xc", **source.arguments}
    source.results = {"dx": "x", **_same(compression.gradients)}
    source.lines = [compression.backward("dy")]
    return source


def select(tensors, parameters):
    """nsa.select: q, compressed keys, their lse, and starts of sequences if given."""
    (q, k, _, *starts), (block, stride, select_block, count, initial, local, scale) = tensors, parameters
    types = _heads(q, k, k, "N")
    del types["v"], types["o"]
    types["i"] = (("B", k.shape[2], "T", count), "i32")
    selection = f"#nsa.selected<block = {select_block}, count = {count}, initial = {initial}, local = {local}>"
    arguments = {"q": "q", "k": "k", "lse": "lse"}
    if starts:
        _take_starts(types, arguments)
    line = (f"%i = nsa.select %q, %k, %lse{_start(starts)} by({_compressed(block, stride)}, {selection}){_scaled(scale)} : !q, !k -> !i")
    return Source(types, arguments, {"i": "i"}, [line], k.shape[1])


class _Branches:
    """The whole of Native Sparse Attention; `tensors` are the inputs of the operator `attention`."""

    INPUTS = {"q": "q", "kc": "k", "vc": "v", "ks": "k", "vs": "v", "kw": "k", "vw": "v", "gates": "g"}
    SAVED = {"oc": "o", "lsec": "lse", "os": "o", "lses": "lse", "ow": "o", "lsew": "lse", "i": "i"}

    def __init__(self, tensors, parameters):
        self.block, self.stride, select_block, count, initial, local, window, *others = parameters
        phi, scale, num_key_weights, num_tables, self.is_packed = others
        self.scale = _scaled(scale)
        q, k, v = tensors[:3]
        self.rows = compressed_rows(q.shape[1], self.block, self.stride, self.is_packed)
        self.types = _heads(q, k, v)
        element = ELEMENTS[q.dtype]
        self.types.update({"kc": (("B", "N", *k.shape[2:]), element), "vc": (("B", "N", *v.shape[2:]), element),
                           "g": (("B", "T", q.shape[2], 3), "f32"), "i": (("B", k.shape[2], "T", count), "i32")})
        self.has_rotary = num_tables != 0
        weights = tensors[8:len(tensors) - num_tables - self.is_packed]
        self.blocks = _compressed(self.block, self.stride)
        self.selection = f"#nsa.selected<block = {select_block}, count = {count}, initial = {initial}, local = {local}>"
        self.window = f"#nsa.window<{window}>"
        self.key = _Compression("kc", "k", phi, weights[:num_key_weights], self.blocks, self.is_packed)
        self.value = _Compression("vc", "v", phi, weights[num_key_weights:], self.blocks, self.is_packed)
        self.types.update({**self.key.types, **self.value.types})
        if self.has_rotary:
            self.types["table"] = (("T", q.shape[3] // 2, 2), "f32")
        if self.is_packed:
            self.types["start"] = STARTS

    def arguments(self):
        return {**self.INPUTS, **_same(self.key.types), **_same(self.value.types),
                **({"table": "table"} if self.has_rotary else {}), **({"start": "start"} if self.is_packed else {})}

    def _rotate(self, result, value, alias, stride=1, inverse=False):
        attributes = [f"stride = {stride} : i64"] * (stride != 1) + ["inverse"] * inverse
        clause = f" {{{', '.join(attributes)}}}" if attributes else ""
        start, kind = (", %start", ", !start") if self.is_packed else ("", "")
        return f"%{result} = nn.rotary %{value}, %table{start}{clause} : (!{alias}, !table{kind}) -> !{alias}"

    def prepare(self):
        """Lines that make of the inputs what branches attend to."""
        if not self.has_rotary:
            self.names = {"q": "q", "k~": "kcc", "ks": "ks", "kw": "kw"}
            return [self.key.forward("kcc"), self.value.forward("vcc")]
        self.names = {"q": "qr", "k~": "kcr", "ks": "ksr", "kw": "kwr"}
        return [self._rotate("qr", "q", "q"), self.key.forward("kcc"), self._rotate("kcr", "kcc", "kc", self.stride),
                self.value.forward("vcc"), self._rotate("ksr", "ks", "k"), self._rotate("kwr", "kw", "k")]

    def _branches(self):
        names = self.names
        return [("c", names["k~"], "vcc", self.blocks, "kc", "vc"),
                ("s", names["ks"], "vs", self.selection, "k", "v"),
                ("w", names["kw"], "vw", self.window, "k", "v")]

    def forward(self):
        lines = self.prepare()
        query = self.names["q"]
        for branch, key, value, visibility, key_kind, value_kind in self._branches():
            lines.append(f"%o{branch}, %lse{branch} = nsa.attention %{query}, %{key}, %{value} "
                         f"{_visible(visibility, self.is_packed)}{self.scale} : !q, !{key_kind}, !{value_kind}")
            if branch == "c":
                lines.append(f"%i = nsa.select %{query}, %{key}, %lsec{_start(self.is_packed)} "
                             f"by({self.blocks}, {self.selection}){self.scale} : !q, !kc -> !i")
        lines.append("%o = nsa.combine %gates, %oc, %os, %ow : (!g, !o, !o, !o) -> !o")
        return lines

    def backward(self):
        lines = self.prepare()
        query = self.names["q"]
        lines.append("%dgates, %doc, %dos, %dow = nsa.combine_backward %do, %gates, %oc, %os, %ow "
                     ": (!o, !g, !o, !o, !o) -> (!g, !o, !o, !o)")
        for branch, key, value, visibility, key_kind, value_kind in self._branches():
            lines.append(f"%dq{branch}, %dk{branch}0, %dv{branch}0 = nsa.attention_backward %do{branch}, %{query}, "
                         f"%{key}, %{value}, %o{branch}, %lse{branch} {_visible(visibility, self.is_packed)}"
                         f"{self.scale} "
                         f": !o, !q, !{key_kind}, !{value_kind}, !o, !lse")
        total = "dqr" if self.has_rotary else "dq"
        lines += ["%dqcs = nn.add %dqc, %dqs : (!q, !q) -> !q", f"%{total} = nn.add %dqcs, %dqw : (!q, !q) -> !q"]
        if self.has_rotary:
            lines += [self._rotate("dq", "dqr", "q", inverse=True),
                      self._rotate("dkc1", "dkc0", "kc", self.stride, inverse=True),
                      self._rotate("dks", "dks0", "k", inverse=True), self._rotate("dkw", "dkw0", "k", inverse=True)]
        return lines + [self.key.backward("dkc1" if self.has_rotary else "dkc0"), self.value.backward("dvc0")]

    def gradients(self):
        """{result: (value, alias)}"""
        keys = {"dks": "k", "dkw": "k"} if self.has_rotary else {"dks0": "k", "dkw0": "k"}
        names = iter(keys)
        return {"dq": "q", "dkc": "k", "dvc": "v", next(names): "k", "dvs0": "v", next(names): "k", "dvw0": "v",
                "dgates": "g", **_same(self.key.gradients), **_same(self.value.gradients)}


def attention(tensors, parameters):
    """Native Sparse Attention with what its gradient needs."""
    branches = _Branches(tensors, parameters)
    return Source(branches.types, branches.arguments(), {"o": "o", **branches.SAVED}, branches.forward(), branches.rows)


def attention_inference(tensors, parameters):
    source = attention(tensors, parameters)
    source.results = {"o": "o"}
    return source


def attention_backward(tensors, parameters):
    """Its gradients: tensors are that of the output, what `attention` took, and what it kept."""
    kept = len(_Branches.SAVED)
    branches = _Branches(tensors[1:-kept], parameters)
    branches.types.update({**branches.key.gradients, **branches.value.gradients})
    return Source(branches.types, {"do": "o", **branches.arguments(), **branches.SAVED}, branches.gradients(),
                  branches.backward(), branches.rows)
