"""Keys of JSON objects, each read with its type and range."""

import json
import math

from nsa._files import open_file
from nsa._runtime import InputError

_MISSING = object()


def read_json(path):
    """The object in a file."""
    try:
        with open_file(path, "r", encoding="utf-8") as file:
            values = json.load(file)
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"cannot read '{path}': {getattr(error, 'strerror', None) or error}") from error
    if not isinstance(values, dict):
        raise InputError(f"'{path}' is a {type(values).__name__}, expected an object")
    return values


class Keys:
    """The values of an object, each read by one of the functions below.

    A wrong value is an error that names the file, the key and the value. What has a default may be missing; null is
    a value like others, where it is not among those expected.
    """

    def __init__(self, path, values, inside=""):
        self.path, self._values, self._inside, self._read = path, values, inside, set()

    def __contains__(self, key):
        return key in self._values

    def refuse(self, key, expected):
        value = json.dumps(self._values[key]) if key in self._values else "missing"
        value = value if len(value) <= 80 else value[:77] + "..."
        raise InputError(f"{self._inside}{key} in '{self.path}' is {value}, expected {expected}")

    def get(self, key, is_right, expected, default=_MISSING):
        """A value that is right, or the default of a key that is missing."""
        self._read.add(key)
        if key not in self._values:
            if default is _MISSING:
                self.refuse(key, expected)
            return default
        if not is_right(self._values[key]):
            self.refuse(key, expected)
        return self._values[key]

    def whole(self, key, least, most, default=_MISSING, or_null=False):
        def is_right(value):
            return (value is None and or_null) or (type(value) is int and least <= value <= most)

        found = self.get(key, is_right, f"a whole number from {least} to {most}" + " or null" * or_null, default)
        return default if found is None and default is not _MISSING else found

    def real(self, key, least, most, default=_MISSING):
        def is_right(value):
            return type(value) in (int, float) and least <= value <= most

        return float(self.get(key, is_right, f"a number from {least:g} to {most:g}", default))

    def flag(self, key, default=_MISSING):
        return self.get(key, lambda value: isinstance(value, bool), "true or false", default)

    def text(self, key, default=_MISSING):
        return self.get(key, lambda value: isinstance(value, str), "a string", default)

    def one_of(self, key, expected, default=_MISSING):
        def is_right(value):
            return any(type(value) is type(each) and value == each for each in expected)

        return self.get(key, is_right, " or ".join(map(json.dumps, expected)), default)

    def list_of(self, key, length, is_right, expected, default=_MISSING):
        """A list of so many values that are right, or null where the default is None."""
        def are_right(values):
            if values is None:
                return default is None
            return isinstance(values, list) and len(values) == length and all(map(is_right, values))

        return self.get(key, are_right, f"a list of {length} values, each {expected}", default)

    def inner(self, key):
        """The object that is a value; None where it is null or missing."""
        found = self.get(key, lambda value: value is None or isinstance(value, dict), "an object or null", None)
        return None if found is None else Keys(self.path, found, f"{self._inside}{key}.")

    def finish(self, ignored=()):
        """Refuses keys that were not read and are not switched off."""
        for key, value in self._values.items():
            is_known = key in self._read or key in ignored or key.startswith(("_", "unsloth_"))
            if not is_known and value is not None and value is not False:
                self.refuse(key, "no such key, null or false: it may change what the model computes")


def is_number(value):
    return type(value) in (int, float) and math.isfinite(value)
