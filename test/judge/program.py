"""Programs over nn and nsa operations as data: written as MLIR, evaluated by the rules, taken apart."""

import dataclasses
import itertools

import numpy as np

import declarations
import rules
from numerics import Exact, store


@dataclasses.dataclass(eq=False)
class Value:
    """A tensor; `array` is what an argument is, and what another value is without errors."""
    array: np.ndarray
    element: str

    @property
    def type(self):
        return "tensor<" + "".join(f"{n}x" for n in self.array.shape) + self.element + ">"


#: Kernels of the selected branch.
SELECTED = ("selected_forward", "selected_query_grad", "selected_key_value_grad")


def form(name):
    """Options of a program whose selected branch finds keys like this."""
    return {"schedules": {kernel: {"form": name} for kernel in SELECTED}}


def write_schedules(schedules):
    """Schedules of kernels as an attribute of a module."""
    lists = (f"{kernel} = [#nsa.schedule<{', '.join(f'{key} = {x}' for key, x in one.items())}>]" for kernel, one in schedules.items())
    return f"nsa.schedules = {{{', '.join(lists)}}}"


def flat(given):
    """The values of operands, which may be lists or missing."""
    return [v for x in given if x is not None for v in (x if isinstance(x, list) else [x])]


@dataclasses.dataclass(eq=False)
class Op:
    name: str
    operands: dict
    attributes: dict
    results: list
    #: What the text says in the types of results alone.
    hidden: dict = dataclasses.field(default_factory=dict)

    def inputs(self):
        return flat(self.operands.get(o.name) for o in self.declaration.operands)

    @property
    def declaration(self):
        return declarations.read()[self.name]

    def kind(self):
        """The type of the activations."""
        return next((v.element for v in [*self.results, *self.inputs()] if v.element in ("bf16", "f16")), "f32")

    def given(self, values):
        """Operands and attributes as a rule takes them."""
        def of(x):
            return [values[v] for v in x] if isinstance(x, list) else values[x]
        own = {key: of(x) for key, x in self.operands.items() if x is not None}
        return own | self.attributes | self.hidden


#: Attributes of element types, which a rule need not know.
TYPE_ATTRIBUTES = ("result_type", "element_type", "logits_type")


def result_elements(op, count):
    """The element types of so many results."""
    if op.name in ("nn.cast_all", "nn.recompute_barrier") and "element_type" not in op.attributes:
        return [v.element for v in op.inputs()]
    own = next((op.attributes[a] for a in TYPE_ATTRIBUTES if op.attributes.get(a) and op.name != "nn.muon"), None)
    if op.name == "nn.fill":
        own = own.rsplit("x", 1)[-1].removesuffix(">")
    floats = [v.element for o in op.declaration.operands if o.element == "float" for v in flat([op.operands.get(o.name)])]
    elements = []
    for result in op.declaration.results:
        element = (own or (floats[0] if floats else "f32")) if result.element == "float" else result.element
        elements += [element] * (count - len(op.declaration.results) + 1 if result.variadic else 1)
    return elements[:count]


def build(name, **given):
    """An operation with the results that its rule gives; what it does not declare is for the rule alone."""
    declared = declarations.read()[name]
    operands = {o.name: given.pop(o.name) for o in declared.operands if given.get(o.name) is not None}
    attributes = {a.name: given.pop(a.name) for a in declared.attributes if a.name in given}
    given = {key: x for key, x in given.items() if x is not None}
    op = Op(name, operands, attributes, [], given)
    arrays = rules.call(Exact(), name, **op.given({v: v.array for v in op.inputs()}))
    op.results = [Value(store(a, e), e) for a, e in zip(arrays, result_elements(op, len(arrays)))]
    return op


