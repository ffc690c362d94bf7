"""Files of tensors: a length, a header in JSON, the elements."""

import json
import math
import os
import struct
import tempfile

import numpy

from nsa._files import open_file
from nsa._runtime import InputError

# What is read: the types that weights have.
_TYPES = {"F32": numpy.dtype("<f4"), "F16": numpy.dtype("<f2"), "BF16": numpy.dtype("<u2"), "F64": numpy.dtype("<f8")}
# The limit of the reference implementation.
_MAX_HEADER = 100_000_000


def _parse_header(path, text):
    try:
        header = json.loads(text)
    except ValueError as error:
        raise InputError(f"'{path}' is no safetensors file: {error}") from error
    if not isinstance(header, dict):
        raise InputError(f"'{path}' is no safetensors file: its header is a {type(header).__name__}")
    header.pop("__metadata__", None)
    return header


class File:
    """A file whose tensors are read when they are asked for: shapes[name], dtypes[name], read(name)."""

    def __init__(self, path):
        self.path = path
        try:
            with open_file(path) as file:
                size = os.fstat(file.fileno()).st_size
                start = file.read(8)
                length = struct.unpack("<Q", start)[0] if len(start) == 8 else size
                text = file.read(length) if length <= min(_MAX_HEADER, size - 8) else None
        except OSError as error:
            raise InputError(f"cannot read '{path}': {error.strerror}") from error
        if text is None:
            raise InputError(f"'{path}' is no safetensors file: its header would have {length} bytes of {size}")
        header = _parse_header(path, text)
        self._begin, self._places, self.shapes, self.dtypes = 8 + length, {}, {}, {}
        for name, entry in header.items():
            try:
                shape, (begin, end) = tuple(map(int, entry["shape"])), map(int, entry["data_offsets"])
                self.dtypes[name] = str(entry["dtype"])
            except (KeyError, TypeError, ValueError) as error:
                raise InputError(f"'{path}' says of '{name}' {json.dumps(entry)[:80]}, which is no tensor") from error
            width = _TYPES[self.dtypes[name]].itemsize if self.dtypes[name] in _TYPES else None
            is_whole = width is None or end - begin == width * math.prod(shape)
            if min(shape, default=0) < 0 or not 0 <= begin <= end <= size - self._begin or not is_whole:
                raise InputError(f"'{path}' says that '{name}' has shape {shape} in bytes {begin} to {end} of "
                                 f"{size - self._begin}")
            self.shapes[name], self._places[name] = shape, begin

    def read(self, name):
        """A tensor as float32; every value of f16 and bf16 is one."""
        kind = self.dtypes[name]
        if kind not in _TYPES:
            raise InputError(f"'{name}' of '{self.path}' is {kind}, expected one of {', '.join(_TYPES)}")
        shape = self.shapes[name]
        array = numpy.fromfile(self.path, _TYPES[kind], math.prod(shape), offset=self._begin + self._places[name])
        if kind == "BF16":
            array = (array.astype(numpy.uint32) << 16).view(numpy.float32)
        return numpy.ascontiguousarray(array.reshape(shape), numpy.float32)


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

    If writing fails, what `path` was before stays.
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
