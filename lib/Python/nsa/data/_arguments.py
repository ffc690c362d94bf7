"""Arguments of other types than asked for, as errors of nsa."""

import numbers
import operator
import os

from nsa._arguments import shown
from nsa._runtime import InputError


def whole(name, value, least=0, most=2**63 - 1):
    """`value` as a whole number between two."""
    try:
        number = operator.index(value)
    except TypeError:
        raise InputError(f"{name} must be a whole number, not {shown(value)}") from None
    if not least <= number <= most:
        raise InputError(f"{name} must be in {least}..{most}, not {number}")
    return number


def fraction(name, value):
    """`value` as a number in [0, 1)."""
    if not isinstance(value, numbers.Real) or not 0 <= value < 1:
        raise InputError(f"{name} must be in [0, 1), not {shown(value)}")
    return float(value)


def path(name, value):
    """`value` as the text of a path."""
    try:
        found = os.fsdecode(value)
    except TypeError:
        raise InputError(f"{name} must be a path, not {shown(value)}") from None
    if "\0" in found:
        raise InputError(f"{name} must be a path, which has no NUL: {shown(found)}")
    return found


def paths(value, what="inputs"):
    """One path or several, as texts."""
    if isinstance(value, (str, bytes, os.PathLike)):
        value = [value]
    try:
        return [path(f"each of the {what}", one) for one in value]
    except TypeError:
        raise InputError(f"the {what} must be paths, not {shown(value)}") from None