class Program:
    """A function: arguments, operations in order, results. `wanted` are arguments to differentiate by; the first
    result is then the objective, with `seed` as its gradient unless it is a scalar."""

    def __init__(self):
        self.arguments, self.ops, self.results, self.wanted = [], [], [], []
        self.seed = None
        #: What the module says of kernels of attention: `schedules`, a schedule for each, and how many are `refused`.
        self.options = {}
        #: The first argument with a batch and a length, where the text has `?` for both.
        self.open = None
        #: Results that are the new values of arguments, and these arguments.
        self.updates = {}

    # --- Text ---

    def extents(self):
        """The batch and the length that the text leaves open, or None."""
        return self.open and self.open.array.shape[:2]

    def type_of(self, v):
        """With `?` for what follows from the batch and the length: of tables these are positions, and what has a batch but
        no length has compressed blocks."""
        shape = list(v.array.shape)
        if self.open:
            batch, length = self.extents()
            if len(shape) > 1 and shape[0] == batch:
                shape = ["?", *("?" if n == length else n for n in shape[1:])]
                if len(shape) == 4 and "?" not in shape[1:]:
                    shape[1] = "?"
            elif shape[0] == length:
                shape[0] = "?"
        return "tensor<" + "".join(f"{n}x" for n in shape) + v.element + ">"

    def text(self):
        def types_of(values):
            return ", ".join(map(self.type_of, values))

        names = {v: f"%a{i}" for i, v in enumerate(self.arguments)}
        for i, v in enumerate(itertools.chain.from_iterable(op.results for op in self.ops)):
            names[v] = f"%v{i}"
        updated = self.updated()
        arguments = ", ".join(f'{names[v]}: {self.type_of(v)} {{nn.name = "a{i}"{STATE if v in updated.values() else ""}}}'
                              for i, v in enumerate(self.arguments))
        types = ", ".join(f'{self.type_of(v)} {{nn.alias = "a{self.arguments.index(updated[i])}"}}' if i in updated else
                          f'{self.type_of(v)} {{nn.name = "r{i}"}}' for i, v in enumerate(self.results))
        schedules, refused = self.options.get("schedules"), self.options.get("refused")
        attributes = [f"nsa.refused_schedules = {{any = {refused}}}"] if refused else []
        if schedules:
            attributes.append(write_schedules(schedules))
        lines = [f"module attributes {{{', '.join(attributes)}}} {{"] if attributes else []
        lines.append(f"func.func @main({arguments}) -> ({types}) {{")
        for op in self.ops:
            results = ", ".join(names[v] for v in op.results)
            inputs = op.inputs()
            lines.append(f'  {results} = "{op.name}"({", ".join(names[v] for v in inputs)}) {self._properties(op)}: '
                         f'({types_of(inputs)}) -> ({types_of(op.results)})')
        lines.append(f"  return {', '.join(names[v] for v in self.results)} : {types_of(self.results)}\n}}")
        return "\n".join(lines + ["}"] * bool(attributes)) + "\n"

    def updated(self):
        """Numbers of results that are left in the memory of an argument, and these arguments."""
        places = [(op, *IN_PLACE[op.name]) for op in self.ops if op.name in IN_PLACE]
        caches = {op.results[result]: op.operands[name] for op, result, name in places}
        return {self.results.index(v): a for v, a in [*caches.items(), *self.updates.items()] if v in self.results and a in self.arguments}

    @staticmethod
    def _properties(op):
        fields = [f"{key} = {_attribute_text(key, x)}" for key, x in op.attributes.items()
                  if x is not None and x is not False]
        if op.declaration.segments:
            counts = [len(x) if isinstance(x, list) else 0 if x is None else 1
                      for x in (op.operands.get(o.name) for o in op.declaration.operands)]
            fields.append(f"operandSegmentSizes = array<i32: {', '.join(map(str, counts))}>")
        return f"<{{{', '.join(fields)}}}> " if fields else ""

    # --- Evaluation ---

    def evaluate(self, c=None, arguments=None, choices=None):
        """Arrays of the results, then of the gradients. `choices` are indices of select operations that stand for
        those of the rule."""
        c = c or Exact()
        values = dict(zip(self.arguments, arguments or [c.argument(v.array, v.element) for v in self.arguments]))
        for op in self.ops:
            c.kind = op.kind()
            if choices and op.results[0] in choices:
                arrays = [choices[op.results[0]]]
            else:
                arrays = rules.call(c, op.name, **op.given(values))
            is_copy = op.name in COPIES or c.casts and op.name in CASTS and all(v in self.arguments for v in op.inputs())
            for v, array in zip(op.results, arrays):
                values[v] = store(array, v.element) if is_copy and c.casts else c.result(np.asarray(array), v.element)
        self.values = values
        return [values[v] for v in self.results] + (self._differentiate(c, values) if self.wanted else [])

    def _differentiate(self, c, values):
        objective = self.results[0]
        grads = {objective: np.ones(()) if self.seed is None else self.seed}
        active = self.find_active()
        for op in reversed(self.ops):
            if not any(v in grads for v in op.results) or not any(v in active for v in op.inputs()):
                continue
            c.kind = op.kind()
            own = [grads.get(v, np.zeros(v.array.shape)) for v in op.results]
            found = rules.differentiate(c, op.name, op.given(values), [values[v] for v in op.results], own)
            for key, gradient in found.items():
                x = op.operands[key]
                for v, g in zip(x, gradient) if isinstance(x, list) else [(x, gradient)]:
                    if v in active:
                        g = c.result(np.asarray(g), v.element)
                        grads[v] = c.result(grads[v] + g, v.element) if v in grads else g
        return [grads.get(v, np.zeros(v.array.shape)) for v in self.wanted]

    def find_active(self):
        """Values that depend on what is differentiated by."""
        active = set(self.wanted)
        for op in self.ops:
            if op.declaration.differentiable and any(v in active for v in op.inputs()):
                active.update(v for v in op.results if v.element != "i32")
        return active

    def reaching(self):
        """Arguments of which the first result is a differentiable function."""
        needed = {self.results[0]}
        for op in reversed(self.ops):
            if op.declaration.differentiable and op.name != "nsa.select" and op.results[0] in needed or \
                    op.name == "nn.split" and any(v in needed for v in op.results):
                needed.update(v for key, x in op.operands.items() if key not in FIXED for v in flat([x]))
        return [v for v in self.arguments if v in needed and v.element != "i32"]

    # --- Taking apart ---

    def without_dead(self):
        """Keeps what results need."""
        needed = set(self.results) | set(self.wanted) | {a for v, a in self.updates.items() if v in self.results}
        for op in reversed(self.ops):
            if any(v in needed for v in op.results):
                needed.update(op.inputs())
        smaller = Program()
        smaller.ops = [op for op in self.ops if any(v in needed for v in op.results)]
        smaller.arguments = [v for v in self.arguments if v in needed]
        smaller.results, smaller.wanted, smaller.seed = list(self.results), list(self.wanted), self.seed
        smaller.options, smaller.open, smaller.updates = self.options, self.open, self.updates
        return smaller

    def smaller(self):
        """Programs with one thing less: an option, a result, a gradient, or an operation whose results are given instead."""
        for key in self.options:
            yield self._with(options={k: x for k, x in self.options.items() if k != key})
        for i in range(1 if self.wanted else 0, len(self.results)):
            if len(self.results) > 1:
                yield self._with(results=self.results[:i] + self.results[i + 1:])
        if len(self.wanted) > 1:
            for i in range(len(self.wanted)):
                yield self._with(wanted=self.wanted[:i] + self.wanted[i + 1:])
        elif self.wanted:
            yield self._with(wanted=[])
        for op in self.ops:
            if not any(v in self.results for v in op.results):
                yield self._with(ops=[o for o in self.ops if o is not op], arguments=self.arguments + op.results)

    def _with(self, **changes):
        other = Program()
        for key in ("arguments", "ops", "results", "wanted", "seed", "options", "open", "updates"):
            setattr(other, key, changes.get(key, getattr(self, key)))
        return other.without_dead()


