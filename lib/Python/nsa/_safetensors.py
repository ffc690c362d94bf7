"""Files of tensors, in the format of the package safetensors."""

import json
import math
import os
import struct
import tempfile

import numpy

from nsa._files import open_file
from nsa._optional import require
from nsa._runtime import InputError

# What is read: the types that weights have.
_TYPES = ("F32", "F16", "BF16", "F64")


class File:
    """A file whose tensors are read when they are asked for: shapes[name], read(name)."""

    def __init__(self, path):
        library, self.path = require("safetensors", f"'{path}'"), path
        try:
            open_file(path).close()
            self._file = library.safe_open(path, "numpy")
            self.shapes = {name: tuple(self._file.get_slice(name).get_shape()) for name in self._file.offset_keys()}
        except OSError as error:
            raise InputError(f"cannot read '{path}': {error.strerror or error}") from error
        except library.SafetensorError as error:
            raise InputError(f"'{path}' is no safetensors file: {error}") from error

    def read(self, name):
        """A tensor as float32; every value of f16 and bf16 is one."""
        kind = self._file.get_slice(name).get_dtype()
        if kind not in _TYPES:
            raise InputError(f"'{name}' of '{self.path}' is {kind}, expected one of {', '.join(_TYPES)}")
        if kind == "BF16":
            # NumPy knows this type once the package is imported.
            require("ml_dtypes", f"'{name}' of '{self.path}', which is BF16,")
        return numpy.ascontiguousarray(self._file.get_tensor(name), numpy.float32)


def find_files(folder):
    """{tensor: File} of model.safetensors, or of the files that model.safetensors.index.json names."""
    single, index = os.path.join(folder, "model.safetensors"), os.path.join(folder, "model.safetensors.index.json")
    if os.path.exists(single) or not os.path.exists(index):
        file = File(single)
        return dict.fromkeys(file.shapes, file)
    try:
        with open_file(index, "r", encoding="utf-8") as text:
            places = {str(name): os.path.basename(place) for name, place in json.load(text)["weight_map"].items()}
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise InputError(f"cannot read '{index}': {error}") from error
    files = {place: File(os.path.join(folder, place)) for place in sorted(set(places.values()))}
    for name, place in places.items():
        if name not in files[place].shapes:
            raise InputError(f"'{index}' says that '{place}' has '{name}', which it has not")
    return {name: files[place] for name, place in places.items()}


def write(path, shapes, read):
    """Writes tensors of float32: {name: shape}, and a function from a name to its array.

    If writing fails, what `path` was before stays. Not by the package, which takes all tensors at once: here one is in
    memory at a time.
    """
    header, begin = {"__metadata__": {"format": "pt"}}, 0
    for name, shape in shapes.items():
        end = begin + 4 * math.prod(shape)
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [begin, end]}
        begin = end
    text = json.dumps(header).encode()
    # Elements begin at a multiple of 64.
    text += b" " * (-(8 + len(text)) % 64)
    path = os.path.abspath(path)
    with tempfile.NamedTemporaryFile(dir=os.path.dirname(path), prefix=os.path.basename(path), delete=False) as file:
        try:
            file.write(struct.pack("<Q", len(text)) + text)
            for name in shapes:
                file.write(numpy.ascontiguousarray(read(name), "<f4").data)
            file.flush()
            os.fsync(file.fileno())
            os.chmod(file.name, 0o644)
            os.replace(file.name, path)
        except BaseException:
            os.unlink(file.name)
            raise
