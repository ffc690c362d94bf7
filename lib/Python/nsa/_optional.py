"""Optional dependencies, which only some inputs need."""

import importlib

from nsa._runtime import InputError


def require(name, what):
    """The module `name`, or an error that says what needs it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise InputError(f"{what} needs the Python package {name.split('.')[0]}, which is not installed: {error}") from error