#: Operands without a gradient.
FIXED = ("table", "ids", "targets", "start", "at", "indices")
IN_PLACE = {"nsa.cache_append": (0, "cache"), "nsa.cache_fill": (0, "cache"), "nsa.advance": (1, "ids")}
STATE = ', nn.role = "state", nn.init = #nn.init<constant, 0.0>'
#: Results are the operands' elements.
COPIES = ("nn.split_heads", "nn.merge_heads", "nn.recompute_barrier", "nn.embedding", "nn.split", "nn.concat",
          "nn.split_rows", "nn.concat_rows", "nn.fill", "nsa.take_row", "nsa.cache_append", "nsa.cache_fill", "nsa.cache_read",
          "nsa.cache_slice")
#: Arguments are rounded to nearest.
CASTS = ("nn.cast", "nn.cast_all")
KEYWORDS = {"kind": "#nsa<compression {}>", "activation": "#nn<activation {}>"}


def _attribute_text(key, x):
    if key in KEYWORDS:
        return KEYWORDS[key].format(x)
    if x is True:
        return "unit"
    if isinstance(x, int):
        return f"{x} : i64"
    if isinstance(x, float):
        return f"{x!r} : f64" if "e" not in repr(x) or "." in repr(x) else repr(x).replace("e", ".0e") + " : f64"
    if isinstance(x, list):
        return f"array<i64: {', '.join(map(str, x))}>"
    return str(x)
