"""What each operation means: a function of its operands and attributes, which are called as the dialect calls them.

`c` says how to round, see numerics.py. A rule gives one array for each result, or a tuple of arrays. A gradient is
given as that of the operands by name; `o` has the operands, attributes and results of the operation.
"""

import inspect
import types

import declarations

RULES, GRADIENTS = {}, {}

#: Operations without a rule of their own, and why.
WITHOUT = {
    "nn.fused": "is its operations one by one; what fuses them is compared with these",
    "nn.yield": "ends nn.fused",
    "nsa.fused": "is its operations one by one; what fuses them is compared with these",
    "nsa.yield": "ends nsa.fused",
    "nn.flatten": "names persistent tensors; made by nsa-fuse-updates",
    "nn.unflatten": "names persistent tensors; made by nsa-fuse-updates",
    "nn.slice_shard": "is of several ranks",
    "nn.all_gather": "is of several ranks",
    "nn.gather_sequence": "is of several ranks",
    "nn.gather_halo": "is of several ranks",
    "nn.reduce_scatter_sequence": "is of several ranks",
    "nn.reduce_scatter_halo": "is of several ranks",
}


def rule(*names):
    def register(function):
        for name in names:
            RULES[name] = function
        return function
    return register


def gradient(*names):
    def register(function):
        for name in names:
            GRADIENTS[name] = function
        return function
    return register


def defaults(name):
    """What operands and attributes are that are not given."""
    declared = declarations.read()[name]
    values = {operand.name: [] if operand.variadic else None for operand in declared.operands}
    return values | {attribute.name: attribute.default for attribute in declared.attributes}


def call(c, name, **given):
    """The results of an operation as a tuple. What is not given has its default."""
    values, parameters = defaults(name) | given, list(inspect.signature(RULES[name]).parameters)[1:]
    unknown = set(given) - set(defaults(name)) - set(parameters)
    assert not unknown, f"{name} has no {unknown}"
    results = RULES[name](c, **{key: values[key] for key in parameters})
    return results if isinstance(results, tuple) else (results,)


def differentiate(c, name, given, results, grads):
    """Name of an operand to its gradient, from those of the results (zeros where none arrives): by a rule, or by that of
    the operation NAME_backward, whose operands and results are called after those of NAME."""
    values = types.SimpleNamespace(**defaults(name), **dict(zip([r.name for r in declarations.read()[name].results], results)))
    values.__dict__.update(given)
    if name in GRADIENTS:
        return GRADIENTS[name](c, values, *grads)
    backward, grads = declarations.read()[name + "_backward"], iter(grads)
    own = {o.name: next(grads) if o.name.endswith("_grad") else getattr(values, o.name) for o in backward.operands}
    own.update((a.name, getattr(values, a.name)) for a in backward.attributes if hasattr(values, a.name))
    found = list(call(c, backward.name, **own))
    named = {r.name: found[i:] if r.variadic else found[i] for i, r in enumerate(backward.results)}
    return {o.name: named[key] for o in declarations.read()[name].operands if getattr(values, o.name) is not None
            for key in (o.name + "_grad", PLURALS.get(o.name)) if key in named}


#: What the gradients of several operands are called.
PLURALS = {"parameters": "parameter_grads", "branches": "branch_grads"}
