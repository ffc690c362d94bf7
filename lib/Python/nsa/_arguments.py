"""Checks of public arguments: a wrong one is one InputError with its name, what it is, and what is expected."""

import argparse
import functools
import inspect
import math
import operator
import os

import numpy

from nsa._runtime import InputError


def shown(value):
    """A value in an error: itself if it is short."""
    text = repr(value)
    return text if len(text) <= 60 and "\n" not in text else f"a {type(value).__name__}"


def _wrong(name, value, expected):
    return InputError(f"{name} is {shown(value)}, expected {expected}")


def whole(least=0, most=(1 << 63) - 1):
    """An integer of this range."""
    def check(name, value):
        try:
            number = operator.index(value)
        except (TypeError, RuntimeError):
            number = None
        if number is None or isinstance(value, (bool, numpy.bool_)) or not least <= number <= most:
            raise _wrong(name, value, f"an integer from {least} {f'to {most}' if most < 1 << 60 else 'on'}")
        return number
    return check


def real(expected, is_good):
    """A finite number that is good."""
    def check(name, value):
        is_number = isinstance(value, (int, float, numpy.integer, numpy.floating)) and not isinstance(value, bool)
        if not is_number or not abs(value) < 1e300 or not is_good(value):
            raise _wrong(name, value, expected)
        return float(value)
    return check


def truth(name, value):
    if not isinstance(value, (bool, numpy.bool_)):
        raise _wrong(name, value, "True or False")
    return bool(value)


def text(name, value):
    if not isinstance(value, str):
        raise _wrong(name, value, "a text")
    return value


def path(name, value):
    try:
        found = os.fsdecode(os.fspath(value))
    except TypeError:
        found = ""
    if not found or "\0" in found:
        raise _wrong(name, value, "a path")
    return found


def several(name, value, expected):
    """The elements of a list, or of another iterable that is no text."""
    if isinstance(value, (str, bytes)):
        raise _wrong(name, value, expected)
    try:
        return list(value)
    except (TypeError, RuntimeError, NotImplementedError):
        raise _wrong(name, value, expected) from None


def texts(name, value):
    """A list, or another iterable, of texts."""
    return [text(f"{name}[{i}]", each) for i, each in enumerate(several(name, value, "a list of texts"))]


def paths(name, value):
    """One path, or several, as a list."""
    given = [value] if isinstance(value, (str, bytes, os.PathLike)) else several(name, value, "a path, or a list of paths")
    return [path(f"{name}[{i}]", each) for i, each in enumerate(given)]


def optional(kind):
    """None, or what `kind` takes."""
    return lambda name, value: None if value is None else kind(name, value)


def array(name, value):
    """An array of NumPy of any type."""
    try:
        return numpy.asarray(value.cpu() if hasattr(value, "cpu") else value)
    except Exception as error:  # What arrays of other libraries raise.
        raise InputError(f"{name} is {shown(value)}, which is no array: {str(error).splitlines()[0]}") from error


def instance(kind):
    """An object of this class."""
    def check(name, value):
        if not isinstance(value, kind):
            raise _wrong(name, value, f"a {kind.__name__}")
        return value
    return check


def takes(**kinds):
    """Checks arguments of a function, by name, before it runs."""
    def wrap(function):
        signature = inspect.signature(function)

        @functools.wraps(function)
        def call(*positional, **named):
            bound = signature.bind(*positional, **named)
            for name, kind in kinds.items():
                if name in bound.arguments:
                    bound.arguments[name] = kind(name, bound.arguments[name])
            return function(*bound.args, **bound.kwargs)
        return call
    return wrap


def whole_number(least):
    """A type of argparse: a whole number."""
    def read(text):
        if not text.isascii() or not text.isdigit() or int(text) < least:
            raise argparse.ArgumentTypeError(f"'{text}' is no whole number of at least {least}")
        return int(text)
    return read
