"""The operators as functions of MLIR: one text for one signature. Those of gradients are the same with marks for the compiler,
which differentiates them (nn.kept).

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
    #: Of a backward function: the results that it takes from the forward pass, and the arguments that have gradients.
    kept: tuple = ()
    targets: tuple = ()

    @property
    def inputs(self):
        """{name: alias} of what a call takes: of a backward function the gradient of the first result, the arguments,
        and what was kept."""
        if not self.targets:
            return self.arguments
        name, alias = next(iter(self.results.items()))
        return {f"grad.{name}": alias, **self.arguments, **{name: self.results[name] for name in self.kept}}

    @property
    def outputs(self):
        """{name: alias} of what it gives."""
        return {f"grad.{name}": self.arguments[name] for name in self.targets} or self.results

    @property
    def takes_any_extents(self):
        """Whether it can be compiled for every B and T; docs/extents.md says what cannot."""
        return "start" not in self.types

    @property
    def sizes_of(self):
        """The position of an argument whose first dimensions are B and T."""
        return next(i for i, alias in enumerate(self.inputs.values()) if self.types[alias][0][:2] == ("B", "T"))

    def shape(self, alias, extents):
        """The shape of a type in a call."""
        return tuple(extents.get(size, size) for size in self.types[alias][0])

    def text(self, extents):
        """The module, for these extents; without any, for all."""
        def spell(shape, element):
            sizes = [size if isinstance(size, int) else extents[size] if extents else "?" for size in shape]
            return "tensor<" + "".join(f"{size}x" for size in sizes) + element + ">"

        def mark(name, **marks):
            return f'{{nn.name = "{name}"' + "".join(f", nn.{mark}" for mark, is_set in marks.items() if is_set) + "}"

        is_backward = bool(self.targets)
        aliases = "".join(f"!{alias} = {spell(*kind)}\n" for alias, kind in self.types.items())
        arguments = ", ".join(f"%{name}: !{alias} {mark(name, differentiate=name in self.targets)}"
                              for name, alias in self.arguments.items())
        first = next(iter(self.results))
        results = ", ".join(f"!{alias} {mark(name, objective=is_backward and name == first, kept=is_backward)}"
                            for name, alias in self.results.items())
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
    """Its gradients: tensors are that of the output, what `attend` took, and what it gave."""
    source = attend(tensors[1:-2], parameters)
    return dataclasses.replace(source, kept=("o", "lse"), targets=("q", "k", "v"))


class _Compression:
    """nsa.compress of one tensor with its parameters."""

    def __init__(self, name, alias, phi, parameters, clause, is_packed=False):
        self.name, self.alias, self.phi = name, alias, phi
        self.clause = ("start(%start) " if is_packed else "") + f"by({clause})"
        self.start = ", !start" if is_packed else ""
        self.types = {f"{name}_p{i}": (tuple(p.shape), ELEMENTS[p.dtype]) for i, p in enumerate(parameters)}

    def line(self, result):
        values = "".join(f", %{name}" for name in self.types)
        kinds = "".join(f", !{name}" for name in self.types)
        return (f"%{result} = nsa.compress {self.phi} %{self.name}{values} {self.clause} "
                f": (!{self.alias}{kinds}{self.start}) -> !{self.alias}c")


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
    return Source(types, arguments, {"y": "xc"}, [compression.line("y")],
                  compressed_rows(x.shape[1], block, stride, is_packed))


def compress_backward(tensors, parameters):
    source = compress(tensors[1:], parameters)
    return dataclasses.replace(source, targets=tuple(name for name in source.arguments if name != "start"))


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
        phi, scale, num_key_weights, num_tables, self.is_packed, self.is_given = others
        self.scale = _scaled(scale)
        q, k, v = tensors[:3]
        self.rows = compressed_rows(q.shape[1], self.block, self.stride, self.is_packed)
        self.types = _heads(q, k, v)
        element = ELEMENTS[q.dtype]
        self.types.update({"kc": (("B", "N", *k.shape[2:]), element), "vc": (("B", "N", *v.shape[2:]), element),
                           "g": (("B", "T", q.shape[2], 3), "f32"), "i": (("B", k.shape[2], "T", count), "i32")})
        self.has_rotary = num_tables != 0
        weights = tensors[8:len(tensors) - num_tables - self.is_packed - self.is_given]
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
                **({"table": "table"} if self.has_rotary else {}), **({"start": "start"} if self.is_packed else {}),
                **({"i": "i"} if self.is_given else {})}

    def saved(self):
        """Results that the gradient needs: not the selection, if it is given."""
        return {name: alias for name, alias in self.SAVED.items() if name != "i" or not self.is_given}

    def _rotate(self, result, value, alias, stride=1):
        clause = f" {{stride = {stride} : i64}}" if stride != 1 else ""
        start, kind = (", %start", ", !start") if self.is_packed else ("", "")
        return f"%{result} = nn.rotary %{value}, %table{start}{clause} : (!{alias}, !table{kind}) -> !{alias}"

    def prepare(self):
        """Lines that make of the inputs what branches attend to."""
        if not self.has_rotary:
            self.names = {"q": "q", "k~": "kcc", "ks": "ks", "kw": "kw"}
            return [self.key.line("kcc"), self.value.line("vcc")]
        self.names = {"q": "qr", "k~": "kcr", "ks": "ksr", "kw": "kwr"}
        return [self._rotate("qr", "q", "q"), self.key.line("kcc"), self._rotate("kcr", "kcc", "kc", self.stride),
                self.value.line("vcc"), self._rotate("ksr", "ks", "k"), self._rotate("kwr", "kw", "k")]

    def lines(self):
        lines = self.prepare()
        query = self.names["q"]
        for branch, key, value, visibility, key_kind, value_kind in (
                ("c", self.names["k~"], "vcc", self.blocks, "kc", "vc"),
                ("s", self.names["ks"], "vs", self.selection, "k", "v"),
                ("w", self.names["kw"], "vw", self.window, "k", "v")):
            lines.append(f"%o{branch}, %lse{branch} = nsa.attention %{query}, %{key}, %{value} "
                         f"{_visible(visibility, self.is_packed)}{self.scale} : !q, !{key_kind}, !{value_kind}")
            if branch == "c" and not self.is_given:
                lines.append(f"%i = nsa.select %{query}, %{key}, %lsec{_start(self.is_packed)} "
                             f"by({self.blocks}, {self.selection}){self.scale} : !q, !kc -> !i")
        lines.append("%o = nsa.combine %gates, %oc, %os, %ow : (!g, !o, !o, !o) -> !o")
        return lines


def attention(tensors, parameters):
    """Native Sparse Attention with what its gradient needs."""
    branches = _Branches(tensors, parameters)
    return Source(branches.types, branches.arguments(), {"o": "o", **branches.saved()}, branches.lines(), branches.rows)


def attention_inference(tensors, parameters):
    source = attention(tensors, parameters)
    source.results = {"o": "o"}
    return source


def attention_backward(tensors, parameters):
    """Its gradients: tensors are that of the output, what `attention` took, and what it kept."""
    kept = tuple(name for name in _Branches.SAVED if name != "i" or not parameters[-1])
    source = attention(tensors[1:-len(kept)], parameters)
    return dataclasses.replace(source, kept=kept, targets=tuple(name for name in source.arguments if name not in ("table", "start", "i")))
