"""Whether a program that was compiled gives what the rules say."""

import time

import numpy as np
from executors import nsa

import nsa_rules
import rules
from numerics import FEW, MANY, Errors, Exact, distance

CHOICES = {"nsa.select": nsa_rules.scores_of, "nsa.decode_select": nsa_rules.decode_scores}


def scores(op, values, c):
    c.kind = op.kind()
    function, given = CHOICES[op.name], rules.defaults(op.name) | op.given(values)
    names = function.__code__.co_varnames[1:function.__code__.co_argcount]
    return function(c, **{name: given[name] for name in names})


def check_choices(program, results, rng, place):
    """Problem, and the choices that the program made where they are not those of the rule."""
    choices = {}
    for op in program.ops:
        if op.name not in CHOICES or op.results[0] not in program.results:
            continue
        values = program.values
        exact = scores(op, values, Exact())
        found = np.array(results[program.results.index(op.results[0])])
        if op.name == "nsa.decode_select":  # kernels of GPUs list blocks as they find them, and none reads their order
            found = np.where(found < 0, np.iinfo(np.int32).max, found)
            found.sort(-1)
            found[found == np.iinfo(np.int32).max] = -1
            results[program.results.index(op.results[0])] = found
        finite, moved = np.isfinite(exact), 0.0
        for _ in range(FEW):
            c = Errors(rng, place)
            near = {v: c.result(values[v], v.element) if v not in program.arguments else values[v] for v in op.inputs()}
            noisy = c.result(scores(op, near, c), "f32")
            moved = max(moved, np.abs(noisy[finite] - exact[finite]).max(initial=0.0))
        problem = nsa_rules.bad_choice(found, exact, op.attributes["selected"], 4 * moved)
        if problem:
            return f"{op.name}: {problem}", choices
        if not np.array_equal(found, values[op.results[0]]):
            choices[op.results[0]] = found
    return None, choices


def find_limits(errors, expected, near):
    """How far each result may be off: twice what errors of rounding make of the formula, in as many evaluations by `near`
    as show that these `errors` are allowed, or in MANY."""
    limits = [0.0] * len(errors)
    for evaluation in range(MANY):
        limits = [max(limit, 2 * distance(n, e)) for limit, n, e in zip(limits, near(), expected)]
        if evaluation + 1 >= FEW and all(error <= limit for error, limit in zip(errors, limits)):
            break
    return limits


def expect(found, expected, near, what):
    """Fails with `what` if results are farther off than errors of rounding allow."""
    errors = [distance(f, e) for f, e in zip(found, expected)]
    limits = find_limits(errors, expected, near)
    assert all(error <= limit for error, limit in zip(errors, limits)), f"{what}: off by {errors}, more than {limits}"


def compare(program, found, seed=0, place="cpu"):
    """What is wrong with `found`, results and gradients in the order of Program.evaluate, or None. Indices that the
    program chose are results."""
    rng = np.random.default_rng(seed)
    expected = program.evaluate()
    problem, choices = check_choices(program, found, rng, place)
    if problem:
        return problem
    if choices:
        expected = program.evaluate(choices=choices)
    choices = {op.results[0]: program.values[op.results[0]] for op in program.ops if op.name in CHOICES}
    wanted = [*program.results, *program.wanted]
    errors = [distance(a, e) for a, e in zip(found, expected)]
    limits = find_limits(errors, expected, lambda: program.evaluate(Errors(rng, place), choices=choices))
    worst = max(range(len(wanted)), key=lambda i: errors[i] / limits[i] if limits[i] else (np.inf if errors[i] else 0))
    if errors[worst] <= limits[worst]:
        return None
    what = f"result {worst}" if worst < len(program.results) else f"gradient {worst - len(program.results)}"
    return (f"{what} ({wanted[worst].type}) is off by {errors[worst]:.3g}, more than {limits[worst]:.3g}; "
            f"the largest element is {np.abs(expected[worst]).max(initial=0):.3g}")


def show_choices(program):
    """Makes what the program selects one of its results."""
    for op in program.ops:
        if op.name in CHOICES and op.results[0] not in program.results:
            program.results.append(op.results[0])


def run(program, execute, seed=0):
    """What is wrong with a program where `execute` runs it, None for nothing, and what it gave."""
    show_choices(program)
    try:
        found = execute(program)
    except nsa.Error as error:
        return f"{type(error).__name__}: {error}", None
    return compare(program, found, seed, execute.place), found


def judge(program, execute, seed=0):
    return run(program, execute, seed)[0]


def shrink(program, execute, seconds=30):
    """A smaller program that fails, too."""
    end, tried = time.time() + seconds, iter(program.smaller())
    while time.time() < end:
        smaller = next(tried, None)
        if smaller is None:
            break
        if judge(smaller, execute):
            program, tried = smaller, iter(smaller.smaller())
    return program


def report(program, execute, problem, origin):
    """What to say of a program that fails: how it was made, and a smaller one."""
    small = shrink(program, execute)
    return f"{origin}: {problem}\nsmaller: {judge(small, execute)}\n{small.text()}"
